"""The daemon's side of parsing: start the worker, send it a file, read back the document."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from appliance import errors
from appliance.errors import IngestError, LimitExceededError, ParseFailedError
from appliance.parsers.base import Block, Limits, PageProblem, ParsedDocument

_GRACE_S = 10.0
"""How much longer than a parse may take the worker is waited for before it is replaced."""


class ParserProcess:
    """Parses files one at a time in limited children; ``kill`` may come from any thread."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def parse(self, path: bytes, name: str, limits: Limits) -> ParsedDocument:
        """Return the document of a file.

        Args:
            path: absolute path, as the file system has it.
            name: file name for the choice of parser.
            limits: enforced by the child.

        Raises:
            IngestError: a subclass with the reason this file cannot be read.
        """
        size = self._size_of(path)
        if size > limits.max_file_bytes:
            raise LimitExceededError("file_too_large", size=size, limit=limits.max_file_bytes)
        if size == 0:
            raise errors.NoTextError("empty_file")
        with tempfile.TemporaryDirectory(prefix="appliance-parse-") as folder:
            output = Path(folder) / "document.json"
            reply = self._ask(
                {
                    "path": base64.b64encode(path).decode("ascii"),
                    "name": name,
                    "limits": dataclasses.asdict(limits),
                    "output": str(output),
                },
                limits.max_seconds + _GRACE_S,
            )
            if "error" not in reply:
                reply = json.loads(output.read_text(encoding="utf-8"))
        if "error" in reply:
            raise _error_of(reply["error"])
        return _document_of(reply["ok"])

    def kill(self) -> None:
        """Stop the worker and whatever it runs; the next ``parse`` starts another."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()

    def _size_of(self, path: bytes) -> int:
        try:
            return os.stat(path).st_size  # noqa: PTH116 - bytes
        except FileNotFoundError as error:
            raise ParseFailedError("file_vanished") from error
        except OSError as error:
            raise ParseFailedError("file_unreadable") from error

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        worker = self._started()
        if worker.stdin is None or worker.stdout is None:
            raise ParseFailedError("parse_crashed", signal="no pipe")
        try:
            worker.stdin.write(json.dumps(request).encode() + b"\n")
            worker.stdin.flush()
            ready, _, _ = select.select([worker.stdout], [], [], timeout_s)
            line = worker.stdout.readline() if ready else b""
        except (BrokenPipeError, ValueError):
            line = b""
        if not line:
            self.kill()
            raise ParseFailedError("parse_crashed", signal="worker")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._worker is None or self._worker.poll() is not None:
                self._worker = subprocess.Popen(  # noqa: S603 - our own module, no shell
                    [sys.executable, "-m", "appliance.parsers.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            return self._worker


def _error_of(error: dict[str, Any]) -> IngestError:
    kind = getattr(errors, error["kind"], IngestError)
    found: IngestError = kind(error["code"], **error["facts"])
    return found


def _document_of(tree: dict[str, Any]) -> ParsedDocument:
    return ParsedDocument(
        format=tree["format"],
        title=tree["title"],
        blocks=tuple(
            Block(**{**block, "heading": tuple(block["heading"])}) for block in tree["blocks"]
        ),
        n_pages=tree["n_pages"],
        encoding=tree["encoding"],
        problems=tuple(PageProblem(**problem) for problem in tree["problems"]),
    )
