"""Pinyin typed without tones, read as the Chinese that stands in the documents.

``jiaoan`` is cut into syllables (jiao an); every pair of neighbouring syllables stands for the
bigrams of characters read so, of which only those count that the index holds. ``ja`` is read as the
first letters of two characters. Readings are those of the ``pypinyin`` package's character table.
"""

from __future__ import annotations

import itertools
import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from appliance.text.lang import is_han

_MOST_SYLLABLES = 8
_MOST_CUTS = 8
_COMMON = range(0x4E00, 0x9FB0)
"""The basic block; rarer characters are nobody's search words."""


@lru_cache(maxsize=1)
def _readings() -> dict[str, frozenset[str]]:
    """Return the toneless readings of each character."""
    # The phrase table (30 MB in memory) is not needed for single characters.
    os.environ.setdefault("PYPINYIN_NO_PHRASES", "true")
    from pypinyin.pinyin_dict import pinyin_dict

    return {
        chr(code): frozenset(_toneless(reading) for reading in readings.split(","))
        for code, readings in pinyin_dict.items()
        if code in _COMMON
    }


def _toneless(reading: str) -> str:
    plain = unicodedata.normalize("NFD", reading.replace("ü", "v").replace("ǚ", "v"))
    plain = plain.replace("ǘ", "v").replace("ǜ", "v").replace("ǖ", "v")
    return "".join(char for char in plain if char.isascii() and char.isalpha())


@lru_cache(maxsize=1)
def _chars() -> dict[str, tuple[str, ...]]:
    """Return the characters of each syllable."""
    found: dict[str, list[str]] = defaultdict(list)
    for char, readings in _readings().items():
        for reading in readings:
            if reading:
                found[reading].append(char)
    return {reading: tuple(chars) for reading, chars in found.items()}


def cuts(word: str) -> list[tuple[str, ...]]:
    """Return the ways to cut a Latin word into two or more syllables, longest syllables first."""
    syllables = _chars()
    longest = max(map(len, syllables))
    found: list[tuple[str, ...]] = []

    def cut(rest: str, before: tuple[str, ...]) -> None:
        if len(found) >= _MOST_CUTS or len(before) > _MOST_SYLLABLES:
            return
        if not rest:
            if len(before) > 1:
                found.append(before)
            return
        for length in range(min(longest, len(rest)), 0, -1):
            if rest[:length] in syllables:
                cut(rest[length:], (*before, rest[:length]))

    if word.isascii() and word.isalpha():
        cut(word, ())
    return found


def is_syllable(word: str) -> bool:
    """Whether a Latin word is one syllable of pinyin."""
    return word in _chars()


def pairs(first: str, second: str) -> Iterator[str]:
    """Yield every bigram whose characters are read ``first`` and ``second``."""
    chars = _chars()
    for a, b in itertools.product(chars.get(first, ()), chars.get(second, ())):
        yield a + b


def initials(bigram: str) -> set[str]:
    """Return the first letters a bigram can be typed by, e.g. ``ja`` for 教案."""
    readings = _readings()
    sides = [{reading[:1] for reading in readings.get(char, ())} for char in bigram]
    return {"".join(letters) for letters in itertools.product(*sides)} if all(sides) else set()


def is_bigram(term: str) -> bool:
    """Whether an index term is two Chinese characters."""
    return len(term) == 2 and is_han(term[0]) and is_han(term[1])
