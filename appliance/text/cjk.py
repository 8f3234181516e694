"""Search terms for mixed Chinese and English text.

Text and query are folded the same way (NFKC, case, traditional to simplified), then cut:

* a run of two or more Han or kana characters gives its bigrams; a single one gives itself;
* a Latin or digit run is one term; a code such as ``GB/T 7714-2015`` or ``INV-2024-001`` is
  one whole term besides its parts, so that the exact code ranks first;
* a single Han character of a *query* is looked up as the first or second half of bigrams
  (``prefix_terms``), which is why the index needs no unigrams.

Measured in the project's retrieval notes: bigrams reach the recall of a word segmenter on CMRC2018
and need no dictionary in memory.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from opencc import OpenCC

from appliance.text.lang import is_han

TERMS_VERSION = 1
"""Raise when the same text gives other terms than before: the index is then rebuilt."""

_CODE = re.compile(
    r"(?<![a-z\d])[a-z]{1,6}(?:/[a-z]{1,3})?[ _-]?\d[\da-z]*"
    r"(?:[-_./:]\d[\da-z]*)*(?:[-_./][\da-z]+)*"
    r"|[a-z\d]+(?:[-_./][a-z\d]+)+"
)
_RUN = re.compile(r"[a-z\d]+(?:'[a-z]+)?|[^\W\da-z_]+", re.UNICODE)

STOP_EN = frozenset(
    """
    a an and are as at be been but by can could did do does for from had has have he her his
    how i if in into is it its me more most my no not of on or our she should so some such
    than that the their them then there these they this those to too up us was we were what
    when where which who whom why will with would you your about after all also any before
    between both each few many much
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
STOP_ZH = frozenset(
    """
    什么 怎么 如何 哪些 哪个 哪里 哪儿 为何 为什 多少 是否 请问 可以 能否 是谁 几个
    的是 是什 有哪 有什
    么是 这个 那个 我们 你们 他们 一个 以及 或者 并且 因为 所以 如果 但是 就是 还是 不是 没有 关于
    """.split()  # noqa: SIM905 - a list of words reads best as words
)


@lru_cache(maxsize=1)
def _simplifier() -> OpenCC:
    return OpenCC("t2s")


def fold(text: str) -> str:
    """Return ``text`` with width, case and traditional forms folded."""
    return str(_simplifier().convert(unicodedata.normalize("NFKC", text).casefold()))


def _is_cjk(char: str) -> bool:
    return is_han(char) or "\u3040" <= char <= "\u30ff" or "\uac00" <= char <= "\ud7af"


def codes(folded: str) -> list[str]:
    """Return the whole codes of a folded text, separators removed, e.g. ``gbt77142015``."""
    found = []
    for match in _CODE.finditer(folded):
        code = match.group()
        squeezed = re.sub(r"[^a-z\d]", "", code)
        if squeezed != code and any(c.isdigit() for c in squeezed) and len(squeezed) >= 4:
            found.append("code" + squeezed)
    return found


def index_terms(text: str) -> list[str]:
    """Return the terms of ``text`` in order, repeats included."""
    folded = fold(text)
    terms: list[str] = []
    for match in _RUN.finditer(folded):
        run = match.group()
        if run[0].isascii():
            terms.append(run)
            continue
        start = 0
        for i in range(1, len(run) + 1):
            if i == len(run) or _is_cjk(run[i]) != _is_cjk(run[start]):
                piece = run[start:i]
                if _is_cjk(piece[0]) and len(piece) > 1:
                    terms.extend(piece[j : j + 2] for j in range(len(piece) - 1))
                else:
                    terms.append(piece)
                start = i
    terms.extend(codes(folded))
    return terms


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query worth looking up; all of them if all are stop words."""
    terms = list(dict.fromkeys(index_terms(text)))
    kept = [term for term in terms if term not in STOP_EN and term not in STOP_ZH]
    return kept or terms
