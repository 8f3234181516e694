"""Logging set-up: one line a record, to standard error, in the form the journal expects.

Under systemd (``JOURNAL_STREAM``) the journal adds the time, and ``<N>`` prefixes carry the level.
Line breaks inside a message are escaped, so that text from a document or a client can never forge
a record of its own.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TextIO

_SYSLOG = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


class LineFormatter(logging.Formatter):
    """One record, one line; a traceback is indented below it only when ``tracebacks`` is on."""

    def __init__(self, *, journal: bool, tracebacks: bool) -> None:
        time = "" if journal else "%(asctime)s "
        super().__init__(f"{time}%(levelname)s %(name)s [%(threadName)s] %(message)s")
        self._journal = journal
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the line (or lines, with a traceback)."""
        line = self.formatMessage(self._prepared(record))
        line = line.replace("\\", "\\\\") if "\r" in line or "\n" in line else line
        line = line.replace("\r", "\\r").replace("\n", "\\n")
        if record.exc_info and record.exc_info[1] is not None:
            if self._tracebacks:
                line += "\n  " + self.formatException(record.exc_info).replace("\n", "\n  ")
            else:
                error = record.exc_info[1]
                line += f": {type(error).__name__}: {error}".replace("\n", "\\n")
        if self._journal:
            prefix = f"<{_SYSLOG.get(record.levelno, 6)}>"
            line = "\n".join(prefix + part for part in line.split("\n"))
        return line

    def _prepared(self, record: logging.LogRecord) -> logging.LogRecord:
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        return record


def set_up(
    level: str, *, debug: bool, environ: Mapping[str, str], stream: TextIO | None = None
) -> None:
    """Send the process's log to ``stream`` (standard error); ``debug`` adds tracebacks."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(journal="JOURNAL_STREAM" in environ, tracebacks=debug))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.DEBUG if debug else level.upper())
    # The server's own chatter ("Started server process") says nothing an owner needs.
    for name in (
        "uvicorn",
        "uvicorn.error",
        "asyncio",
        "watchdog",
        "multipart",
        "python_multipart",
    ):
        logging.getLogger(name).setLevel(logging.WARNING)
