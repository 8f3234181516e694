"""Typing by pinyin: 500 common words, 100 sentences that visitors ask, and the odd cases.

tests/text/pinyin.txt says where its words come from. What it measures is printed by
``pytest -s tests/text/test_ime.py``; latency is measured by bench/pinyin.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.text import ime

ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "pinyin.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
WORDS, SENTENCES = ROWS[:500], ROWS[500:]


def texts(query: str, n_wanted: int = 5, *, is_fuzzy: bool = False) -> list[str]:
    return [found.text for found in ime.candidates(query, n_wanted, is_fuzzy=is_fuzzy)]


@pytest.mark.slow
def test_common_words_are_among_the_first_five() -> None:
    missed = [word for word, letters in WORDS if word not in texts(letters)]
    print(f"words among the first 5: {len(WORDS) - len(missed)} of {len(WORDS)}")
    assert len(WORDS) == 500
    assert len(missed) <= 5, missed


@pytest.mark.slow
def test_most_sentences_come_first() -> None:
    missed = [text for text, letters in SENTENCES if texts(letters, 1) != [text]]
    print(f"sentences first: {len(SENTENCES) - len(missed)} of {len(SENTENCES)}")
    assert len(SENTENCES) == 100
    assert len(missed) <= 38, missed


@pytest.mark.parametrize(
    ("query", "first"),
    [("xian", "先"), ("xi'an", "西安"), ("tsg", "图书馆"), ("tushug", "图书馆"), ("lvse", "绿色")],
)
def test_first_candidate(query: str, first: str) -> None:
    assert texts(query)[0] == first


def test_fuzzy_initials() -> None:
    assert "中国" not in texts("zongguo")
    assert texts("zongguo", is_fuzzy=True)[0] == "中国"
    assert "老师" in texts("naosi", is_fuzzy=True)


def test_a_part_says_how_much_it_stands_for() -> None:
    found = {each.text: each.length for each in ime.candidates("xi'anqu", 50)}
    assert found["西"] == len("xi'")
    assert found["西安"] == len("xi'an")


@given(st.text("abghinostuvzx'", max_size=70))
def test_anything_typed_gives_candidates_that_fit(query: str) -> None:
    for found in ime.candidates(query, 9):
        assert found.text
        assert 0 < found.length <= len(query)
