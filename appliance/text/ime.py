"""Typing Chinese by pinyin: letters without tones in, candidates out, best first.

Words and how often they occur come from the word list of the ``jieba`` package (MIT), readings from
``pypinyin`` (MIT): its phrase table for words, its character table for the rest. Nothing is learned
from what is typed.

A query is a run of letters, ``'`` where a person cut it. A word is known by the letters of its
syllables in a row, so that ``xian`` is both 先 and 西安 and no cutting into syllables is needed.
The sentence is the most likely sequence of words, each as likely as it is frequent (Viterbi).
"""

from __future__ import annotations

import bisect
import gc
import importlib
import importlib.util
import math
import os
import sys
import threading
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from appliance.text.lang import is_han

MOST_LETTERS = 60
"""Longest query; more is a mistake or an attack."""

_MOST_WORDS = 90_000
"""Most frequent words that are kept; the rest of the list is rare names and terms."""

_LONGEST_WORD = 5
_LONGEST_KEY = 6 * _LONGEST_WORD
_MOST_COMPLETIONS = 400
_OTHER_READING = math.log(0.02)
"""How much less likely a character has another reading than its first."""

_PER_WORD = math.log(0.3)
"""What each further word of a sentence costs: longer words are likelier to be meant."""


_ASKED_WORDS = """
什么 怎么 怎样 怎么办 怎么样 怎么走 怎么用 为什么 什么时候 什么地方 哪里 哪儿
哪个 哪些 哪天 哪一天 哪年 哪位 哪种 在哪 在哪里 去哪里 几 几点 几天 几个 几本
几次 几楼 几号 几岁 几层 几月 几年 几人 几种 多少 多少钱 多久 多长 多大 多远
多高 多长时间 多少度 是不是 有没有 能不能 可不可以 要不要 会不会 吗 呢 请问 请
谁 谁的 我 我想 我要 我的 你 您 她 他 它 一次 一本 一份 一遍 一点 两点 三点
四点 五点 六点 七点 八点 九点 十点 点 想 能 可以 需要 要 去 来 在 到 给 把
用 吃 喝 借 还 买 卖 查 领 交 办 做 看 走 好 多 不 了 的 是 有 和 就
也 都 这 那 这里 这个 这种 这本 这台
"""
# Words of questions and of talk; a list counted in newspapers has them far too low.

_ASKED_AT_LEAST = -7.5
"""Least log-probability of those."""


_reading = threading.Lock()
"""Two first callers read the list once."""


@dataclass(frozen=True)
class Candidate:
    """A text and how many characters of the query it stands for."""

    text: str
    length: int


@dataclass(frozen=True)
class _Index:
    """Words by letters; each list is sorted, most frequent first."""

    words: dict[str, list[tuple[float, str]]]
    keys: list[str]
    initials: dict[str, list[tuple[float, str]]]
    folded: dict[str, list[str]]


def candidates(query: str, n_wanted: int, *, is_fuzzy: bool = False) -> list[Candidate]:
    """Return up to ``n_wanted`` candidates for a query of letters.

    Args:
        query: pinyin in small letters, ``v`` for ü, ``'`` between syllables where needed.
        n_wanted: how many.
        is_fuzzy: do not tell apart zh z, ch c, sh s, l n, and -ng -n.
    """
    query = query[:MOST_LETTERS]
    with _reading:
        index = _index()
    reader = _Reader(index, query, is_fuzzy=is_fuzzy)
    letters = reader.letters
    if not letters:
        return []
    found: dict[str, int] = {}
    whole = reader.exact(0, len(letters))
    sentence, n_read = reader.sentence()
    if n_read == len(letters) and not (whole and len(whole[0][1]) >= len(sentence)):
        found[sentence] = len(query)
    for _, word in whole:
        found.setdefault(word, len(query))
    for _, word in [*reader.by_initials()[:n_wanted], *reader.completions()[:n_wanted]]:
        found.setdefault(word, len(query))
    if n_read and n_read < len(letters):
        found.setdefault(sentence, _consumed(query, n_read))
    for length in range(min(len(letters) - 1, _LONGEST_KEY), 0, -1):
        for _, word in reader.exact(0, length):
            found.setdefault(word, _consumed(query, length))
    return [Candidate(text, length) for text, length in list(found.items())[:n_wanted]]


def _consumed(query: str, n_letters: int) -> int:
    """Return where in the query, marks included, ``n_letters`` letters end."""
    at = 0
    while n_letters:
        n_letters -= query[at] != "'"
        at += 1
    while at < len(query) and query[at] == "'":
        at += 1
    return at


