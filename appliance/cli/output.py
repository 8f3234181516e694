"""What a command writes: text for people, JSON for scripts, progress beside both."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from appliance.errors import ApplianceError

if TYPE_CHECKING:
    from appliance.frontends.terminal.flow import Flow

_REDRAW_S = 0.1
_PLAIN_EVERY_S = 5.0


@dataclass
class Output:
    """Standard output and error of one command.

    Args:
        lang: ``zh`` or ``en``.
        is_json: print one JSON object instead of text.
        debug: add tracebacks to errors.
    """

    lang: str
    is_json: bool = False
    debug: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)

    def line(self, text: str = "") -> None:
        """Write a line of the result."""
        self.out.write(text + "\n")

    def piece(self, text: str) -> None:
        """Write a piece of streamed text and show it now."""
        self.out.write(text)
        self.out.flush()

    def flow(self) -> Flow:
        """Return the way of text to this output: wrapped on a terminal, plain elsewhere."""
        from appliance.frontends.terminal.flow import Flow

        if not self.out.isatty():
            return Flow(None, is_plain=True)
        columns = os.get_terminal_size(self.out.fileno()).columns
        return Flow(columns or None, is_plain=os.environ.get("TERM", "dumb") == "dumb")

    def json(self, value: Mapping[str, Any]) -> None:
        """Write the result as one JSON object."""
        self.out.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")

    def note(self, text: str) -> None:
        """Write a remark that is no part of the result."""
        self.err.write(text + "\n")
        self.err.flush()

    def say(self, code: str, **facts: object) -> None:
        """Write a label of ``appliance.messages.screen`` as a line of the result."""
        from appliance.messages.screen import say

        self.line(say(code, self.lang, **facts))

    def label(self, code: str, **facts: object) -> str:
        """Return a label in this output's language."""
        from appliance.messages.screen import say

        return say(code, self.lang, **facts)

    def error(self, error: ApplianceError) -> None:
        """Write a failure: what happened and what to do, or the JSON object of the contract."""
        from appliance.messages import explain

        explanation = explain(error, "zh" if self.lang == "zh" else "en")
        if self.is_json:
            self.json({"error": explanation.as_json()})
        else:
            self.out.flush()
            self.note(f"appliance: {explanation.message}")
            if explanation.next_step:
                self.note(f"  {explanation.next_step}")
        if self.debug:
            import traceback

            traceback.print_exception(error, file=self.err)

    def progress(self) -> ProgressLine:
        """Return a line that shows how far something is."""
        return ProgressLine(self.err)


class ProgressLine:
    """One line that is redrawn on a terminal; elsewhere a plain line now and then.

    Use as a context manager: leaving clears the line, so that it never mixes with the result.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""
        self._next = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Show ``text`` unless another was shown a moment ago."""
        now = time.monotonic()
        if text == self._shown or now < self._next:
            return
        self._shown = text
        if self._is_terminal:
            from appliance.frontends.terminal.layout import cut

            columns = os.get_terminal_size(self._stream.fileno()).columns
            self._stream.write("\r\x1b[2K" + cut(text, max(columns - 1, 20)))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
        self._next = now + (_REDRAW_S if self._is_terminal else _PLAIN_EVERY_S)

    def clear(self) -> None:
        """Take the line off a terminal."""
        if self._shown and self._is_terminal:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
        self._shown, self._next = "", 0.0
