"""Text on a terminal: display width, padding, and no control characters from strangers; pure.

A Chinese character takes two columns and a combining mark none. Names and text of documents are
somebody else's bytes: an escape sequence in them must not reach the terminal.
"""

from __future__ import annotations

import unicodedata

_WIDE = frozenset("WF")
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})


def width(text: str) -> int:
    """Return the columns that one line of text takes."""
    columns = 0
    for char in text:
        if unicodedata.category(char) in _NO_WIDTH:
            continue
        columns += 2 if unicodedata.east_asian_width(char) in _WIDE else 1
    return columns


def clean(text: str) -> str:
    """Return text without control characters except line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs") else "\ufffd"
        for char in text.replace("\r\n", "\n")
    )


def pad(text: str, columns: int) -> str:
    """Return one line filled with spaces to ``columns``."""
    return text + " " * max(0, columns - width(text))


def cut(text: str, columns: int) -> str:
    """Return one line shortened to at most ``columns``, with an ellipsis when it was longer."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for char in text:
        used += width(char)
        if used > columns - 1:
            break
        kept += char
    return kept + "…"


def table(rows: list[list[str]], gap: str = "  ") -> list[str]:
    """Return rows as lines with columns aligned by display width."""
    widths = [max(width(row[n]) for row in rows) for n in range(len(rows[0]))] if rows else []
    return [
        gap.join(pad(cell, columns) for cell, columns in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
