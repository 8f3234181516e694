"""A line editor for any terminal at the far end of a wire: keys in, events and screen text out.

It edits by grapheme (what a person sees as one character) and erases by display width, so Chinese,
combining marks and emoji behave. It knows nothing of ports or threads.

On a capable terminal it emits only CR, LF, ``ESC[nA`` (up), ``ESC[nC`` (right) and ``ESC[J`` (erase
to the end of the screen), and breaks long lines itself, so that it never relies on how a terminal
wraps. A dumb one gets the text, and backspace, space, backspace to erase.

Keys, as in Emacs and in other prompts: Ctrl-A/E ends of the line, Ctrl-B/F and arrows, Alt-B/F
words, Ctrl-H/D and Delete, Ctrl-K/U/W cut, Ctrl-Y put back, Ctrl-T swap, Ctrl-P/N and arrows
earlier lines, Tab completes, Ctrl-L redraws, Ctrl-C interrupts, Ctrl-D on an empty line leaves.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wcwidth import iter_graphemes, wcswidth

MOST_HISTORY = 500
MOST_CHARS = 16_000
"""Longest line; more is refused with a bell."""

_NEWLINE_SHOWN = "↵"
_ESCAPE = re.compile(r"\x1b(?:\[([0-9;?]*)([@-~])|O([@-~])|([ -NP-Z\\^-~\x7f])|$|\[[0-9;?]*$|O$)")
_PASTE_END = "\x1b[201~"


@dataclass(frozen=True)
class Entered:
    """Enter was pressed; the line is empty again."""

    text: str


@dataclass(frozen=True)
class Interrupted:
    """Ctrl-C; the line was given up."""


@dataclass(frozen=True)
class Left:
    """Ctrl-D on an empty line."""


@dataclass(frozen=True)
class CursorAt:
    """The terminal answered where its cursor is, counted from 1."""

    row: int
    col: int


Event = Entered | Interrupted | Left | CursorAt
Complete = Callable[[str], Sequence[str]]


def graphemes(text: str) -> list[str]:
    """Return the characters as people see them."""
    return list(iter_graphemes(text))


def columns(grapheme: str) -> int:
    """Return the columns one grapheme takes on the screen; a line break shows as an arrow."""
    return 1 if grapheme == "\n" else max(wcswidth(grapheme), 0)


@dataclass(frozen=True)
class Layout:
    """A prompt and a line broken into screen rows, and where the cursor is (from 0)."""

    rows: tuple[str, ...]
    cursor_row: int
    cursor_col: int


def lay_out(prompt: str, text: str, cursor: int, cols: int) -> Layout:
    """Break ``prompt`` and ``text`` into rows of at most ``cols`` columns.

    Args:
        prompt: shown before the text.
        text: what is edited.
        cursor: its place in ``text``, in graphemes.
        cols: width of the screen, at least 2.
    """
    rows, row, used = [], "", 0
    at = (0, 0)
    shown = graphemes(prompt)
    everything = shown + graphemes(text)
    for number, piece in enumerate(everything):
        width = columns(piece)
        if used + width > cols:
            rows.append(row)
            row, used = "", 0
        if number == len(shown) + cursor:
            at = (len(rows), used)
        row += _NEWLINE_SHOWN if piece == "\n" else piece
        used += width
    if cursor >= len(everything) - len(shown):
        if used == cols:
            rows.append(row)
            row, used = "", 0
        at = (len(rows), used)
    return Layout((*rows, row), *at)


class LineEditor:
    """The line being edited.

    Args:
        prompt: shown before it.
        cols: width of the screen.
        rows: height of the screen; a longer line is shown in part.
        is_dumb: the terminal cannot move its cursor.
        history: earlier lines, the latest last; lines entered are added to it.
        complete: returns what the text before the cursor may become.
    """

    def __init__(
        self,
        prompt: str = ">>> ",
        *,
        cols: int = 80,
        rows: int = 24,
        is_dumb: bool = False,
        history: list[str] | None = None,
        complete: Complete = lambda _text: (),
    ) -> None:
        self.prompt = prompt
        self.cols, self.rows = max(cols, 2), max(rows, 2)
        self.is_dumb = is_dumb
        self._history = history if history is not None else []
        self._complete = complete
        self._parts: list[str] = []
        self._cursor = 0
        self._killed = ""
        self._past: int | None = None
        self._draft = ""
        self._held = ""
        self._paste: str | None = None
        self._last_cr = False
        self._out: list[str] = []
        self._is_shown = False
        self._shown_row = 0
        self._dumb_col = 0

    @property
    def text(self) -> str:
        """What has been typed."""
        return "".join(self._parts)

    @property
    def cursor(self) -> int:
        """Graphemes before the cursor."""
        return self._cursor

    def take_output(self) -> str:
        """Return what is to be written to the terminal since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    # The screen

    def show(self) -> None:
        """Draw prompt and line where the cursor is; the row must be empty."""
        self._is_shown = True
        self._shown_row = 0
        self._draw()

    def hide(self) -> None:
        """Take prompt and line off the screen, so that something else can be written."""
        if not self._is_shown:
            return
        self._is_shown = False
        self._out.append("\r\n" if self.is_dumb else self._home() + "\x1b[J")

    def resize(self, cols: int, rows: int) -> None:
        """Note another size of the screen."""
        self.cols, self.rows = max(cols, 2), max(rows, 2)
        if self._is_shown and not self.is_dumb:
            self._draw()

    def clear(self) -> None:
        """Forget what was typed and cut."""
        self._parts, self._cursor, self._killed, self._past = [], 0, "", None
        self._held, self._paste = "", None

    def _home(self) -> str:
        return (f"\x1b[{self._shown_row}A" if self._shown_row else "") + "\r"

    def _draw(self) -> None:
        if not self._is_shown:
            return
        if self.is_dumb:
            self._out.append(self.prompt + self._visible(self._parts))
            self._dumb_col = wcswidth(self.prompt) + sum(map(columns, self._parts))
            return
        layout = lay_out(self.prompt, self.text, self._cursor, self.cols)
        rows, row = layout.rows, layout.cursor_row
        if len(rows) > self.rows:
            # As much as fits, with the cursor's row in it.
            top = max(0, min(row - self.rows + 1, len(rows) - self.rows))
            top = min(top, row)
            rows, row = rows[top : top + self.rows], row - top
        out = self._home() + "\x1b[J" + "\r\n".join(rows)
        up = len(rows) - 1 - row
        out += (f"\x1b[{up}A" if up else "") + "\r"
        out += f"\x1b[{layout.cursor_col}C" if layout.cursor_col else ""
        self._shown_row = row
        self._out.append(out)

    @staticmethod
    def _visible(parts: Sequence[str]) -> str:
        return "".join(parts).replace("\n", _NEWLINE_SHOWN)

    # Keys

    def feed(self, text: str) -> list[Event]:
        """Take what was typed; returns what it amounts to. Half an escape sequence waits."""
        events: list[Event] = []
        text, self._held = self._held + text, ""
        while text:
            if self._paste is not None:
                text = self._feed_paste(text)
                continue
            if text[0] == "\x1b":
                found = _ESCAPE.match(text)
                if found is None:
                    text = text[1:]
                elif found.end() == len(text) and not (found[2] or found[3] or found[4]):
                    self._held = text[:32]
                    break
                else:
                    self._escape(found, events)
                    text = text[found.end() :]
                continue
            run = "".join(itertools.takewhile(_is_printable, text))
            if run:
                self._insert(run)
                self._last_cr = False
                text = text[len(run) :]
                continue
            self._control(text[0], events)
            text = text[1:]
        return events

    def _feed_paste(self, text: str) -> str:
        pasted = (self._paste or "") + text
        end = pasted.find(_PASTE_END)
        if end < 0:
            self._paste = pasted[: MOST_CHARS + len(_PASTE_END)]
            return ""
        self._paste = None
        kept = pasted[:end].replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
        self._insert("".join(c for c in kept.replace("\t", " ") if c == "\n" or _is_printable(c)))
        return pasted[end + len(_PASTE_END) :]

    def _control(self, key: str, events: list[Event]) -> None:
        was_cr, self._last_cr = self._last_cr, False
        if key == "\r" or (key == "\n" and not was_cr):
            self._last_cr = key == "\r"
            events.append(self._enter())
        elif key in "\x08\x7f":
            self._delete(self._cursor - 1)
        elif key == "\x03":
            self._end_of_line()
            self._out.append("^C\r\n")
            self._is_shown = False
            self.clear()
            events.append(Interrupted())
        elif key == "\x04":
            if self._parts:
                self._delete(self._cursor)
            else:
                events.append(Left())
        elif key == "\x01":
            self._move(0)
        elif key == "\x05":
            self._move(len(self._parts))
        elif key == "\x02":
            self._move(self._cursor - 1)
        elif key == "\x06":
            self._move(self._cursor + 1)
        elif key == "\x0b":
            self._cut(self._cursor, len(self._parts))
        elif key == "\x15":
            self._cut(0, self._cursor)
        elif key == "\x17":
            self._cut(self._word_left(), self._cursor)
        elif key == "\x19":
            self._insert(self._killed)
        elif key == "\x14":
            self._swap()
        elif key == "\x10":
            self._recall(-1)
        elif key == "\x0e":
            self._recall(+1)
        elif key == "\x0c":
            self._redraw()
        elif key == "\t":
            self._tab()

    def _escape(self, found: re.Match[str], events: list[Event]) -> None:
        arguments, final, keypad, meta = found[1], found[2] or found[3], found[3], found[4]
        self._last_cr = False
        if meta is not None:
            if meta == "b":
                self._move(self._word_left())
            elif meta == "f":
                self._move(self._word_right())
            elif meta in "\x7f\x08":
                self._cut(self._word_left(), self._cursor)
            elif meta == "d":
                self._cut(self._cursor, self._word_right())
            return
        by_word = bool(arguments) and arguments.endswith((";5", ";3"))
        if final == "D":
            self._move(self._word_left() if by_word else self._cursor - 1)
        elif final == "C":
            self._move(self._word_right() if by_word else self._cursor + 1)
        elif final == "A":
            self._recall(-1)
        elif final == "B":
            self._recall(+1)
        elif final == "H" or (final == "~" and arguments in ("1", "7")):
            self._move(0)
        elif final == "F" or (final == "~" and arguments in ("4", "8")):
            self._move(len(self._parts))
        elif final == "~" and arguments == "3":
            self._delete(self._cursor)
        elif final == "~" and arguments == "200":
            self._paste = ""
        elif final == "R" and not keypad and re.fullmatch(r"\d+;\d+", arguments or ""):
            row, col = map(int, arguments.split(";"))
            events.append(CursorAt(row, col))

    # Editing

    def _enter(self) -> Entered:
        text = self.text
        self._end_of_line()
        self._out.append("\r\n")
        self._is_shown = False
        if text.strip() and (not self._history or self._history[-1] != text):
            self._history.append(text)
            del self._history[:-MOST_HISTORY]
        killed = self._killed
        self.clear()
        self._killed = killed
        return Entered(text)

    def _end_of_line(self) -> None:
        """Put the screen's cursor behind the line, so that what follows begins below it."""
        if not self.is_dumb and self._cursor != len(self._parts):
            self._cursor = len(self._parts)
            self._draw()

    def _insert(self, text: str) -> None:
        if not text:
            return
        if len(self.text) + len(text) > MOST_CHARS:
            self._out.append("\a")
            return
        at_end = self._cursor == len(self._parts)
        before = "".join(self._parts[: self._cursor])
        after = "".join(self._parts[self._cursor :])
        old = len(self._parts)
        # What is typed may join its neighbours: a combining mark, half an emoji.
        self._parts = graphemes(before + text + after)
        self._cursor = len(graphemes(before + text)) if after else len(self._parts)
        self._cursor = min(self._cursor, len(self._parts))
        new = self._parts[old:]
        joined = len(self._parts) - old != len(graphemes(text)) or "".join(new) != text
        if at_end and not joined and self._fits(new):
            self._out.append(self._visible(new))
            self._dumb_col += sum(map(columns, new))
        elif self.is_dumb:
            self._again()
        else:
            self._draw()

    def _fits(self, new: Sequence[str]) -> bool:
        """Whether new text at the end stays in the cursor's row, so that it is simply written."""
        if not self._is_shown:
            return False
        if self.is_dumb:
            return True
        parts = self._parts[: len(self._parts) - len(new)]
        before = lay_out(self.prompt, "".join(parts), len(parts), self.cols)
        return before.cursor_col + sum(map(columns, new)) < self.cols

    def _again(self) -> None:
        """Draw a dumb terminal's line anew, below."""
        if self._is_shown:
            self._out.append("\r\n")
            self._draw()

    def _delete(self, at: int) -> None:
        if not 0 <= at < len(self._parts):
            return
        gone = self._parts.pop(at)
        at_end = at == len(self._parts)
        self._cursor = at
        self._regroup()
        if not self.is_dumb:
            self._draw()
            return
        width = columns(gone)
        if at_end and self._is_shown and self._dumb_col % self.cols >= width > 0:
            self._out.append("\b" * width + " " * width + "\b" * width)
            self._dumb_col -= width
        else:
            self._again()

    def _cut(self, start: int, end: int) -> None:
        if start >= end:
            return
        self._killed = "".join(self._parts[start:end])
        del self._parts[start:end]
        self._cursor = start
        self._regroup()
        self._again() if self.is_dumb else self._draw()

    def _regroup(self) -> None:
        """Form graphemes anew after something between two of them went away."""
        before = "".join(self._parts[: self._cursor])
        self._parts = graphemes(self.text)
        self._cursor = min(len(graphemes(before)), len(self._parts))

    def _swap(self) -> None:
        at = min(self._cursor, len(self._parts) - 1)
        if at < 1 or self.is_dumb:
            return
        self._parts[at - 1], self._parts[at] = self._parts[at], self._parts[at - 1]
        self._cursor = at + 1
        self._regroup()
        self._draw()

    def _move(self, to: int) -> None:
        to = max(0, min(to, len(self._parts)))
        if to != self._cursor and not self.is_dumb:
            self._cursor = to
            self._draw()

    def _word_left(self) -> int:
        at = self._cursor
        while at > 0 and not _is_word(self._parts[at - 1]):
            at -= 1
        if at > 0 and columns(self._parts[at - 1]) == 2:
            return at - 1
        while at > 0 and _is_word(self._parts[at - 1]) and columns(self._parts[at - 1]) < 2:
            at -= 1
        return at

    def _word_right(self) -> int:
        at, end = self._cursor, len(self._parts)
        while at < end and not _is_word(self._parts[at]):
            at += 1
        if at < end and columns(self._parts[at]) == 2:
            return at + 1
        while at < end and _is_word(self._parts[at]) and columns(self._parts[at]) < 2:
            at += 1
        return at

    def _recall(self, step: int) -> None:
        if not self._history or self.is_dumb:
            return
        here = len(self._history) if self._past is None else self._past
        wanted = here + step
        if not 0 <= wanted <= len(self._history):
            return
        if self._past is None:
            self._draft = self.text
        self._past = wanted if wanted < len(self._history) else None
        text = self._draft if self._past is None else self._history[wanted]
        self._parts = graphemes(text)
        self._cursor = len(self._parts)
        self._draw()

    def _redraw(self) -> None:
        if self.is_dumb:
            self._again()
        elif self._is_shown:
            self._out.append("\x1b[H\x1b[2J")
            self._shown_row = 0
            self._draw()

    def _tab(self) -> None:
        before = "".join(self._parts[: self._cursor])
        found = sorted(set(self._complete(before)))
        if not found:
            return
        common = _common_start(found)
        if len(common) > len(before) and common.startswith(before):
            self._insert(common[len(before) :])
        elif len(found) > 1 and self._is_shown:
            self.hide()
            self._out.append("  ".join(found) + "\r\n")
            self.show()


def _common_start(texts: Sequence[str]) -> str:
    least, most = min(texts), max(texts)
    for number, char in enumerate(least):
        if most[number] != char:
            return least[:number]
    return least


def _is_printable(char: str) -> bool:
    """Whether a key is text: no control character, surrogate or private code point."""
    return unicodedata.category(char) not in ("Cc", "Cs", "Cn", "Co", "Zl", "Zp")


def _is_word(grapheme: str) -> bool:
    return grapheme[0].isalnum() or grapheme[0] == "_"
