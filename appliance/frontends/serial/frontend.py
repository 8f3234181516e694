"""Serial lines: a thread per port that opens it again whenever it comes back.

Bytes go to the person's console, except a line that begins with ``{``, which is a machine's frame.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import serial

from appliance.client import Client
from appliance.core import Core
from appliance.errors import FrontendError
from appliance.frontends.serial.console import Console
from appliance.frontends.serial.frames import LONGEST_FRAME
from appliance.frontends.serial.machine import MachineSide
from appliance.frontends.serial.pacing import PacedWriter
from appliance.frontends.serial.port import DEFAULT_BAUD, PortSpec, open_port, parse_ports
from appliance.system.clock import Clock

_log = logging.getLogger(__name__)

RETRY_S = 0.5
"""How often a port that is not there is looked for."""

RESCUE_S = 2.0
"""After the first opening a port of another speed listens this long at the default one."""

_RESCUE_WORD = b"rescue"
_READ_BYTES = 4096
_BACKSPACES = (8, 127)


class SerialFrontend:
    """Every configured line.

    Args:
        core: what is in force, and where problems are reported.
        clock: time.
        url: of this daemon's HTTP front end, through which everything is asked.
        api_key: its key, None when it needs none.

    Raises:
        ConfigError: a port's name makes no sense.
    """

    def __init__(self, core: Core, clock: Clock, *, url: str, api_key: str | None) -> None:
        config = core.config.serial
        self._lines = [
            SerialLine(core, clock, spec, Client(url, api_key, config.language))
            for spec in parse_ports(config)
        ]

    def start(self) -> None:
        """Start a thread per port."""
        for line in self._lines:
            line.start()

    def stop(self) -> None:
        """Stop answers, close every port, join the threads."""
        for line in self._lines:
            line.ask_to_stop()
        for line in self._lines:
            line.join()


class Splitter:
    """Divides what comes in: lines that begin with a brace are frames, all else is a person's."""

    def __init__(self) -> None:
        self._frame: bytearray | None = None
        self._is_too_long = False
        self._at_start = True

    def feed(self, data: bytes, is_line_empty: Callable[[], bool]) -> Iterator[tuple[str, bytes]]:
        """Yield pieces in order: ``("frame", line)``, ``("long", b"")`` or ``("keys", bytes)``.

        Args:
            data: what came in.
            is_line_empty: says whether a person has typed nothing on this line, once every piece
                yielded so far was taken.
        """
        keys = bytearray()
        for value in data:
            if self._frame is not None:
                if value in (10, 13):
                    yield ("long", b"") if self._is_too_long else ("frame", bytes(self._frame))
                    self._frame, self._is_too_long, self._at_start = None, False, True
                else:
                    self._extend(value)
                continue
            if value == 123:
                if keys:
                    yield "keys", bytes(keys)
                    keys.clear()
                if self._at_start or is_line_empty():
                    self._frame = bytearray(b"{")
                    continue
            if value == 0:
                # A break condition or noise; no terminal sends it on purpose.
                continue
            self._at_start = value in (10, 13)
            keys.append(value)
        if keys:
            yield "keys", bytes(keys)

    def _extend(self, value: int) -> None:
        frame = self._frame
        if frame is None:
            raise AssertionError
        if value in _BACKSPACES:
            # A person who typed a brace takes it back.
            del frame[-1:]
            if not frame:
                self._frame, self._at_start = None, True
        elif self._is_too_long or len(frame) > LONGEST_FRAME:
            # Only the end of the line is looked for; nothing is kept.
            self._is_too_long = True
            del frame[1:]
        else:
            frame.append(value)


class SerialLine:
    """One port and both sides on it."""

    def __init__(self, core: Core, clock: Clock, spec: PortSpec, client: Client) -> None:
        self._core = core
        self._clock = clock
        self._spec = spec
        self._client = client
        self._stopping = threading.Event()
        self._was_open = False
        self._thread = threading.Thread(target=self._main, name=f"serial-{spec.name}")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Tell the thread to end."""
        self._stopping.set()

    def join(self) -> None:
        """Wait for the thread."""
        self._thread.join()

    def _main(self) -> None:
        problem = f"serial-{self._spec.name}"
        while not self._stopping.is_set():
            try:
                port = open_port(self._spec)
            except FrontendError as error:
                self._core.report(problem, error.code, error.facts)
                self._stopping.wait(RETRY_S)
                continue
            self._core.report(problem, None)
            _log.info("serial line %s open at %d baud", self._spec.path, self._spec.baud)
            with port:
                self._serve(port)
        self._core.report(problem, None)

    def _serve(self, port: serial.Serial) -> None:
        """Serve a line until it is lost or the box stops."""
        config = self._core.config.serial
        lost = threading.Event()
        baud = self._rescued_baud(port)
        writer = PacedWriter(self._spec.name, port.write, baud, lost.set)
        console = Console(
            self._client,
            config,
            writer.put,
            writer.drop,
            self._spec.name,
            str(self._core.config.inbox_dir),
            self._clock,
        )
        machine = MachineSide(
            self._client, config, console.frame, lambda: writer.is_behind, self._spec.name
        )
        splitter = Splitter()
        try:
            while not (self._stopping.is_set() or lost.is_set()):
                data = port.read(1)
                if data:
                    data += port.read(min(port.in_waiting, _READ_BYTES))
                elif not self._is_there(port):
                    break
                for kind, piece in splitter.feed(data, lambda: console.is_line_empty):
                    if kind == "keys":
                        console.feed(piece)
                    elif kind == "frame":
                        machine.take(piece)
                    else:
                        machine.take_too_long()
                console.tick()
        except (OSError, TypeError) as error:
            # pyserial raises TypeError when the descriptor went away between two calls.
            _log.info("serial line %s lost: %s", self._spec.path, error)
        finally:
            # The writer first: an answer that is being written must not wait for a dead line.
            if self._stopping.is_set() and not lost.is_set():
                writer.drop()
                writer.drain(1.0)
            writer.close()
            machine.reset()
            console.close()

    def _is_there(self, port: serial.Serial) -> bool:
        """Whether a silent port still exists; an adapter that was pulled out may stay silent."""
        try:
            port.in_waiting  # noqa: B018 - asks the driver
        except OSError:
            return False
        return not self._spec.path.startswith("/dev/tty") or Path(self._spec.path).exists()

    def _rescued_baud(self, port: serial.Serial) -> int:
        """Return the speed to use; the first time, the default one may be asked for.

        A box whose speed nobody remembers is still reachable: a line ``rescue`` at 115200 within
        two seconds of its start keeps that speed until the next start.
        """
        if self._was_open or self._spec.baud == DEFAULT_BAUD:
            return self._spec.baud
        self._was_open = True
        port.baudrate = DEFAULT_BAUD
        heard = b""
        ends = time.monotonic() + RESCUE_S
        while time.monotonic() < ends and not self._stopping.is_set():
            heard = (heard + port.read(64))[-64:]
            if _RESCUE_WORD in heard:
                _log.warning("serial line %s stays at %d baud", self._spec.path, DEFAULT_BAUD)
                return DEFAULT_BAUD
        port.baudrate = self._spec.baud
        return self._spec.baud
