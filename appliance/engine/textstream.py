"""Turn token bytes into text that may be shown at once: whole code points, no stop string.

Three things may not leak while an answer streams: half of a character, whose bytes can be spread
over several tokens, the tags around a thought, and the beginning of a stop string that the next
token completes. All are held back until it is certain what they are. The shown pieces joined are
always the answer.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from appliance.engine.thinking import ThoughtSplitter


class TextStream:
    """Bytes in, showable text out; stops at the first stop string.

    Args:
        stops: texts that end the answer; none of their characters is ever shown.
        thoughts: what tells thoughts apart, for a model that has any; stops are not looked for in
            them.

    Invalid bytes become U+FFFD, as soon as they are certain to be invalid, or at the end.
    """

    def __init__(self, stops: Sequence[str] = (), thoughts: ThoughtSplitter | None = None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._shown: list[str] = []
        self._thoughts = thoughts
        self._thought: list[str] = []
        self._n_thought_taken = 0
        self.is_stopped = False

    @property
    def text(self) -> str:
        """Everything shown so far."""
        return "".join(self._shown)

    @property
    def thought(self) -> str:
        """Everything thought so far."""
        return "".join(self._thought)

    @property
    def is_thinking(self) -> bool:
        """Whether the next text belongs to a thought."""
        return self._thoughts is not None and self._thoughts.is_thinking

    def feed(self, piece: bytes) -> str:
        """Return what can be shown now; nothing more once ``is_stopped``."""
        text = self._decoder.decode(piece)
        if self._thoughts is not None and not self.is_stopped:
            text = self._said(*self._thoughts.feed(text))
        return self._advance(text, is_end=False)

    def finish(self) -> str:
        """Return what was held back; the answer is over."""
        text = self._decoder.decode(b"", final=True)
        if self._thoughts is not None and not self.is_stopped:
            text = self._said(*self._thoughts.feed(text)) + self._said(*self._thoughts.finish())
        return self._advance(text, is_end=True)

    def take_thought(self) -> str:
        """Return what was thought since the last call."""
        new = self._thought[self._n_thought_taken :]
        self._n_thought_taken = len(self._thought)
        return "".join(new)

    def _said(self, said: str, thought: str) -> str:
        if thought:
            self._thought.append(thought)
        return said

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