class _Reader:
    """One query against the index; ``letters`` is the query without its marks."""

    def __init__(self, index: _Index, query: str, *, is_fuzzy: bool) -> None:
        self._index = index
        self._is_fuzzy = is_fuzzy
        self.letters = query.replace("'", "")
        self._marks = [len(query[:at].replace("'", "")) for at, c in enumerate(query) if c == "'"]

    def exact(self, start: int, end: int) -> list[tuple[float, str]]:
        """Return the words that are read as these letters."""
        letters = self.letters[start:end]
        found = self._index.words.get(letters, [])
        if self._is_fuzzy:
            keys = self._index.folded.get(_fold(letters), ())
            found = sorted({pair for key in keys for pair in self._index.words[key]}, reverse=True)
        n_marks = sum(1 for mark in self._marks if start < mark < end)
        # A mark cuts two syllables, so that xi'an is no single character.
        return [pair for pair in found if len(pair[1]) > n_marks] if n_marks else found

    def by_initials(self) -> list[tuple[float, str]]:
        """Return the words whose syllables begin with these letters."""
        return self._index.initials.get(self.letters, [])

    def completions(self) -> list[tuple[float, str]]:
        """Return the words that go on after these letters."""
        keys = self._index.keys
        low = bisect.bisect_right(keys, self.letters)
        high = min(bisect.bisect_left(keys, self.letters + "{"), low + _MOST_COMPLETIONS)
        found = [pair for key in keys[low:high] for pair in self._index.words[key][:2]]
        return sorted(found, reverse=True)

    def sentence(self) -> tuple[str, int]:
        """Return the most likely text for as many letters as can be read, and their number."""
        n_letters = len(self.letters)
        best: list[tuple[float, str] | None] = [(0.0, "")] + [None] * n_letters
        for start in range(n_letters):
            before = best[start]
            if before is None:
                continue
            for end in range(start + 1, min(n_letters, start + _LONGEST_KEY) + 1):
                words = self.exact(start, end)
                if not words:
                    continue
                score = before[0] + words[0][0] + _PER_WORD
                there = best[end]
                if there is None or score > there[0]:
                    best[end] = (score, before[1] + words[0][1])
        n_read = max(at for at, reached in enumerate(best) if reached is not None)
        reached = best[n_read]
        return (reached[1] if reached else "", n_read)


def _fold(letters: str) -> str:
    for pair, one in (("zh", "z"), ("ch", "c"), ("sh", "s"), ("ng", "n"), ("l", "n")):
        letters = letters.replace(pair, one)
    return letters


@lru_cache(maxsize=1)
def _index() -> _Index:
    frequency = _frequencies()
    total = sum(frequency.values())
    words: dict[str, list[tuple[float, str]]] = defaultdict(list)
    initials: dict[str, list[tuple[float, str]]] = defaultdict(list)
    chars, phrases = _tables()
    asked = set(_ASKED_WORDS.split())
    for word, count in frequency.items():
        likely = math.log(count / total)
        if word in asked:
            likely = max(likely, _ASKED_AT_LEAST)
        if len(word) == 1:
            for at, syllable in enumerate(chars.get(word, ())):
                words[syllable].append((likely + (_OTHER_READING if at else 0.0), word))
            continue
        syllables = phrases.get(word) or [chars[char][0] for char in word if char in chars]
        if len(syllables) == len(word):
            words["".join(syllables)].append((likely, word))
            initials["".join(syllable[0] for syllable in syllables)].append((likely, word))
    for found in (*words.values(), *initials.values()):
        found.sort(reverse=True)
    folded: dict[str, list[str]] = defaultdict(list)
    for key in words:
        folded[_fold(key)].append(key)
    return _Index(dict(words), sorted(words), dict(initials), dict(folded))


def _frequencies() -> dict[str, int]:
    """Return the words that are kept and their counts."""
    spec = importlib.util.find_spec("jieba")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("jieba", name="jieba")
    counts: dict[str, int] = {}
    with (Path(spec.origin).parent / "dict.txt").open(encoding="utf-8") as lines:
        for line in lines:
            word, count, _ = line.split(" ")
            if len(word) <= _LONGEST_WORD and all(map(is_han, word)):
                counts[word] = max(1, int(count))
    kept = sorted(counts, key=lambda word: -counts[word])[:_MOST_WORDS]
    return {word: counts.get(word, 1) for word in dict.fromkeys([*kept, *_ASKED_WORDS.split()])}


def _tables() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the toneless readings of characters, first is usual, and of phrases."""
    # Imported as a module of its own and let go: kept, the phrases would take 30 MB for good.
    os.environ.setdefault("PYPINYIN_NO_PHRASES", "true")
    from pypinyin.pinyin_dict import pinyin_dict

    chars = {
        chr(code): list(dict.fromkeys(map(_toneless, readings.split(","))))
        for code, readings in pinyin_dict.items()
    }
    table = importlib.import_module("pypinyin.phrases_dict").phrases_dict
    phrases = {
        phrase: [_toneless(syllable[0]) for syllable in syllables]
        for phrase, syllables in table.items()
        if len(phrase) <= _LONGEST_WORD
    }
    sys.modules.pop("pypinyin.phrases_dict", None)
    gc.collect()
    return chars, phrases


@lru_cache(maxsize=4096)
def _toneless(reading: str) -> str:
    plain = unicodedata.normalize("NFD", reading)
    plain = plain.replace("u\u0308", "v").replace("u\u0304\u0308", "v")
    return "".join(char for char in plain if char.isascii() and char.isalpha())
