"""Which of the two languages a text is in."""

from __future__ import annotations

from typing import Literal

Lang = Literal["zh", "en"]


def is_han(char: str) -> bool:
    """Whether ``char`` is a Chinese character (unified ideographs, extensions, 〇)."""
    code = ord(char)
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x323AF
        or 0xF900 <= code <= 0xFAFF
        or code == 0x3007
    )


def detect_lang(text: str) -> Lang:
    """Return the language of ``text``: Chinese when Han characters outweigh Latin words.

    One Han character carries about as much as one short Latin word, so "Word 怎么用" is Chinese and
    "What does 教案 mean?" is English.
    """
    n_han = sum(1 for char in text if is_han(char))
    if n_han == 0:
        return "en"
    n_words = sum(1 for word in text.split() if any("a" <= c.lower() <= "z" for c in word))
    return "zh" if n_han >= n_words else "en"
