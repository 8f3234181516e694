from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.frontends.terminal.flow import BOLD, PLAIN, Flow
from appliance.frontends.terminal.layout import width


def shown(text: str, cols: int | None, *, is_plain: bool, size: int = 1) -> str:
    flow = Flow(cols, is_plain=is_plain)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return "".join(map(flow.answer, pieces)) + flow.flush()


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_marks_become_bold_text_or_go_away(size: int) -> None:
    text = "# Opening hours\n**Sunday** closed, 2*3 and ** open"
    bold = f"{BOLD}Opening hours{PLAIN}\n{BOLD}Sunday{PLAIN} closed, 2*3 and {BOLD} open{PLAIN}"
    assert shown(text, None, is_plain=False, size=size) == bold
    plain = "Opening hours\nSunday closed, 2*3 and  open"
    assert shown(text, None, is_plain=True, size=size) == plain


def test_lines_break_before_words_and_chinese_anywhere() -> None:
    assert shown("one three five", 9, is_plain=True) == "one three\nfive"
    assert shown("图书馆周末五点关门", 8, is_plain=True) == "图书馆周\n末五点关\n门"


@given(st.text("ab 图书*#\n"), st.integers(2, 20))
def test_no_line_is_wider_than_the_terminal_and_no_text_is_lost(text: str, cols: int) -> None:
    unwrapped = shown(text, None, is_plain=True)
    wrapped = shown(text, cols, is_plain=True)
    assert all(width(line.rstrip()) <= cols for line in wrapped.split("\n"))
    assert "".join(wrapped.split()) == "".join(unwrapped.split())


def test_line_comes_after_what_was_held_back_and_keeps_its_marks() -> None:
    flow = Flow(80, is_plain=False)
    begun = flow.answer("**word")
    assert begun + flow.line("") + flow.line("  [1] **notes**.txt") == (
        f"{BOLD}word{PLAIN}\n  [1] **notes**.txt\n"
    )
