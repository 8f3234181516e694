"""What a person sees: a real terminal emulator (tmux) on the wire, its screen captured."""

from __future__ import annotations

import os
import secrets
import select
import shutil
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.config import SerialConfig
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine
from tests.serial.line import FarEnd

WIRE = Path(__file__).with_name("wire.py")
PROMPT = ">>> "

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.slow,
]


class Person:
    """Somebody at a tmux pane that shows the line."""

    def __init__(
        self, path: str, cols: int, rows: int, environ: dict[str, str], *options: str
    ) -> None:
        self._server = f"appliance-{secrets.token_hex(4)}"
        self._environ = environ
        self._tmux(
            *("new-session", "-d", "-x", str(cols), "-y", str(rows)),
            *("--", sys.executable, str(WIRE), path, *options),
        )

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-L", self._server, "-f", "/dev/null", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=self._environ, timeout=20
        )
        return done.stdout

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, cols: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(cols), "-y", str(rows))

    def screen(self) -> list[str]:
        rows = [row.rstrip() for row in self._tmux("capture-pane", "-p").split("\n")]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def wait(self, wanted: str, timeout_s: float = 15.0) -> list[str]:
        """Return the screen once a row of it is (or contains, with "...") what is wanted."""
        deadline = time.monotonic() + timeout_s
        while True:
            rows = self.screen()
            is_there = (
                any(wanted.strip(".") in row for row in rows)
                if wanted.startswith("...")
                else wanted.rstrip() in rows
            )
            if is_there:
                return rows
            assert time.monotonic() < deadline, f"no {wanted!r} on:\n" + "\n".join(rows)
            time.sleep(0.05)

    def cursor(self) -> tuple[int, int]:
        found = self._tmux("display-message", "-p", "#{cursor_x} #{cursor_y}").split()
        return int(found[0]), int(found[1])

    def leave(self) -> None:
        subprocess.run(
            ["tmux", "-L", self._server, "kill-server"], check=False, capture_output=True
        )


