'''Reading what a person types: a line editor on a terminal, plain lines elsewhere.

``"""`` begins and ends a text of several lines. The editor (prompt_toolkit) knows the width of
Chinese characters, keeps pasted text together and completes commands; it is imported only when it
is used, and a terminal without cursor control (``TERM=dumb``) gets plain lines.
'''

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TextIO

QUOTES = '"""'
PROMPT = ">>> "
MORE = "... "


class Reader(Protocol):
    """Where lines come from."""

    def line(self, prompt: str) -> str:
        """Return the next line.

        Raises:
            EOFError: there are no more.
            KeyboardInterrupt: Ctrl-C.
        """
        ...


class PlainReader:
    """Lines of a pipe or a dumb terminal; the prompt is shown only to people."""

    def __init__(self, source: TextIO, out: TextIO) -> None:
        self._source = source
        self._out = out

    def line(self, prompt: str) -> str:
        """Return the next line; see ``Reader``."""
        if self._source.isatty():
            self._out.write(prompt)
            self._out.flush()
        text = self._source.readline()
        if not text:
            raise EOFError
        return text.rstrip("\r\n")


def read_message(reader: Reader) -> str:
    """Return one message: a line, or what stands between two ``QUOTES``; see ``Reader``."""
    first = reader.line(PROMPT)
    if not first.lstrip().startswith(QUOTES):
        return first
    text = first.lstrip().removeprefix(QUOTES)
    while not text.rstrip().endswith(QUOTES):
        text += "\n" + reader.line(MORE)
    return text.rstrip().removesuffix(QUOTES).strip("\n")


def make_reader(
    *,
    placeholder: str,
    history: Path | None,
    completions: Callable[[str], list[str]],
    environ: Mapping[str, str],
) -> Reader:
    """Return a line editor when a person sits at a capable terminal, else plain lines.

    Args:
        placeholder: shown in the empty line.
        history: file of earlier lines; None keeps none.
        completions: the lines that what stands before the cursor may become.
        environ: for ``TERM``.
    """
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not is_terminal or environ.get("TERM", "dumb") == "dumb":
        return PlainReader(sys.stdin, sys.stdout)
    return _editor(placeholder, history, completions)


def _editor(
    placeholder: str, history: Path | None, completions: Callable[[str], list[str]]
) -> Reader:
    # A tenth of a second to import; pipes and other commands need not wait for it.
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Lines(Completer):
        """Completes what stands before the cursor."""

        def get_completions(self, document: Document, _: CompleteEvent):  # type: ignore[no-untyped-def]  # noqa: ANN202
            before = document.text_before_cursor
            for line in completions(before):
                yield Completion(line, -len(before))

    class Editor:
        """prompt_toolkit's line editor."""

        def __init__(self) -> None:
            if history is not None:
                history.touch(mode=0o600)
            self._session: PromptSession[str] = PromptSession(
                history=FileHistory(os.fspath(history)) if history else InMemoryHistory(),
                completer=Lines(),
                complete_while_typing=False,
                placeholder=FormattedText([("ansibrightblack", placeholder)]),
            )

        def line(self, prompt: str) -> str:
            """Return the next line; see ``Reader``."""
            return self._session.prompt(prompt)

    return Editor()
