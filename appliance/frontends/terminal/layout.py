"""Text on a terminal: display width, padding, and no control characters from strangers; pure.

A Chinese character takes two columns and a combining mark none. Names and text of documents are
somebody else's bytes: an escape sequence in them must not reach the terminal.
"""

from __future__ import annotations

import unicodedata

_WIDE = frozenset("WF")
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})
_REORDERS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that make text read in another order than it is written: ``gpj.exe`` for ``exe.jpg``."""


def width(text: str) -> int:
    """Return the columns that one line of text takes."""
    columns = 0
    for char in text:
        if unicodedata.category(char) in _NO_WIDTH:
            continue
        columns += 2 if unicodedata.east_asian_width(char) in _WIDE else 1
    return columns


def clean(text: str) -> str:
    """Return text without control characters except line breaks and tabs, all read in order."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if _is_unsafe(char) else char for char in text.replace("\r\n", "\n"))


def _is_unsafe(char: str) -> bool:
    if char in "\n\t":
        return False
    return char in _REORDERS or unicodedata.category(char) in ("Cc", "Cs")


def pad(text: str, columns: int) -> str:
    """Return one line filled with spaces to ``columns``."""
    return text + " " * max(0, columns - width(text))


def cut(text: str, columns: int) -> str:
    """Return one line shortened to at most ``columns``, with an ellipsis when it was longer."""
    if width(text) <= columns:
        return text
    return _head(text, columns - 1) + "…"


def _head(text: str, columns: int) -> str:
    """Return the longest beginning of ``text`` that takes at most ``columns``."""
    used = 0
    for n, char in enumerate(text):
        used += width(char)
        if used > columns:
            return text[:n]
    return text


def wrap(text: str, columns: int) -> list[str]:
    """Return text as lines of at most ``columns``: Latin breaks at spaces, Chinese anywhere."""
    lines, line, used = [], "", 0
    for word in _breakable(" ".join(text.split())):
        if used + width(word.rstrip()) > columns and line:
            lines.append(line.rstrip())
            line, used = "", 0
        while width(word.rstrip()) > columns:
            head = _head(word, columns)
            lines.append(head)
            word = word[len(head) :]  # noqa: PLW2901 - a word longer than a line is cut up
        line, used = line + word, used + width(word)
    return [*lines, line.rstrip()] if line.strip() else lines


def _breakable(text: str) -> list[str]:
    """Return pieces between which a line may break."""
    pieces: list[str] = []
    for char in text:
        is_wide = unicodedata.east_asian_width(char) in _WIDE
        follows = pieces and not is_wide and not pieces[-1].endswith(" ")
        if follows and (char == " " or width(pieces[-1][-1]) < 2):
            pieces[-1] += char
        else:
            pieces.append(char)
    return pieces


def table(rows: list[list[str]], gap: str = "  ") -> list[str]:
    """Return rows as lines with columns aligned by display width."""
    widths = [max(width(row[n]) for row in rows) for n in range(len(rows[0]))] if rows else []
    return [
        gap.join(pad(cell, columns) for cell, columns in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
