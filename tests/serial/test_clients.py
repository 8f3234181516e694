"""The Python client and the C++ header against the real daemon over a pty."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.client import RemoteError, SerialClient
from tests.box import Box
from tests.serial.line import FarEnd
from tests.starters import E5, SMOLLM, starter

HERE = Path(__file__).parent
HEADERS = HERE.parents[1] / "assets" / "clients"
QUESTION = "When does the library close on weekends?"
DOCUMENT = "Library rules\n\nOn weekends the library closes at five in the afternoon.\n"
CONFIG = "models: {{generation: smollm2-135m-instruct}}\nserial: {{ports: [{port}]}}\n"

pytestmark = [pytest.mark.model, pytest.mark.slow]


class Cable:
    """Carries bytes between the daemon's line and a second pty, whose path a program opens."""

    def __init__(self, far: FarEnd) -> None:
        self._far = far
        self._fd, near = os.openpty()
        tty.setraw(near)
        self.path = os.ttyname(near)
        self._near = near
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="cable")

    def __enter__(self) -> Cable:
        self._far.wait_open()
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._done.set()
        self._thread.join()
        os.close(self._fd)
        os.close(self._near)

    def _carry(self) -> None:
        while not self._done.is_set():
            ready, _, _ = select.select([self._fd, self._far.fd], [], [], 0.05)
            if self._fd in ready:
                self._far.send(os.read(self._fd, 4096))
            if self._far.fd in ready:
                os.write(self._fd, self._far.read(0.0))
                self._far.seen = b""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cable]:
    starter(SMOLLM)
    starter(E5)
    folder = tmp_path_factory.mktemp("serial")
    far = FarEnd(folder / "ttyTEST")
    far.is_open = True
    with Box(folder / "box", config=CONFIG.format(port=far.path)) as box:
        (box.inbox / "library.txt").write_text(DOCUMENT, encoding="utf-8")
        box.wait()
        box.wait_model()
        with Cable(far) as cable:
            yield cable
    far.unplug()


def test_python_client_asks_streams_cancels_searches_and_embeds(line: Cable) -> None:
    with SerialClient(line.path) as box:
        assert box.hello()["protocol"] == 1
        found = list(box.ask(QUESTION))
        assert found[0][0] == "evidence"
        assert found[-1][1]["citations"][0]["path"] == "library.txt"
        assert "".join(frame["text"] for kind, frame in found if kind == "delta")
        ((kind, whole),) = list(box.ask(QUESTION, stream=False))
        assert (kind, bool(whole["answer"])) == ("answer", True)
        answer = box.ask("Tell me everything you know about boats.", mode="open")
        kinds = []
        for kind, _frame in answer:
            kinds.append(kind)
            if kinds.count("delta") == 1 and kind == "delta":
                answer.stop()
        assert kinds[-1] == "cancelled"
        assert box.search("library")[0]["path"] == "library.txt"
        assert len(box.embed(["library"])[0]) == 4 * 384
        assert box.status()["documents"] == 1
        with pytest.raises(RemoteError) as refused:
            list(box.ask("x", mode="wild"))
        assert refused.value.code == "frame_field"


def test_header_asks_streams_cancels_and_searches(line: Cable, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    program = tmp_path / "client"
    options = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    source = str(HERE / "header_client.cpp")
    subprocess.run(
        [compiler, *options, f"-I{HEADERS}", source, "-o", str(program)], check=True, timeout=120
    )

    ran = subprocess.run(
        [program, line.path, QUESTION], capture_output=True, text=True, timeout=300, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    for name, wanted in {
        "stream": ".+",
        "whole": ".+",
        "cancelled": "something",
        "search": "library.txt",
        "lost": "0",
    }.items():
        assert re.search(f"^{name} {wanted}", ran.stdout, re.M), (name, ran.stdout)
