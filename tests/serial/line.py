"""The far end of a serial line: a pty pair whose near end the daemon opens as its port."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAIT_S = 8.0


class FarEnd:
    """A terminal or a microcontroller on the wire; ``path`` is what the daemon opens.

    Args:
        path: a symbolic link to the near end, so that the same name can be plugged in again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = -1
        self.seen = b""
        self.plug()

    def plug(self) -> None:
        """Make a new pty pair under the same name."""
        self.fd, near = os.openpty()
        tty.setraw(self.fd)
        tty.setraw(near)
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(os.ttyname(near))
        os.close(near)
        self.is_open = False
        os.set_blocking(self.fd, False)

    def wait_open(self) -> None:
        """Wait until somebody has the near end open; what is sent earlier would be flushed."""
        deadline = time.monotonic() + WAIT_S
        # The far end of a pty says HUP while nobody has its near end open.
        while self._is_hung_up():
            assert time.monotonic() < deadline, "nobody opens the line"
            time.sleep(0.02)
        time.sleep(0.05)

    def _is_hung_up(self) -> bool:
        poll = select.poll()
        poll.register(self.fd, select.POLLHUP)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def unplug(self) -> None:
        """Pull the cable."""
        if self.fd >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self.fd)
            self.fd = -1

    def send(self, data: bytes | str) -> None:
        """Type."""
        if not self.is_open:
            self.wait_open()
            self.is_open = True
        left = data.encode() if isinstance(data, str) else data
        deadline = time.monotonic() + WAIT_S
        while left:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                left = left[os.write(self.fd, left) :]
                continue
            self.read(0.0)  # what nobody reads would stop the daemon from writing
            assert time.monotonic() < deadline, "the daemon does not read"
            time.sleep(0.005)

    def read(self, timeout_s: float = 0.1) -> bytes:
        """Return what came in now."""
        if select.select([self.fd], [], [], timeout_s)[0]:
            with contextlib.suppress(BlockingIOError, OSError):
                data = os.read(self.fd, 65536)
                self.seen += data
                return data
        return b""

    def expect(self, wanted: bytes | str, timeout_s: float = WAIT_S) -> bytes:
        """Return everything up to and with ``wanted``; it must come in time."""
        text = wanted.encode() if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{wanted!r} did not come; got {self.seen!r}"
            self.read()
        at = self.seen.index(text) + len(text)
        head, self.seen = self.seen[:at], self.seen[at:]
        return head

    def frames(self, until: str, timeout_s: float = WAIT_S) -> list[dict[str, Any]]:
        """Return frames up to the first of a type (or an error)."""
        found = []
        for frame in self.each_frame(timeout_s):
            found.append(frame)
            if frame["type"] in (until, "error"):
                return found
        raise AssertionError

    def each_frame(self, timeout_s: float = WAIT_S) -> Iterator[dict[str, Any]]:
        """Yield frames as they come; other lines are a person's."""
        while True:
            line = self.expect(b"\n", timeout_s).strip(b"\r\n")
            # What erases a person's prompt may stand before a frame.
            line = line[line.find(b"{") :] if line[:1] in b"\r\x1b" else line
            if line.startswith(b"{"):
                yield json.loads(line)

    def wake(self, *, is_dumb: bool = False, cols: int = 80, rows: int = 24) -> None:
        """Press Enter and answer the daemon's question where the cursor is."""
        self.send("\r")
        self.expect("\x1b[6n")
        if not is_dumb:
            self.send(f"\x1b[{rows};{cols}R")
        self.expect(">>> ")
