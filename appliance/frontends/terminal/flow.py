"""Streamed answer text for a terminal: words kept whole at the edge, light Markdown; pure.

Text comes in pieces of any size. What is held back is at most one word or one unfinished mark.
"""

from __future__ import annotations

import sys

from appliance.frontends.terminal.layout import width

BOLD, PLAIN = "\x1b[1m", "\x1b[22m"


class Markdown:
    """Turns ``**bold**`` and ``# headings`` into bold text, or just takes the marks away.

    Everything else stays as it is: lists and code read well as they are.
    """

    def __init__(self, *, is_plain: bool) -> None:
        self._on, self._off = ("", "") if is_plain else (BOLD, PLAIN)
        self._held = ""
        self._is_bold = False
        self._in_heading = False
        self._at_start = True

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        text, self._held = self._held + text, ""
        out: list[str] = []
        at = 0
        while at < len(text):
            rest = text[at:]
            if self._at_start and rest[0] == "#":
                marks = len(rest) - len(rest.lstrip("#"))
                if marks == len(rest) and marks <= 6:
                    self._held = rest
                    break
                if marks <= 6 and rest[marks] == " ":
                    out.append(self._on)
                    self._in_heading, self._at_start = True, False
                    at += marks + 1
                    continue
            if rest == "*":
                self._held = rest
                break
            if rest.startswith("**"):
                out.append(self._off if self._is_bold else self._on)
                self._is_bold = not self._is_bold
                at += 2
                continue
            char = rest[0]
            if char == "\n" and self._in_heading:
                out.append(self._off)
                self._in_heading = False
            self._at_start = char == "\n"
            out.append(char)
            at += 1
        return "".join(out)

    def flush(self) -> str:
        """Return what was held back, at the end of the answer."""
        held, self._held = self._held, ""
        is_open = self._is_bold or self._in_heading
        self._is_bold = self._in_heading = False
        self._at_start = True
        return held + (self._off if is_open else "")


class WordWrap:
    """Breaks lines before words that would not fit; Chinese may break anywhere.

    Args:
        cols: of the terminal; None breaks no line.
    """

    def __init__(self, cols: int | None) -> None:
        self._cols = sys.maxsize if cols is None else max(cols, 2)
        self._col = 0
        self._word = ""
        self._word_cols = 0

    def feed(self, text: str) -> str:
        """Return what can be shown now; an unfinished word waits."""
        out: list[str] = []
        in_escape = False
        for char in text:
            if in_escape or char == "\x1b":
                in_escape = char != "m"
                self._word += char
            elif char == "\n":
                out.append(self._take() + "\n")
                self._col = 0
            elif char == " ":
                out.append(self._take())
                if self._col < self._cols:
                    out.append(" ")
                    self._col += 1
            elif width(char) == 2:
                out.append(self._take())
                self._word, self._word_cols = char, 2
                out.append(self._take())
            else:
                self._word += char
                self._word_cols += width(char)
                if self._word_cols >= self._cols:
                    out.append(self._take())
        return "".join(out)

    def flush(self) -> str:
        """Return the word that waited."""
        return self._take()

    def _take(self) -> str:
        word, columns = self._word, self._word_cols
        self._word, self._word_cols = "", 0
        if columns and self._col + columns > self._cols:
            self._col = columns
            return "\n" + word
        self._col += columns
        return word


class Flow:
    """One message's way to a terminal: answers with their marks, other lines as they are.

    Args:
        cols: of the terminal; None breaks no line.
        is_plain: take the marks away instead of showing them.
    """

    def __init__(self, cols: int | None, *, is_plain: bool) -> None:
        self._markdown = Markdown(is_plain=is_plain)
        self._wrap = WordWrap(cols)

    def answer(self, text: str) -> str:
        """Return what can be shown now of an answer that grows."""
        return self._wrap.feed(self._markdown.feed(text))

    def line(self, text: str) -> str:
        """Return what was held back, and a whole line."""
        return self.flush() + self._wrap.feed(text + "\n")

    def flush(self) -> str:
        """Return what was held back."""
        return self._wrap.feed(self._markdown.flush()) + self._wrap.flush()
