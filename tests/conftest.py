"""Fixtures that are things: the daemon as a child process, and a box inside this process."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from appliance.client import Client
from appliance.config import Config, HttpConfig, InboxConfig
from appliance.system.clock import Clock
from tests.box import Box
from tests.doubles import ScriptedEngine
from tests.starters import E5, QWEN, starter

if TYPE_CHECKING:
    from appliance.daemon import Box as InnerBox

# A busy board or CI machine is slow now and then; that is no finding.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")

# A shell that starts the tests in the background has them ignore Ctrl-C, and children inherit that;
# the tests that press it need what a terminal gives.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """The real daemon with the starter models; mark tests that use it ``model``."""
    starter(QWEN)
    starter(E5)
    with Box(tmp_path / "box") as running:
        yield running


@pytest.fixture
def engine() -> ScriptedEngine:
    """An engine that says what the test wrote."""
    return ScriptedEngine(default="好的。")


@dataclasses.dataclass
class Inside:
    """A whole box in this process: real store, ingest, inbox and HTTP over a scripted engine."""

    box: InnerBox
    engine: ScriptedEngine
    client: Client

    @property
    def data(self) -> Path:
        return self.box.config.data

    def put(self, name: str, text: str) -> None:
        """Drop a document and wait until it is ready."""
        path = self.box.config.inbox_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.wait()

    def wait(self) -> None:
        """Wait until nothing is left to read."""
        from appliance.cli import run_command

        assert run_command(["kb", "wait", "--timeout", "60", "--data", str(self.data)]) == 0


MakeInside = Callable[..., Inside]


@pytest.fixture
def make_inside(tmp_path: Path) -> Iterator[MakeInside]:
    """Start boxes in this process; keyword arguments replace sections of the configuration."""
    from appliance import daemon

    with contextlib.ExitStack() as stack:

        def make(engine: ScriptedEngine, name: str = "inside", **sections: object) -> Inside:
            sections.setdefault("http", HttpConfig(port=0))
            sections.setdefault("inbox", InboxConfig(settle_s=0.0))
            config = Config(data=tmp_path / name, **sections)  # type: ignore[arg-type]
            found = stack.enter_context(daemon.open_box(config, Clock(), lambda _config: engine))
            daemon.announce(found)
            return Inside(found, engine, Client(found.http.url))

        yield make


@pytest.fixture
def inside(make_inside: MakeInside, engine: ScriptedEngine) -> Inside:
    """A box in this process with the default configuration and the scripted engine."""
    return make_inside(engine)
