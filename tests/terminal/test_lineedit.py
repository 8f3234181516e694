"""The line editor against an emulated terminal and a plain model of a line."""

from __future__ import annotations

import random
import unicodedata

import pyte
import pytest

from appliance.frontends.terminal.lineedit import (
    CursorAt,
    Entered,
    Interrupted,
    Left,
    LineEditor,
    graphemes,
    lay_out,
)

PROMPT = ">>> "


class Terminal:
    """A screen of ``cols`` by ``rows`` that an editor draws on."""

    def __init__(self, editor: LineEditor) -> None:
        self.editor = editor
        self.screen = pyte.Screen(editor.cols, editor.rows)
        self.stream = pyte.Stream(self.screen)
        editor.show()
        self.update()

    def type(self, text: str) -> list[object]:
        events = list(self.editor.feed(text))
        self.update()
        return events

    def update(self) -> None:
        self.stream.feed(self.editor.take_output())

    @property
    def rows(self) -> list[str]:
        return [unicodedata.normalize("NFC", row.rstrip()) for row in self.screen.display]

    def shown_rows(self) -> list[str]:
        """Rows from the editor's first one to the last that is not empty."""
        first = self.screen.cursor.y - self.editor._shown_row
        rows = self.rows[first:]
        while rows and not rows[-1]:
            rows.pop()
        return rows


def terminal(cols: int = 40, rows: int = 12, **options: object) -> Terminal:
    return Terminal(LineEditor(PROMPT, cols=cols, rows=rows, **options))  # type: ignore[arg-type]


def check(shown: Terminal) -> None:
    """The screen shows exactly what the editor holds, with the cursor in its place."""
    editor = shown.editor
    layout = lay_out(PROMPT, editor.text, editor.cursor, editor.cols)
    if len(layout.rows) <= editor.rows:
        # pyte composes a letter and its mark.
        wanted = [unicodedata.normalize("NFC", row.rstrip()) for row in layout.rows]
        while wanted and not wanted[-1]:
            wanted.pop()
        assert shown.shown_rows() == wanted
    assert shown.screen.cursor.x == layout.cursor_col


def test_chinese_is_erased_by_width() -> None:
    shown = terminal()
    shown.type("图书馆几点")
    shown.type("\x7f\x7f")
    assert shown.rows[0] == ">>> 图书馆"
    assert shown.screen.cursor.x == len(PROMPT) + 6
    check(shown)


@pytest.mark.parametrize(
    ("typed", "left"),
    [("e\u0301", ""), ("a👨‍👩‍👧‍👦", "a"), ("👍🏽", ""), ("x🇨🇳", "x"), ("กำ", "")],
)
def test_backspace_takes_what_a_person_sees_as_one_character(typed: str, left: str) -> None:
    editor = LineEditor(PROMPT)
    editor.feed(typed)
    editor.feed("\x7f")
    assert editor.text == left


def test_combining_mark_joins_the_letter_before_it() -> None:
    shown = terminal()
    shown.type("e")
    shown.type("\u0301x")
    assert shown.editor.text == "e\u0301x"
    assert shown.editor.cursor == 2
    assert shown.screen.cursor.x == len(PROMPT) + 2


def test_cursor_moves_in_a_wrapped_line() -> None:
    shown = terminal(cols=12)
    shown.type("一二三四五六七八九十")
    assert shown.rows[:3] == [">>> 一二三四", "五六七八九十", ""]
    shown.type("\x1b[D" * 8)
    check(shown)
    shown.type("\x7f")
    assert shown.editor.text == "一三四五六七八九十"
    check(shown)
    shown.type("\x01x\x05y")
    assert shown.editor.text == "x一三四五六七八九十y"
    check(shown)


def test_wide_character_does_not_hang_over_the_edge() -> None:
    assert lay_out("", "abc一", 4, 4).rows == ("abc", "一")


def test_words_are_moved_over_and_cut() -> None:
    shown = terminal()
    shown.type("one two three\x17")
    assert shown.editor.text == "one two "
    shown.type("\x1bb\x0b")
    assert shown.editor.text == "one "
    shown.type("\x19\x19")
    assert shown.editor.text == "one two two "
    shown.type("\x15")
    assert shown.editor.text == ""
    check(shown)


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_enter_is_one_enter_whatever_the_terminal_sends(end: str) -> None:
    shown = terminal()
    events = shown.type(f"a{end}")
    shown.editor.show()
    events += shown.type(f"b{end}")
    assert [event.text for event in events if isinstance(event, Entered)] == ["a", "b"]


def test_cr_and_lf_in_two_pieces_are_one_enter() -> None:
    shown = terminal()
    assert shown.type("a\r") == [Entered("a")]
    assert shown.type("\n") == []


def test_earlier_lines_come_back_and_the_draft_too() -> None:
    shown = terminal(history=["first", "second"])
    shown.type("draft")
    shown.type("\x1b[A")
    assert shown.editor.text == "second"
    shown.type("\x10")
    assert shown.editor.text == "first"
    shown.type("\x10")
    assert shown.editor.text == "first"
    shown.type("\x1b[B\x0e")
    assert shown.editor.text == "draft"
    check(shown)


def test_interrupt_gives_the_line_up_and_ctrl_d_leaves_only_an_empty_one() -> None:
    shown = terminal()
    assert shown.type("abc\x03") == [Interrupted()]
    shown.editor.show()
    shown.update()
    assert shown.type("ab\x02\x04") == []
    assert shown.editor.text == "a"
    assert shown.type("\x7f\x04") == [Left()]


