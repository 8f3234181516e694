from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.frontends.terminal.layout import clean, cut, pad, table, width, wrap


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("中文", 4),
        ("ｱ", 1),
        ("Ａ", 2),
        ("e\u0301", 1),
        ("a\u200bb", 2),
        ("", 0),
        ("，", 2),
    ],
)
def test_width_is_counted_in_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@given(st.text(), st.integers(2, 40))
def test_cut_never_exceeds_its_columns(text: str, columns: int) -> None:
    assert width(cut(text, columns)) <= columns or cut(text, columns) == text


@given(st.text())
def test_clean_leaves_no_control_character(text: str) -> None:
    assert all(char in "\n\t" or ord(char) >= 32 for char in clean(text))
    assert "\x7f" not in clean(text)
    assert "\x9b" not in clean(text)


def test_clean_leaves_no_mark_that_turns_a_name_around() -> None:
    assert clean("safe\u202egpj.exe\u2069") == "safe\ufffdgpj.exe\ufffd"
    # The joiner of an emoji family and the marks of right-to-left scripts are text.
    assert clean("👨\u200d👩\u200d👧 \u200f") == "👨\u200d👩\u200d👧 \u200f"


def test_clean_keeps_text_lines_and_tabs() -> None:
    assert clean("表\t头\r\n第二行 ✓") == "表\t头\n第二行 ✓"


def test_pad_fills_to_columns() -> None:
    assert pad("中", 4) == "中  "


def test_table_aligns_chinese_and_latin() -> None:
    assert table([["状态", "文件"], ["ok", "a.txt"]]) == ["状态  文件", "ok    a.txt"]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("图书馆周末几点关门", 8, ["图书馆周", "末几点关", "门"]),
        ("hold the RESET button", 10, ["hold the", "RESET", "button"]),
        ("按住 RESET 键", 8, ["按住", "RESET 键"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("  spaced\n out ", 20, ["spaced out"]),
        ("", 10, []),
    ],
)
def test_wrap_breaks_between_words_and_between_chinese(
    text: str, columns: int, expected: list[str]
) -> None:
    assert wrap(text, columns) == expected


@given(st.text(), st.integers(2, 40))
def test_wrap_loses_nothing_and_stays_inside(text: str, columns: int) -> None:
    lines = wrap(text, columns)

    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(width(line) <= columns for line in lines)
