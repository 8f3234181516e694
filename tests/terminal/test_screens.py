from __future__ import annotations

import pytest

from appliance.frontends.terminal import screens
from appliance.frontends.terminal.layout import width


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (5.9, "5 s", "5 秒"),
        (61, "1 min 1 s", "1 分 1 秒"),
        (3_661, "1 h 1 min", "1 小时 1 分"),
        (90_000, "1 d 1 h", "1 天 1 小时"),
    ],
)
def test_duration_names_its_two_largest_units(seconds: float, english: str, chinese: str) -> None:
    assert screens.duration(seconds, "en") == english
    assert screens.duration(seconds, "zh") == chinese


def citation(**fields: object) -> dict[str, object]:
    nothing = {"page": None, "heading": None, "line_from": None, "line_to": None}
    return {"n": 1, "path": "a.txt", "quote": "x", **nothing, **fields}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"page": 3, "heading": None}, "a.txt, p. 3"),
        ({"page": 3, "heading": "Warranty"}, "a.txt, p. 3, Warranty"),
        ({"heading": "一 > 二", "line_from": 2, "line_to": 4}, "a.txt, 一 > 二"),
        ({"line_from": 2, "line_to": 4}, "a.txt, lines 2-4"),
        ({"path": "a\x1b[2Jb.txt"}, "a\ufffd[2Jb.txt"),
        ({}, "a.txt"),
    ],
)
def test_place_is_the_page_else_the_heading_else_the_lines(
    fields: dict[str, object], expected: str
) -> None:
    assert screens.place(citation(**fields), "en") == expected


def test_long_quote_is_wrapped_and_cut() -> None:
    lines = screens.citations_screen([citation(quote="图书馆" * 100)], "en").splitlines()

    assert len(lines) == 2 + screens.QUOTE_LINES
    assert lines[-1].endswith("…”")
    assert max(map(width, lines)) <= 82


def test_short_quote_is_one_line() -> None:
    lines = screens.citations_screen([citation(quote="五点\n关门")], "en").splitlines()

    assert lines[2:] == ["      “五点 关门”"]


def test_progress_without_work_says_done() -> None:
    progress = {
        "n_files_waiting": 0,
        "n_files": 4,
        "n_passages_waiting": 0,
        "passages_per_s": 3.0,
        "eta_s": None,
        "current": None,
    }

    assert screens.progress_line(progress, "zh") == "全部读取完毕。"


def test_progress_names_rate_and_time_left() -> None:
    progress = {
        "n_files_waiting": 2,
        "n_files": 4,
        "n_passages_waiting": 90,
        "passages_per_s": 3.0,
        "eta_s": 30.0,
        "current": "手册.pdf",
    }

    assert screens.progress_line(progress, "en") == (
        "2 of 4 files to read, 90 passages to embed, 3.0 passages/s, about 30 s left, "
        "reading 手册.pdf"
    )
