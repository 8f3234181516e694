"""Marks ``[n]`` in an answer, and the sentence of a passage that a mark stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from appliance.core.prompt import split_sentences
from appliance.text.cjk import index_terms

_MAX_MARK = 12
"""Longest text between brackets that may still be a mark, e.g. ``[1, 2, 3]``."""

_OPEN, _CLOSE = "[［【", "]］】"
_MARK = re.compile(
    r"^[\[［【]\s*(?:(?:passage|资料)\s*)?(\d{1,2}(?:\s*[,，、;；]\s*\d{1,2})*)\s*[\]］】]$", re.I
)

QUOTE_CHARS = 160
"""Most characters of a quote: two lines on a kiosk or terminal."""


class MarkFilter:
    """Streams text through, normalising marks to ``[n]`` and removing those that point at nothing.

    Text is held back only from an opening bracket until it is clear whether a mark follows, so at
    most ``_MAX_MARK`` characters wait. ``used`` collects the numbers seen, in order.
    """

    def __init__(self, valid: Iterable[int]) -> None:
        self._valid = frozenset(valid)
        self._held = ""
        self.used: list[int] = []

    def feed(self, text: str) -> str:
        """Return what may be shown now."""
        out: list[str] = []
        for char in text:
            if not self._held:
                if char in _OPEN:
                    self._held = char
                else:
                    out.append(char)
                continue
            if char in _OPEN:
                out.append(self._held)
                self._held = char
                continue
            self._held += char
            if char in _CLOSE:
                out.append(self._resolve(self._held))
                self._held = ""
            elif len(self._held) > _MAX_MARK or char == "\n":
                out.append(self._held)
                self._held = ""
        return "".join(out)

    def close(self) -> str:
        """Return what is still held: an unfinished mark is dropped, other text is kept."""
        held, self._held = self._held, ""
        return "" if re.fullmatch(r"[\[［【]\s*\d*[\s,，、]*", held) else held

    def _resolve(self, bracketed: str) -> str:
        match = _MARK.match(bracketed)
        if match is None:
            return bracketed
        numbers = [int(n) for n in re.findall(r"\d+", match.group(1))]
        shown = []
        for n in numbers:
            if n in self._valid:
                if n not in self.used:
                    self.used.append(n)
                shown.append(f"[{n}]")
        return "".join(shown)


def best_quote(passage: str, wanted: str) -> str:
    """Return the sentence of ``passage`` that shares most terms with ``wanted``.

    Neighbours that share terms too are taken along. The result is always a contiguous, verbatim
    piece of ``passage`` (stripped) of at most ``QUOTE_CHARS`` characters.
    """
    sentences = split_sentences(passage)
    if not sentences:
        return passage.strip()[:QUOTE_CHARS]
    wanted_terms = set(index_terms(wanted))
    scores = [len(wanted_terms & set(index_terms(sentence))) for sentence in sentences]
    best = max(range(len(sentences)), key=lambda i: (scores[i], -i))
    first = last = best
    length = len(sentences[best])
    while True:
        candidates = [
            (scores[i], -abs(i - best), i)
            for i in (first - 1, last + 1)
            if 0 <= i < len(sentences)
            and scores[i] > 0
            and length + len(sentences[i]) <= QUOTE_CHARS
        ]
        if not candidates:
            break
        chosen = max(candidates)[2]
        first, last = min(first, chosen), max(last, chosen)
        length += len(sentences[chosen])
    return "".join(sentences[first : last + 1]).strip()[:QUOTE_CHARS].rstrip()


def locate(text: str, quote: str) -> tuple[int, int] | None:
    """Return where ``quote`` stands in ``text``, white space aside; None when it does not."""
    places = [n for n, char in enumerate(text) if not char.isspace()]
    squeezed = "".join(text[n] for n in places)
    wanted = "".join(quote.split())
    at = squeezed.find(wanted) if wanted else -1
    if at < 0:
        return None
    return places[at], places[at + len(wanted) - 1] + 1


def supporting(answer: str, passages: Mapping[int, str], question: str = "") -> int | None:
    """Return the number of the passage that shares most of the answer's terms, or None.

    Terms that already stand in the question count half: they say what was asked, not what was
    found. Used when a model gave an answer from the passages but forgot the mark.
    """
    asked = set(index_terms(question))
    answered = set(index_terms(answer))
    best: tuple[float, int] | None = None
    for n, text in passages.items():
        shared = answered & set(index_terms(text))
        score = sum(0.5 if term in asked else 1.0 for term in shared)
        if score > 0 and (best is None or score > best[0]):
            best = (score, n)
    return best[1] if best else None
