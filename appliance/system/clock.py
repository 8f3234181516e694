"""Time, in one place so that a test may stand still or jump."""

from __future__ import annotations

import threading
import time


class Clock:
    """The machine's clocks; tests pass a ``ManualClock`` instead."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards; for durations and deadlines."""
        return time.monotonic()

    def time(self) -> float:
        """Return seconds since the epoch; for what is written down."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Do nothing for ``seconds``."""
        time.sleep(seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until ``event`` is set, at most ``timeout_s``; returns whether it is set."""
        return event.wait(timeout_s)


class ManualClock(Clock):
    """A clock that moves only when told, or when somebody sleeps or waits on it."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        """Return the set time."""
        with self._lock:
            return self._now

    def time(self) -> float:
        """Return the set time; both clocks are one here."""
        return self.monotonic()

    def advance(self, seconds: float) -> None:
        """Move on."""
        with self._lock:
            self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Move on at once by ``seconds``."""
        self.advance(seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Move on by ``timeout_s`` at once unless ``event`` is set."""
        if not event.is_set():
            self.advance(timeout_s)
        return event.is_set()
