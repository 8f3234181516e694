"""One serial port: what the configuration calls it, opening it, and who else sits on it."""

from __future__ import annotations

import contextlib
import os
import re
import termios
from dataclasses import dataclass
from pathlib import Path

import serial

from appliance.config import SerialConfig
from appliance.errors import ConfigError, FrontendError

DEFAULT_BAUD = 115200
READ_S = 0.05
"""Longest wait for a byte; how soon a stop or a lost port is noticed."""

_SPEC = re.compile(r"(?P<name>[A-Za-z0-9_./-]+?)(?:@(?P<baud>\d+))?")


@dataclass(frozen=True)
class PortSpec:
    """A configured port."""

    path: str
    baud: int
    flow: str

    @property
    def name(self) -> str:
        """The name in ``/dev``."""
        return Path(self.path).name


def parse_ports(config: SerialConfig) -> list[PortSpec]:
    """Return the ports that are to be served.

    Raises:
        ConfigError: a name or speed makes no sense (code ``serial_bad_port``).
    """
    found = []
    for text in config.ports:
        said = _SPEC.fullmatch(text)
        baud = int(said["baud"]) if said and said["baud"] else config.baud
        if said is None or ".." in text or not 1200 <= baud <= 3_000_000:
            raise ConfigError("serial_bad_port", port=text)
        path = said["name"] if said["name"].startswith("/") else f"/dev/{said['name']}"
        found.append(PortSpec(path, baud, config.flow))
    return found


def open_port(spec: PortSpec, baud: int | None = None) -> serial.Serial:
    """Open a port for this process alone.

    Raises:
        FrontendError: ``serial_missing``, ``serial_denied``, ``serial_getty``, ``serial_busy`` or
            ``serial_failed``.
    """
    if not Path(spec.path).exists():
        raise FrontendError("serial_missing", port=spec.name)
    if has_getty(spec.name):
        raise FrontendError("serial_getty", port=spec.name)
    try:
        return serial.Serial(
            spec.path,
            baudrate=baud or spec.baud,
            timeout=READ_S,
            write_timeout=5.0,
            rtscts=spec.flow == "rtscts",
            xonxoff=spec.flow == "xonxoff",
            exclusive=True,
        )
    except (OSError, ValueError, termios.error) as error:
        # SerialException is an OSError; its number is lost in older versions, its text is not.
        text = str(error)
        if getattr(error, "errno", None) == 13 or "Permission denied" in text:
            raise FrontendError("serial_denied", port=spec.name) from error
        if "exclusively lock" in text or "Resource temporarily unavailable" in text:
            raise FrontendError("serial_busy", port=spec.name) from error
        raise FrontendError("serial_failed", port=spec.name, cause=text) from error


def has_getty(name: str, root: Path = Path("/")) -> bool:
    """Return whether a login prompt or the kernel's console is on a port."""
    consoles = root / "sys/class/tty/console/active"
    # Not every container shows it; then only processes can tell.
    with contextlib.suppress(OSError):
        if name in consoles.read_text(encoding="ascii").split():
            return True
    return any(_has_terminal(command, name) for command in (root / "proc").glob("[0-9]*/comm"))


def _has_terminal(command: Path, name: str) -> bool:
    """Return whether a process, by its ``comm`` file, is a login prompt on this port."""
    # Processes end while they are looked at.
    with contextlib.suppress(OSError):
        is_login = command.read_text(encoding="utf-8").strip() in ("agetty", "getty", "login")
        return is_login and f"/{name}" in _tty_of(command.parent)
    return False


def _tty_of(process: Path) -> str:
    """Return the terminal a process has for its input, or its command line where that is hidden."""
    try:
        return str((process / "fd/0").readlink())
    except OSError:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        return " ".join(f"/{os.fsdecode(argument)}" for argument in arguments)
