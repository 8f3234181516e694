// The page: which screen shows, the buttons of the bar, one question at a time.

import { AnswerView, closePanel, element } from "./answer.js";
import { ask, get, reason } from "./box.js";
import { Keyboard } from "./keyboard.js";
import { Idle, lock } from "./privacy.js";
import { langCode, setLang, word } from "./words.js";

const at = (id) => document.getElementById(id);
const SIZES = [1, 1.2, 1.45];
const THEMES = ["auto", "light", "dark", "contrast"];

const view = new AnswerView();
const keyboard = new Keyboard(at("box"));
// A name for fairness in the queue, new with every visitor and kept nowhere.
const newVisitor = () => crypto.getRandomValues(new Uint32Array(2)).join("-");
let visitor = newVisitor();
let running = null;

// ---- screens

function showAttract() {
  keyboard.close();
  running?.abort();
  running = null;
  view.clear();
  at("question").textContent = "";
  setState("");
  at("announce").textContent = "";
  at("box").value = "";
  at("talk").hidden = true;
  at("attract").hidden = false;
  at("home").hidden = true;
  setRunning(false);
  at("main").scrollTop = 0;
  showJoin();
  return loadSuggestions();
}

// Only the screen on the box itself is told how to join; elsewhere the answer is 401.
async function showJoin() {
  let url = null;
  if (["localhost", "127.0.0.1", "[::1]"].includes(location.hostname)) {
    ({ url } = await get("/api/join").catch(() => ({ url: null })));
  }
  at("join").hidden = !url;
  if (url) at("join-code").src = `/api/join.svg?${Date.now()}`;
}

// The code is good for twenty minutes; a screen may stand for days.
setInterval(() => { if (!at("join").hidden) showJoin(); }, 300_000);

async function loadSuggestions() {
  const list = at("suggestions");
  let found;
  try {
    found = (await get("/api/suggestions?n=3")).suggestions;
  } catch (error) {
    list.replaceChildren(element("li", reason(error), "hint"));
    return;
  }
  const items = found.map((question) => {
    const item = element("li");
    const button = element("button", question, "suggestion");
    button.type = "button";
    button.addEventListener("click", () => start(question));
    item.append(button);
    return item;
  });
  list.replaceChildren(...(items.length ? items : [element("li", word("no_documents"), "hint")]));
}

function setRunning(isRunning) {
  at("stop").hidden = !isRunning;
  at("send").hidden = isRunning;
  at("answer").setAttribute("aria-busy", String(isRunning));
}

function setState(text, kind = "") {
  at("state").textContent = text;
  at("state").dataset.kind = kind;
}

// ---- one question

async function start(question) {
  keyboard.close();
  running?.abort();
  const mine = new AbortController();
  running = mine;
  view.clear();
  at("attract").hidden = true;
  at("talk").hidden = false;
  at("home").hidden = false;
  at("question").textContent = question;
  at("box").value = "";
  at("announce").textContent = "";
  setRunning(true);
  setState(word("searching"), "busy");
  at("main").scrollTop = 0;
  at("question").focus({ preventScroll: true });
  try {
    await ask(question, visitor, mine.signal, (name, event) => {
      if (running === mine) tell(name, event);
    });
  } catch (error) {
    if (running !== mine) return;
    if (mine.signal.aborted) setState(word("stopped"));
    else {
      setState(word("failed"), "failed");
      view.finish(reason(error), []);
    }
  }
  if (running === mine) {
    running = null;
    setRunning(false);
  }
}

function tell(name, event) {
  if (name === "queued") {
    const facts = { position: event.position, seconds: Math.max(1, Math.round(event.wait_s ?? 0)) };
    setState(word(event.wait_s ? "queued_eta" : "queued", facts), "busy");
  } else if (name === "evidence") view.showEvidence(event.citations);
  else if (name === "reading") setState(word("reading"), "busy");
  else if (name === "delta") {
    if (!view.text) setState(word("writing"), "busy");
    view.add(event.text);
  } else if (name === "notice") at("notices").append(element("li", event.text));
  else if (name === "answer") finish(event);
}

function finish(answer) {
  view.finish(answer.answer, answer.citations);
  if (answer.refused) setState(word("refused"));
  else if (answer.finish_reason === "cancelled") setState(word("stopped"));
  else setState(word(answer.finish_reason === "length" ? "cut" : "done"), "done");
  // A screen reader hears the answer once, whole, instead of every piece of it.
  at("announce").textContent = answer.answer;
}

// ---- the bar

function next(list, current) {
  return list[(list.indexOf(current) + 1) % list.length];
}

at("larger").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.size = String((Number(root.dataset.size ?? 0) + 1) % SIZES.length);
});

at("theme").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = next(THEMES, root.dataset.theme);
});

function useLang(code) {
  setLang(code);
  at("lang").textContent = word("other_lang");
  at("box").placeholder = word("ask_hint");
}

at("lang").addEventListener("click", () => {
  useLang(langCode() === "zh" ? "en" : "zh");
  if (at("talk").hidden) loadSuggestions();
});

at("home").addEventListener("click", showAttract);
at("stop").addEventListener("click", () => running?.abort());
at("panel-close").addEventListener("click", closePanel);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !at("panel").hidden) closePanel();
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = at("box").value.trim();
  if (question) start(question);
});

// ---- between visitors

// Everything back as it was. Loading the page anew also empties what scripts held in memory; with
// the box away there would be an error page instead, so it is asked first.
async function wipe() {
  visitor = newVisitor();
  delete document.documentElement.dataset.size;
  document.documentElement.dataset.theme = "auto";
  useLang(ownLang);
  await showAttract();
  try {
    await get("/healthz");
  } catch {
    return;
  }
  location.replace("/");
}

function isFresh() {
  const { size = "0", theme } = document.documentElement.dataset;
  const isPlain = size === "0" && theme === "auto" && langCode() === ownLang;
  return isPlain && !at("attract").hidden && at("box").value === "";
}

const ownLang = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
useLang(ownLang);
lock(() => (at("panel").hidden ? showAttract() : closePanel()));
new Idle(isFresh, () => running !== null, wipe).begin();
showAttract();
