// A keyboard in the page: pinyin with candidates from the box, Latin, digits and punctuation. A real
// keyboard and the system's own input method work beside it. Nothing typed is learned or kept.

import { element } from "./answer.js";
import { get } from "./box.js";
import { langCode, word } from "./words.js";

const at = (id) => document.getElementById(id);
const LETTERS = ["qwertyuiop", "asdfghjkl", "zxcvbnm"];
const SIGNS = {
  zh: ["1234567890", "，。？！、：；（）", "“”《》-/@·…"],
  en: ["1234567890", ",.?!:;'\"()", "@#%&*+-/="],
};
const wide = matchMedia("(min-width: 600px)");

export class Keyboard {
  constructor(box) {
    this.box = box;
    this.letters = "";
    this.isFuzzy = false;
    this.asked = 0;
    this.found = Promise.resolve();
    this.pressed = Promise.resolve();
    at("keyboard-toggle").addEventListener("click", () => (at("keyboard").hidden ? this.open() : this.close()));
    // With the whole tap: opened at its start, the keyboard would lie under its end.
    box.addEventListener("click", (event) => {
      if (event.pointerType === "touch" && wide.matches) this.open();
    });
    // A key must not take the caret out of the box.
    at("keyboard").addEventListener("pointerdown", (event) => event.preventDefault());
    at("keyboard").addEventListener("click", (event) => {
      const key = event.target.closest("button");
      if (!key) return;
      // One after the other: a space pressed at once still takes what its letters find.
      const press = () => this.#press(key.dataset.key, key);
      this.pressed = this.pressed.then(press, press);
    });
  }

  open() {
    this.mode = langCode() === "zh" ? "pinyin" : "latin";
    this.isUpper = false;
    this.box.inputMode = "none";
    at("keyboard").hidden = false;
    at("keyboard-toggle").setAttribute("aria-expanded", "true");
    this.box.focus();
    this.#draw();
    // The box reads its word list now, not at the first letter.
    if (this.mode === "pinyin") get("/api/pinyin?q=a&n=1").catch(() => {});
  }

  close() {
    this.#compose("");
    this.isFuzzy = false;
    this.box.inputMode = "";
    at("keyboard").hidden = true;
    at("keyboard-toggle").setAttribute("aria-expanded", "false");
  }

