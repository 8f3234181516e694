"""Bytes to a line no faster than it carries them, so that what was stopped is not sent any more.

The system's buffer of a serial line holds seconds of text at low rates. The writer hands over at
most ``AHEAD_S`` of text, so dropping what waits stops the far end at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)

AHEAD_S = 0.08
_BITS_PER_BYTE = 10
_LONGEST_QUEUE = 4 * 1024 * 1024


class PacedWriter:
    """The thread that writes to one line.

    Args:
        name: of the line, for the thread's name.
        write: hands bytes to the line; raises ``OSError`` when it is gone.
        baud: bits per second; a byte takes ten with start and stop bit.
        on_lost: called once, in the writer's thread, when writing failed.
    """

    def __init__(
        self, name: str, write: Callable[[bytes], object], baud: int, on_lost: Callable[[], None]
    ) -> None:
        self._write = write
        self._bytes_per_s = baud / _BITS_PER_BYTE
        self._on_lost = on_lost
        self._queue: deque[tuple[bytes, bool]] = deque()
        self._n_waiting = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"serial-write-{name}")
        self._thread.start()

    def put(self, data: bytes, *, may_drop: bool = False) -> None:
        """Queue bytes; blocks while far too much waits. ``may_drop``: ``drop`` takes them back."""
        if not data:
            return
        with self._changed:
            while self._n_waiting > _LONGEST_QUEUE and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return
            self._queue.append((data, may_drop))
            self._n_waiting += len(data)
            self._changed.notify_all()

    @property
    def is_behind(self) -> bool:
        """Whether more waits than the line carries in ``AHEAD_S``; never on a closed line."""
        with self._changed:
            return not self._is_closed and self._n_waiting > self._bytes_per_s * AHEAD_S

    def drop(self) -> int:
        """Forget queued bytes that may be dropped; returns how many."""
        with self._changed:
            kept = [(data, may) for data, may in self._queue if not may]
            n_kept = sum(len(data) for data, _ in kept)
            n_dropped = self._n_waiting - n_kept
            self._queue = deque(kept)
            self._n_waiting = n_kept
            self._changed.notify_all()
        return n_dropped

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything is handed over; False when it took longer."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._n_waiting == 0 or self._is_closed, timeout_s
            )

    def close(self) -> None:
        """Stop writing; what waits is not sent. Not to be called from the writer's own thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _next(self) -> bytes:
        """Take what is to be written at once: some whole pieces, or a part of a long frame.

        What may be dropped comes in pieces of a few characters and is never split, so that a drop
        leaves no half character at the far end.
        """
        most = max(1, int(self._bytes_per_s * AHEAD_S / 2))
        data, may_drop = self._queue.popleft()
        if not may_drop and len(data) > most:
            self._queue.appendleft((data[most:], False))
            return data[:most]
        while self._queue and len(data) + len(self._queue[0][0]) <= most:
            data += self._queue.popleft()[0]
        return data

    def _run(self) -> None:
        sent_until = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._queue) or self._is_closed)
                if self._is_closed:
                    return
                data = self._next()
            try:
                self._write(data)
            except OSError as error:
                _log.info("serial line lost while writing: %s", error)
                with self._changed:
                    self._is_closed = True
                    self._changed.notify_all()
                self._on_lost()
                return
            now = time.monotonic()
            sent_until = max(sent_until, now) + len(data) / self._bytes_per_s
            with self._changed:
                self._n_waiting -= len(data)
                self._changed.notify_all()
                if sent_until - now > AHEAD_S:
                    self._changed.wait_for(lambda: self._is_closed, sent_until - now - AHEAD_S)