def test_paste_keeps_its_line_breaks_and_enters_nothing() -> None:
    shown = terminal()
    text = "line one\r\nline two\rline three"
    assert shown.type("\x1b[200~" + text[:9]) == []
    assert shown.type(text[9:] + "\x1b[201~") == []
    assert shown.editor.text == "line one\nline two\nline three"
    check(shown)
    assert shown.type("\r") == [Entered("line one\nline two\nline three")]


def test_paste_of_five_kilobytes() -> None:
    shown = terminal(cols=80, rows=24)
    text = "图书馆周末下午五点关门。The library closes at five. " * 110
    shown.type("\x1b[200~" + text + "\x1b[201~")
    assert shown.editor.text == text
    shown.type("\x01")
    check(shown)
    shown.type("\x05!")
    assert shown.type("\r") == [Entered(text + "!")]


def test_overlong_line_is_refused_not_cut() -> None:
    shown = terminal()
    shown.type("x" * 15_999)
    shown.editor.take_output()
    shown.editor.feed("yz")
    assert shown.editor.text == "x" * 15_999
    assert shown.editor.take_output() == "\a"


def test_terminals_answer_about_its_cursor_is_no_text() -> None:
    shown = terminal()
    assert shown.type("a\x1b[24;8") == []
    assert shown.type("0Rb") == [CursorAt(24, 80)]
    assert shown.editor.text == "ab"


def test_completion_fills_in_what_is_common_and_lists_the_rest() -> None:
    names = ["/use school", "/use science"]
    shown = terminal(complete=lambda text: [n for n in names if n.startswith(text)])
    shown.type("/u\t")
    assert shown.editor.text == "/use sc"
    shown.type("\t")
    assert "/use school  /use science" in shown.rows
    shown.type("h\t")
    assert shown.editor.text == "/use school"
    check(shown)


def test_dumb_terminal_gets_no_escape_sequence() -> None:
    editor = LineEditor(PROMPT, is_dumb=True)
    editor.show()
    editor.feed("图书馆ab\x7f\x7f\x7f\x1b[D\x01\x0c\x15\r")
    output = editor.take_output()
    assert "\x1b" not in output
    assert "\b\b  \b\b" in output


def test_dumb_terminal_shows_what_is_held() -> None:
    editor = LineEditor(PROMPT, is_dumb=True, cols=40)
    shown = Terminal(editor)
    shown.type("图书馆x\x7f\x7f点")
    assert shown.rows[0] == ">>> 图书点"


def test_line_can_be_hidden_and_shown_again() -> None:
    shown = terminal(cols=12)
    shown.type("一二三四五六")
    shown.editor.hide()
    shown.update()
    assert set(shown.rows) == {""}
    shown.stream.feed("frame\r\n")
    shown.editor.show()
    shown.update()
    check(shown)
    assert shown.rows[0] == "frame"


def test_resize_draws_anew() -> None:
    shown = terminal(cols=40)
    shown.type("一二三四五六")
    shown.screen.resize(12, 12)
    shown.editor.hide()
    shown.editor.resize(12, 40)
    shown.editor.show()
    shown.update()
    assert shown.editor.text == "一二三四五六"


KEYS = [
    # No loose combining mark: pyte breaks the row before one in the last column.
    *"ab 一二é",
    "\x7f",
    "\x08",
    "\x01",
    "\x05",
    "\x02",
    "\x06",
    "\x04",
    "\x0b",
    "\x15",
    "\x17",
    "\x19",
    "\x14",
    "\x1b[D",
    "\x1b[C",
    "\x1b[A",
    "\x1b[B",
    "\x1b[3~",
    "\x1b[H",
    "\x1b[F",
    "\x1bb",
    "\x1bf",
    "\x1bd",
    "\x0c",
    "\x00",
    "\x1b[Z",
    "\x1b[200~p 图\n\x1b[201~",
]


class Model:
    """A line as a list of graphemes, edited in the plainest way."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.at = 0

    def key(self, key: str) -> None:
        if key in ("\x7f", "\x08"):
            if self.at:
                self.at -= 1
                del self.parts[self.at]
        elif key in ("\x04", "\x1b[3~"):
            del self.parts[self.at : self.at + 1]
        elif key in ("\x01", "\x1b[H"):
            self.at = 0
        elif key in ("\x05", "\x1b[F"):
            self.at = len(self.parts)
        elif key in ("\x02", "\x1b[D"):
            self.at = max(0, self.at - 1)
        elif key in ("\x06", "\x1b[C"):
            self.at = min(len(self.parts), self.at + 1)
        elif key == "\x0b":
            del self.parts[self.at :]
        elif key == "\x15":
            del self.parts[: self.at]
            self.at = 0
        else:
            self.parts[self.at : self.at] = graphemes(key)
            self.at += len(graphemes(key))


def test_random_keys_leave_screen_and_line_in_agreement() -> None:
    rng = random.Random(6)
    for _ in range(400):
        shown = terminal(cols=rng.choice([9, 12, 20, 40]), rows=rng.choice([4, 8, 16]))
        for _ in range(25):
            events = shown.type(rng.choice(KEYS))
            if any(isinstance(event, Left) for event in events):
                break
            check(shown)
            assert 0 <= shown.editor.cursor <= len(graphemes(shown.editor.text))


def test_ten_thousand_random_keys_follow_the_plain_model() -> None:
    rng = random.Random(7)
    plain = [*"ab 一二", "\x7f", "\x01", "\x05", "\x02", "\x06", "\x1b[D", "\x1b[C", "\x1b[3~"]
    plain += ["\x0b", "\x15"]
    for _ in range(100):
        editor, model = LineEditor(PROMPT, cols=20), Model()
        editor.show()
        for _ in range(100):
            key = rng.choice(plain)
            editor.feed(key)
            model.key(key)
            assert (editor.text, editor.cursor) == ("".join(model.parts), model.at)
