// The answer on the screen: evidence cards, text that grows, marks [n] that open their passage.
// Everything from the box becomes text nodes; no string is ever read as HTML.

import { get, reason } from "./box.js";
import { word } from "./words.js";

const at = (id) => document.getElementById(id);
const MARK = /\[(\d{1,2})\]/g;

export function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

const fileName = (path) => path.split("/").pop();

function place(citation) {
  const parts = [];
  if (citation.page) parts.push(word("page", { page: citation.page }));
  else if (citation.place) parts.push(citation.place);
  else if (citation.line_from) parts.push(word("line", { line: citation.line_from }));
  if (citation.heading) parts.push(citation.heading.split(" > ").pop());
  return parts.join(" · ");
}

export class AnswerView {
  constructor() {
    this.clear();
  }

  clear() {
    this.citations = new Map();
    this.text = "";
    this.shown = 0;
    at("answer").replaceChildren();
    at("evidence").replaceChildren();
    at("notices").replaceChildren();
    at("evidence-title").hidden = true;
    closePanel();
  }

  showEvidence(citations) {
    const cards = citations.map((citation) => {
      this.citations.set(citation.n, citation);
      const card = element("button", undefined, "card");
      card.type = "button";
      const file = fileName(citation.path);
      card.setAttribute("aria-label", word("open_source", { n: citation.n, file }));
      const head = element("span", undefined, "card-head");
      head.append(element("span", citation.n, "number"), element("span", file, "file"));
      card.append(head, element("span", place(citation), "place"), element("span", citation.quote, "quote"));
      card.addEventListener("click", () => openPanel(citation, card));
      const item = element("li");
      item.dataset.n = citation.n;
      item.append(card);
      return item;
    });
    at("evidence").replaceChildren(...cards);
    at("evidence-title").hidden = cards.length === 0;
  }

  add(piece) {
    this.text += piece;
    this.#draw(false);
  }

  // The finished text may differ from what streamed: marks that point at nothing are gone.
  finish(text, citations) {
    if (text !== this.text) {
      at("answer").replaceChildren();
      this.shown = 0;
      this.text = text;
    }
    const cited = new Set(citations.map((citation) => String(citation.n)));
    for (const citation of citations) this.citations.set(citation.n, citation);
    this.#draw(true);
    for (const item of at("evidence").children) {
      item.classList.toggle("cited", cited.has(item.dataset.n));
    }
  }

  // Draws what is new. An unfinished "[" waits for its "]", so that no mark is torn in two.
  #draw(isLast) {
    const fresh = this.text.slice(this.shown);
    const open = isLast ? -1 : fresh.search(/\[\d{0,2}$/);
    const ready = open < 0 ? fresh : fresh.slice(0, open);
    if (!ready) return;
    this.shown += ready.length;
    const nodes = document.createDocumentFragment();
    let from = 0;
    for (const match of ready.matchAll(MARK)) {
      const citation = this.citations.get(Number(match[1]));
      if (!citation) continue;
      nodes.append(ready.slice(from, match.index), this.#mark(citation));
      from = match.index + match[0].length;
    }
    nodes.append(ready.slice(from));
    at("answer").append(nodes);
    at("answer").normalize();
  }

  #mark(citation) {
    const mark = element("button", citation.n, "mark");
    mark.type = "button";
    mark.setAttribute("aria-label", word("open_source", { n: citation.n, file: fileName(citation.path) }));
    mark.addEventListener("click", () => openPanel(citation, mark));
    return mark;
  }
}

let opener = null;
let opening = 0;

export async function openPanel(citation, from) {
  const turn = ++opening;
  opener = from;
  at("panel-title").textContent = fileName(citation.path);
  at("panel-place").textContent = place(citation);
  at("panel-text").replaceChildren(element("p", word("loading_text")));
  at("panel").hidden = false;
  document.body.classList.add("has-panel");
  at("panel-title").focus({ preventScroll: true });
  let passages;
  try {
    ({ passages } = await get(`/api/documents/${citation.document}/passages`));
  } catch (error) {
    if (turn === opening) at("panel-text").replaceChildren(element("p", reason(error)));
    return;
  }
  if (turn !== opening) return;
  const near = whereQuoted(passages, citation);
  let heading = null;
  const nodes = [];
  for (const [index, passage] of passages.entries()) {
    // A long book stays light: the pages around the passage are what was asked for.
    if (Math.abs(index - near) > 40) continue;
    if (passage.heading && passage.heading !== heading) nodes.push(element("h3", passage.heading));
    heading = passage.heading;
    const paragraph = element("p", undefined, index === near ? "quoted" : "");
    paragraph.append(...highlighted(passage.text, index === near ? citation.quote : ""));
    nodes.push(paragraph);
  }
  if (citation.page && citation.path.toLowerCase().endsWith(".pdf")) nodes.unshift(picture(citation));
  at("panel-text").replaceChildren(...nodes);
  if (nodes[0]?.className === "page") return; // the page itself, with the quote marked on it
  const target = at("panel-text").querySelector("mark") ?? at("panel-text").querySelector(".quoted");
  if (target) at("panel-text").scrollTop = target.offsetTop - at("panel-text").clientHeight / 3;
}

export function closePanel() {
  opening += 1;
  const hadFocus = at("panel").contains(document.activeElement);
  at("panel").hidden = true;
  at("panel-text").replaceChildren();
  at("panel-title").textContent = at("panel-place").textContent = "";
  document.body.classList.remove("has-panel");
  if (hadFocus && opener?.isConnected) opener.focus();
  opener = null;
}

// A page of a PDF as it is printed; where it cannot be drawn its text remains.
function picture(citation) {
  const image = element("img", undefined, "page");
  image.alt = `${fileName(citation.path)}, ${word("page", { page: citation.page })}`;
  const query = new URLSearchParams({ q: citation.quote });
  image.addEventListener("error", () => image.remove());
  image.src = `/api/documents/${citation.document}/page/${citation.page}?${query}`;
  return image;
}

function whereQuoted(passages, citation) {
  const exact = passages.findIndex((passage) => passage.text.includes(citation.quote));
  if (exact >= 0) return exact;
  const same = passages.findIndex((passage) => passage.page === citation.page && passage.line_from === citation.line_from);
  return Math.max(0, same);
}

// Marks the quote only where it really is.
function highlighted(text, quote) {
  const start = quote ? text.indexOf(quote) : -1;
  if (start < 0) return [text];
  return [text.slice(0, start), element("mark", quote), text.slice(start + quote.length)];
}
