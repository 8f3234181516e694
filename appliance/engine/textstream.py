"""Turn token bytes into text that may be shown at once: whole code points, no stop string.

Two things may not leak while an answer streams: half of a character, whose bytes can be spread
over several tokens, and the beginning of a stop string that the next token completes. Both are
held back here until it is certain what they are. The shown pieces joined are always the answer.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Bytes in, showable text out; stops at the first stop string.

    Args:
        stops: texts that end the answer; none of their characters is ever shown.

    Invalid bytes become U+FFFD, as soon as they are certain to be invalid, or at the end.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._shown: list[str] = []
        self.is_stopped = False

    @property
    def text(self) -> str:
        """Everything shown so far."""
        return "".join(self._shown)

    def feed(self, piece: bytes) -> str:
        """Return what can be shown now; nothing more once ``is_stopped``."""
        return self._advance(self._decoder.decode(piece), is_end=False)

    def finish(self) -> str:
        """Return what was held back; the answer is over."""
        return self._advance(self._decoder.decode(b"", final=True), is_end=True)

    def _advance(self, text: str, *, is_end: bool) -> str:
        if self.is_stopped:
            return ""
        self._held += text
        cut = first_stop(self._held, self._stops)
        if cut is not None:
            self.is_stopped = True
            return self._show(cut)
        return self._show(len(self._held) if is_end else safe_length(self._held, self._stops))

    def _show(self, length: int) -> str:
        shown, self._held = self._held[:length], self._held[length:]
        if shown:
            self._shown.append(shown)
        return shown


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Return where the earliest stop string begins in ``text``."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return min(found, default=None)


def safe_length(text: str, stops: Sequence[str]) -> int:
    """Return how much of ``text`` cannot be the beginning of a stop string."""
    longest = max((len(stop) for stop in stops), default=1) - 1
    for at in range(max(0, len(text) - longest), len(text)):
        if any(stop.startswith(text[at:]) for stop in stops):
            return at
    return len(text)