@pytest.fixture
def person(
    make_inside: MakeInside,
    engine: ScriptedEngine,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[tuple[Person, Inside]]:
    options: tuple[str, ...] = getattr(request, "param", ())
    far = FarEnd(tmp_path / "ttyTEST")
    serial = SerialConfig(ports=(str(far.path),), language="en")
    inside = make_inside(engine, serial=serial)
    far.wait_open()
    fd, near = os.openpty()
    tty.setraw(near)
    done = threading.Event()

    def carry() -> None:
        while not done.is_set():
            ready, _, _ = select.select([fd, far.fd], [], [], 0.05)
            if fd in ready:
                os.write(far.fd, os.read(fd, 4096))
            if far.fd in ready:
                os.write(fd, os.read(far.fd, 4096))

    cable = threading.Thread(target=carry, name="cable")
    cable.start()
    environ = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    somebody = Person(os.ttyname(near), 40, 12, environ, *options)
    time.sleep(0.5)
    somebody.press("Enter")
    somebody.wait(PROMPT)
    yield somebody, inside
    somebody.leave()
    done.set()
    cable.join()
    os.close(fd)
    os.close(near)
    far.unplug()


def test_chinese_with_backspace_over_wide_characters(person: tuple[Person, Inside]) -> None:
    somebody, _ = person
    somebody.type("图书馆周末几点开")
    somebody.wait(">>> 图书馆周末几点开")
    somebody.press("BSpace")
    somebody.type("关门？")
    somebody.wait(">>> 图书馆周末几点关门？")
    assert somebody.cursor()[0] == len(PROMPT) + 2 * len("图书馆周末几点关门？")


def test_combining_marks_and_emoji(person: tuple[Person, Inside]) -> None:
    somebody, _ = person
    somebody.type("cafe\u0301 ok")
    somebody.wait(">>> cafe\u0301 ok")
    somebody.press("BSpace", "BSpace", "BSpace", "BSpace")
    somebody.wait(">>> caf")
    somebody.type("x👍y")
    somebody.wait(">>> cafx👍y")
    somebody.press("BSpace", "BSpace")
    somebody.wait(">>> cafx")


def test_cursor_moves_over_the_rows_of_a_wrapped_line(person: tuple[Person, Inside]) -> None:
    somebody, _ = person
    somebody.type("一二三四五六七八九十甲乙丙丁戊己庚辛壬癸子丑")
    rows = somebody.wait("壬癸子丑")
    assert rows[-2:] == [">>> 一二三四五六七八九十甲乙丙丁戊己庚辛", "壬癸子丑"]
    somebody.press("Home")
    somebody.type("零")
    rows = somebody.wait("辛壬癸子丑")
    assert rows[-2] == ">>> 零一二三四五六七八九十甲乙丙丁戊己庚"
    somebody.press("C-e", "BSpace", "BSpace", "C-a", "C-d")
    assert somebody.wait("壬癸")[-2] == ">>> 一二三四五六七八九十甲乙丙丁戊己庚辛"


def test_history_comes_back(person: tuple[Person, Inside]) -> None:
    somebody, _ = person
    for text in ("/verbose", "/strict on"):
        somebody.type(text)
        somebody.press("Enter")
        time.sleep(0.5)
    somebody.press("Up", "Up")
    somebody.wait(">>> /verbose")
    somebody.press("Down")
    somebody.wait(">>> /strict on")


def test_paste_of_five_kilobytes_is_one_question(person: tuple[Person, Inside]) -> None:
    somebody, inside = person
    somebody.type("/strict off")
    somebody.press("Enter")
    somebody.wait("...Open:")
    text = "第一行 first line of the text\n" * 160
    somebody.paste(text)
    somebody.wait("...first line of the text↵")
    somebody.press("Enter")
    somebody.wait("...好的。", 30)
    assert text.strip() in inside.engine.prompts[-1]


def test_stop_and_the_next_answer(person: tuple[Person, Inside]) -> None:
    somebody, inside = person
    inside.engine.token_delay_s = 0.02
    inside.engine.answers = ["word " * 400]
    somebody.type("/strict off")
    somebody.press("Enter")
    somebody.wait("...Open:")
    somebody.type("Tell me a long story please")
    somebody.press("Enter")
    somebody.wait("...word word")
    somebody.press("C-c")
    somebody.wait("(stopped)")
    assert somebody.wait(PROMPT)[-1] == PROMPT.rstrip()


def test_line_is_whole_after_a_resize_and_a_redraw(person: tuple[Person, Inside]) -> None:
    somebody, _ = person
    somebody.type("图书馆 weekend")
    somebody.wait(">>> 图书馆 weekend")
    somebody.resize(60, 20)
    somebody.press("C-l")
    deadline = time.monotonic() + 15
    while somebody.screen() != [">>> 图书馆 weekend"]:
        assert time.monotonic() < deadline, somebody.screen()
        time.sleep(0.05)
    somebody.type("!")
    somebody.wait(">>> 图书馆 weekend!")


@pytest.mark.parametrize("person", [("--mute",)], indirect=True)
def test_dumb_terminal(person: tuple[Person, Inside]) -> None:
    somebody, inside = person
    inside.put("图书馆.txt", "图书馆周末几点关门？周末下午五点关门。\n")
    inside.engine.answers = ["**下午五点**关门[1]。"]
    somebody.type("图书馆周末几点关门x")
    somebody.wait(">>> 图书馆周末几点关门x")
    somebody.press("BSpace", "BSpace")
    somebody.wait(">>> 图书馆周末几点关")
    somebody.type("门？")
    somebody.press("Enter")
    rows = somebody.wait("...下午五点关门[1]。")
    assert not any("**" in row or "\x1b" in row for row in rows)


@pytest.mark.parametrize("person", [("--gb18030",)], indirect=True)
def test_terminal_of_gb18030(person: tuple[Person, Inside]) -> None:
    somebody, inside = person
    inside.put("图书馆.txt", "图书馆周末几点关门？周末下午五点关门。\n")
    inside.engine.answers = ["下午五点关门[1]。"]
    somebody.type("图书馆周末几点开")
    somebody.wait(">>> 图书馆周末几点开")
    somebody.press("BSpace")
    somebody.type("关门？")
    somebody.wait(">>> 图书馆周末几点关门？")
    somebody.press("Enter")
    somebody.wait("...下午五点关门[1]。")
    assert any("图书馆.txt" in row for row in somebody.wait(PROMPT))
