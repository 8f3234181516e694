"""Terms: what a person types finds what a document says, whatever the width, case or script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.text import cjk
from appliance.text.lang import detect_lang


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("图书馆", ["图书", "书馆"]),
        ("好", ["好"]),
        ("gen-itgc后", ["gen", "itgc", "后"]),
        ("ＡＢＣ１２３", ["abc123"]),
        ("don't", ["dont"]),
        ("The teacher's libraries", ["the", "teacher", "library"]),
        ("boxes, glasses, glass, gas", ["box", "glass", "glass", "gas"]),
        ("圖書館", ["图书", "书馆"]),
        ("", []),
        ("！？，。", []),
    ],
)
def test_text_gives_terms(text: str, wanted: list[str]) -> None:
    assert cjk.index_terms(text) == wanted


@pytest.mark.parametrize(
    ("code", "also"),
    [
        ("GB/T 7714-2015", "gb/t 7714-2015"),
        ("INV-2024-001", "ＩＮＶ-2024-001"),
        ("RB-310-16G", "rb-310-16g"),
    ],
)
def test_code_is_one_term_besides_its_parts(code: str, also: str) -> None:
    (whole,) = cjk.codes(code)

    assert whole.is_identifier
    assert whole.term in cjk.index_terms(f"见 {also}。")


def test_beginning_of_a_code_is_a_term_too() -> None:
    (asked,) = cjk.codes("GB/T 7714")

    assert asked.term in cjk.index_terms("按照 GB/T 7714-2015 著录")
    assert asked.term not in cjk.index_terms("按照 GB/T 7715-2015 著录")


@pytest.mark.parametrize(
    "text", ["RiverBoard 310", "3.14", "open 9", "page 3", "in 2024", "wi-fi", "e.g. this/that"]
)
def test_words_and_numbers_are_no_code(text: str) -> None:
    assert cjk.codes(text) == []


@pytest.mark.parametrize("text", ["2024-05-01", "10-20kg", "2.5GB", "June 2024", "post-2015"])
def test_dates_ranges_and_measures_name_no_certain_thing(text: str) -> None:
    assert [code for code in cjk.codes(text) if code.is_identifier] == []


def test_query_of_stop_words_alone_still_looks_for_them() -> None:
    assert cjk.query_terms("what is the") == ["what", "is", "the"]
    assert cjk.query_terms("what is the fan") == ["fan"]


@given(st.text(max_size=200))
def test_terms_of_any_text_are_plain_words(text: str) -> None:
    for term in cjk.index_terms(text):
        assert term
        assert '"' not in term
        assert not any(char.isspace() for char in term)


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("图书馆几点关门？", "zh"),
        ("Word 怎么用", "zh"),
        ("What does 教案 mean in English?", "en"),
        ("hello", "en"),
        ("65 W", "en"),
        ("", "en"),
    ],
)
def test_language_of_a_question(text: str, lang: str) -> None:
    assert detect_lang(text) == lang
