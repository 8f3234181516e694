// Nothing of one visitor reaches the next: idle notice, then wipe; and no way out of the page.

import { get } from "./box.js";
import { word } from "./words.js";

const at = (id) => document.getElementById(id);
const ACTIVITY = ["pointerdown", "keydown", "input", "wheel", "touchmove"];

export class Idle {
  // isFresh() says that there is nothing to wipe, isBusy() that an answer runs, wipe() empties the page.
  constructor(isFresh, isBusy, wipe) {
    this.isFresh = isFresh;
    this.isBusy = isBusy;
    this.wipe = wipe;
    this.last = performance.now();
    for (const name of ACTIVITY) {
      addEventListener(name, () => this.#act(), { capture: true, passive: true });
    }
    // The notice goes with the whole tap, or the tap would fall on what lies beneath.
    at("idle").addEventListener("click", () => this.touch());
  }

  async begin() {
    const { idle_s: idle, notice_s: notice } = await get("/api/kiosk");
    if (!idle) return;
    setInterval(() => this.#look(idle, notice), 250);
  }

  touch() {
    this.last = performance.now();
    at("idle").hidden = true;
  }

  #act() {
    if (at("idle").hidden) this.touch();
  }

  #look(idle, notice) {
    if (this.isBusy() || this.isFresh()) {
      this.touch();
      return;
    }
    const left = Math.ceil(idle + notice - (performance.now() - this.last) / 1000);
    if (left <= 0) {
      this.touch();
      this.wipe();
    } else if (left <= notice) {
      at("idle-left").textContent = word("idle_left", { seconds: left });
      if (at("idle").hidden) {
        at("idle").hidden = false;
        at("idle-stay").focus();
      }
    }
  }
}

// Back, the context menu, dragging, dropping and zooming lead nowhere.
export function lock(onBack) {
  for (const name of ["contextmenu", "dragstart", "dragover", "drop", "gesturestart", "auxclick"]) {
    addEventListener(name, (event) => event.preventDefault());
  }
  addEventListener("wheel", (event) => {
    if (event.ctrlKey) event.preventDefault();
  }, { passive: false });
  addEventListener("keydown", (event) => {
    const zooms = (event.ctrlKey || event.metaKey) && ["+", "-", "=", "0"].includes(event.key);
    const leaves = event.altKey && ["ArrowLeft", "ArrowRight", "Home"].includes(event.key);
    if (zooms || leaves) event.preventDefault();
  });
  history.pushState(null, "");
  addEventListener("popstate", () => {
    history.pushState(null, "");
    onBack();
  });
}
