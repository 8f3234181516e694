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
        ("don't", ["don't"]),
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
    whole = cjk.codes(cjk.fold(code))

    assert len(whole) == 1
    assert whole[0] in cjk.index_terms(f"见 {also}。")


@pytest.mark.parametrize("text", ["RiverBoard 310", "3.14", "open 9", "page 3"])
def test_name_with_a_number_is_no_code(text: str) -> None:
    folded = cjk.fold(text)

    assert [c for c in cjk.codes(folded) if len(c) > len("code") + 5] == []


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
