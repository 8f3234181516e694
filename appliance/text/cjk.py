"""Search terms for mixed Chinese and English text.

Text and query are folded the same way (NFKC, case, traditional to simplified), then cut:

* a run of two or more Han or kana characters gives its bigrams; a single one gives itself;
* a Latin or digit run is one term, its English plural and possessive ``s`` taken off;
* a code such as ``GB/T 7714-2015`` or ``INV-2024-001`` is one whole term besides its parts, so that
  the exact code ranks first, and so are its beginnings (``GB/T 7714``), which people ask for;
* a single Han character of a *query* is looked up as the first or second half of bigrams
  (``Store.terms_with``), which is why the index needs no unigrams.

Measured in the project's retrieval notes: bigrams reach the recall of a word segmenter on CMRC2018
and need no dictionary in memory.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

import opencc

from appliance.text.lang import is_han

TERMS_VERSION = f"2 opencc-{opencc.__version__} unicode-{unicodedata.unidata_version}"
"""Names everything that decides which terms a text gives; when it changes the index is rebuilt.

The index deletes a passage by its terms, so terms made by another opencc or another Unicode table
would damage it silently. Raise the number when the rules below change.
"""

_CODE = re.compile(
    r"(?<![a-z\d])(?:"
    r"[a-z]{1,6}(?:/[a-z]{1,3})? \d[\da-z]*(?:[-_./:]\d[\da-z]*)*"  # GB/T 7714-2015, ISO 9001
    r"|[a-z\d]+(?:[-_./][a-z\d]+)+"  # INV-2024-001, RB-310-16G
    r")"
)
_SPACED = re.compile(r"(?P<letters>[a-z]+) (?P<rest>.+)")
_IDENTIFIER = re.compile(r"[a-z]+(?:/[a-z]{1,3})? ?[\da-z]*(?:[-_][\da-z]+)*")
_NOT_A_CODE = frozenset({"post", "pre", "mid", "non", "anti"})
_RUN = re.compile(r"[a-z\d]+(?:'[a-z]+)?|[^\W\da-z_]+", re.UNICODE)

STOP_EN = frozenset(
    """
    a an and are as at be been but by can could did do does for from had has have he her his
    how i if in into is it its me more most my no not of on or our she should so some such
    than that the their them then there these they this those to too up us was we were what
    when where which who whom whose why will with would you your about after all also any before
    between both each few many much dont doesnt didnt isnt cant wont
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
def _simplifier() -> opencc.OpenCC:
    return opencc.OpenCC("t2s")


def fold(text: str) -> str:
    """Return ``text`` with width, case and traditional forms folded."""
    return str(_simplifier().convert(unicodedata.normalize("NFKC", text).casefold()))


def _is_cjk(char: str) -> bool:
    return is_han(char) or "\u3040" <= char <= "\u30ff" or "\uac00" <= char <= "\ud7af"


@dataclass(frozen=True)
class Code:
    """A code in a text.

    Attributes:
        term: the whole code as an index term: separators removed, ``code`` put before.
        plain: the same without the mark, as the text would give it when written in one.
        parts: the terms of its parts.
        beginnings: terms of its shorter forms, e.g. ``GB/T 7714`` of ``GB/T 7714-2015``.
        is_identifier: it names one certain thing, so a text without it does not speak of it; dates,
            ranges, versions and ``June 2024`` do not.
    """

    term: str
    plain: str
    parts: tuple[str, ...]
    beginnings: tuple[str, ...]
    is_identifier: bool


def codes(text: str) -> list[Code]:
    """Return the codes of a text in order."""
    return _codes(fold(text))


def _codes(folded: str) -> list[Code]:
    found: list[Code] = []
    for match in _CODE.finditer(folded):
        raw = match.group()
        squeezed = _squeeze(raw)
        if len(squeezed) < 4 or not any(c.isdigit() for c in squeezed):
            continue
        spaced = _SPACED.fullmatch(raw)
        if spaced is not None and (
            spaced["letters"] in STOP_EN
            or len(spaced["letters"]) == 1
            or (spaced["rest"].isalnum() and len(spaced["rest"]) < 4)
        ):
            continue  # "in 2024", "page 3": words before a number
        beginnings = []
        for at in (m.start() for m in re.finditer(r"[-_./: ]", raw)):
            begin = _squeeze(raw[:at])
            if len(begin) >= 4 and begin.isalnum() and not begin.isdigit() and not begin.isalpha():
                beginnings.append(code_term(begin))
        found.append(
            Code(
                term=code_term(squeezed),
                plain=squeezed,
                parts=tuple(_singular(run) for run in _RUN.findall(raw)),
                beginnings=tuple(beginnings),
                is_identifier=_is_identifier(raw, squeezed),
            )
        )
    return found


_CODE_MARK = "code"


def _squeeze(raw: str) -> str:
    return re.sub(r"[^a-z\d]", "", raw)


def _is_identifier(raw: str, squeezed: str) -> bool:
    letters = re.match(r"[a-z]*", raw)
    return (
        _IDENTIFIER.fullmatch(raw) is not None
        and bool(re.search(r"[-_/]", raw))
        and sum(c.isdigit() for c in squeezed) >= 3
        and (letters is None or letters.group() not in _NOT_A_CODE)
    )


def code_term(plain: str) -> str:
    """Return the index term of a code given without separators."""
    return _CODE_MARK + plain


def is_code_term(term: str) -> bool:
    """Whether an index term stands for a whole code or its beginning."""
    return term.startswith(_CODE_MARK) and any(c.isdigit() for c in term)


def index_terms(text: str) -> list[str]:
    """Return the terms of ``text`` in order, repeats included."""
    folded = fold(text)
    terms: list[str] = []
    for match in _RUN.finditer(folded):
        run = match.group()
        if run[0].isascii():
            terms.append(_singular(run))
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
    for code in _codes(folded):
        terms.extend((*code.beginnings, code.term))
    return terms


def _singular(word: str) -> str:
    """Take off ``'s`` and the plural (D. Harman's S-stemmer, 1991); other apostrophes join."""
    word = word.removesuffix("'s").replace("'", "")
    if len(word) < 4 or not word.isalpha() or word in STOP_EN:
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith(("xes", "sses", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("us", "ss", "is")):
        return word[:-1]
    return word


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query worth looking up; all of them if all are stop words."""
    terms = list(dict.fromkeys(index_terms(text)))
    kept = [term for term in terms if term not in STOP_EN and term not in STOP_ZH]
    return kept or terms