  #draw() {
    const isSigns = this.mode === "signs";
    const rows = (isSigns ? SIGNS[this.signs ?? langCode()] : LETTERS).map((row) =>
      [...row].map((char) => this.#key(this.isUpper && !isSigns ? char.toUpperCase() : char)),
    );
    rows[2].unshift(isSigns ? this.#key("other", word("key_other"), "action") : this.#key("shift", this.mode === "pinyin" ? "'" : "⇧", "action"));
    rows[2].push(this.#key("delete", "⌫", "action"));
    rows.push([
      this.#key("signs", isSigns ? "ABC" : "123", "action"),
      this.#key("mode", this.mode === "latin" ? "英" : "拼", "action"),
      this.#key("fuzzy", "z=zh", "action"),
      this.#key(" ", word("key_space"), "space"),
      ...(this.mode === "latin" || isSigns ? [this.#key(".")] : [this.#key("，"), this.#key("？")]),
      this.#key("hide", "⌄", "action"),
    ]);
    const fuzzy = rows[3][2];
    fuzzy.setAttribute("aria-pressed", String(this.isFuzzy));
    fuzzy.hidden = this.mode !== "pinyin";
    at("keys").replaceChildren(
      ...rows.map((keys) => {
        const row = element("div", undefined, "key-row");
        row.append(...keys);
        return row;
      }),
    );
    this.#show([]);
  }

  #key(name, text = name, kind = "") {
    const key = element("button", text, `key ${kind}`);
    key.type = "button";
    key.dataset.key = name;
    const label = { delete: "key_delete", shift: "key_shift", signs: "key_signs", mode: "key_mode", hide: "key_hide", fuzzy: "key_fuzzy" }[name];
    if (label && !(name === "shift" && this.mode === "pinyin")) key.setAttribute("aria-label", word(label));
    return key;
  }

  async #press(name, key) {
    const isLetter = /^[a-z]$/i.test(name);
    if (key.dataset.length) this.#choose(key.textContent, Number(key.dataset.length));
    else if (this.mode === "pinyin" && (isLetter || (name === "shift" && this.letters))) {
      this.#compose(this.letters + (isLetter ? name : "'"));
    } else if (name === "delete") this.letters ? this.#compose(this.letters.slice(0, -1)) : this.#erase();
    else if (name === " " && this.letters) await this.#chooseFirst();
    else if (name === "hide") this.close();
    else if (name === "fuzzy") {
      this.isFuzzy = !this.isFuzzy;
      key.setAttribute("aria-pressed", String(this.isFuzzy));
      this.#compose(this.letters);
    } else if (["shift", "signs", "mode", "other"].includes(name)) await this.#switch(name);
    else {
      await this.#chooseFirst();
      this.#insert(name);
      if (this.isUpper) await this.#switch("shift");
    }
  }

  async #switch(name) {
    if (name === "shift") this.isUpper = !this.isUpper && this.mode === "latin";
    else if (name === "other") this.signs = (this.signs ?? langCode()) === "zh" ? "en" : "zh";
    else {
      await this.#chooseFirst();
      const home = this.home ?? (langCode() === "zh" ? "pinyin" : "latin");
      if (name === "mode") this.mode = this.home = home === "pinyin" ? "latin" : "pinyin";
      else this.mode = this.mode === "signs" ? home : "signs";
      this.isUpper = false;
    }
    this.#draw();
  }

  #compose(letters) {
    this.letters = letters.slice(0, 60);
    this.found = this.#look();
  }

  async #look() {
    const turn = ++this.asked;
    if (!this.letters) {
      this.#show([]);
      return;
    }
    at("composed").textContent = this.letters;
    let found = [];
    try {
      const query = new URLSearchParams({ q: this.letters, n: "20", fuzzy: this.isFuzzy ? "1" : "0" });
      found = (await get(`/api/pinyin?${query}`)).candidates;
    } catch {
      // Without the box the letters themselves can still be put in.
    }
    if (turn === this.asked) this.#show(found);
  }

  #show(found) {
    at("composed").textContent = this.letters;
    this.first = found[0];
    const shown = found.concat(this.letters ? [{ text: this.letters, length: this.letters.length }] : []);
    at("candidates").replaceChildren(
      ...shown.map(({ text, length }) => {
        const key = element("button", text, "candidate");
        key.type = "button";
        key.dataset.length = length;
        return key;
      }),
    );
    at("candidates").scrollLeft = 0;
  }

  #choose(text, length) {
    this.#insert(text);
    this.#compose(this.letters.slice(length));
  }

  async #chooseFirst() {
    if (!this.letters) return;
    await this.found;
    const { text, length } = this.first ?? { text: this.letters, length: this.letters.length };
    this.#choose(text, length);
  }

  #insert(text) {
    const { selectionStart, selectionEnd, value, maxLength } = this.box;
    if (value.length - (selectionEnd - selectionStart) + text.length > maxLength) return;
    this.box.setRangeText(text, selectionStart, selectionEnd, "end");
    this.#changed();
  }

  #erase() {
    const { selectionStart, selectionEnd, value } = this.box;
    const last = [...new Intl.Segmenter().segment(value.slice(0, selectionStart))].pop();
    const start = selectionStart === selectionEnd && last ? last.index : selectionStart;
    this.box.setRangeText("", start, selectionEnd, "end");
    this.#changed();
  }

  #changed() {
    this.box.dispatchEvent(new Event("input", { bubbles: true }));
    this.box.scrollLeft = this.box.scrollWidth;
  }
}
