"""systemd's notification protocol: one datagram of ``KEY=value`` lines to ``$NOTIFY_SOCKET``.

Reference: sd_notify(3). ``READY=1`` once, ``STATUS=`` for ``systemctl status``, ``STOPPING=1``,
``RELOADING=1`` with ``MONOTONIC_USEC=`` around a reload, ``WATCHDOG=1`` more often than
``$WATCHDOG_USEC``. A name that begins with ``@`` is in Linux's abstract namespace.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

_log = logging.getLogger(__name__)


class Notifier:
    """Talks to the service manager, or to nobody when there is none."""

    def __init__(self, environ: Mapping[str, str], pid: int | None = None) -> None:
        self._address = environ.get("NOTIFY_SOCKET") or None
        self.watchdog_s = _watchdog_s(environ, os.getpid() if pid is None else pid)

    @property
    def is_active(self) -> bool:
        """Whether somebody listens."""
        return self._address is not None

    def ready(self, status: str) -> None:
        """Say that every front end works."""
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send(f"STATUS={_one_line(text)}")

    def reloading(self) -> None:
        """Say that the configuration is read again; ``ready`` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that the stop has begun."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """Say that work moves; see ``Heartbeat`` for when this may be said."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        name = self._address
        address = "\0" + name[1:] if name.startswith("@") else name
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(1.0)
                sock.sendto(message.encode(), address)
        except OSError as error:
            # The manager's watchdog acts on silence; the box itself can go on.
            _log.warning("the service manager did not take %s: %s", message.split("\n")[0], error)


class Heartbeat:
    """Decides when ``WATCHDOG=1`` may be sent: only after every counter has moved.

    A timer that always pings guards nothing: it would go on while the engine hangs in native code.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last: tuple[int, ...] | None = None
        self._due = 0.0

    def is_due(self, counters: tuple[int, ...], now: float) -> bool:
        """Return True when ``interval_s`` passed and each counter moved since the last True."""
        if now < self._due:
            return False
        if self._last is not None and any(
            a == b for a, b in zip(counters, self._last, strict=True)
        ):
            return False
        self._last = counters
        self._due = now + self._interval_s
        return True


def _watchdog_s(environ: Mapping[str, str], pid: int) -> float | None:
    """Return seconds between pings: half of what is allowed; None if nobody watches us."""
    try:
        usec = int(environ["WATCHDOG_USEC"])
        watched = int(environ.get("WATCHDOG_PID", pid))
    except (KeyError, ValueError):
        return None
    return usec / 2e6 if usec > 0 and watched == pid else None


def _one_line(text: str) -> str:
    return " ".join(text.split())
