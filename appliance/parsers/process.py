"""The daemon's side of parsing: start the worker, send it a file, read back the document."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import select
import socket
import subprocess
import sys
import threading
from typing import Any

from appliance import errors
from appliance.errors import (
    ApplianceError,
    IngestError,
    LimitExceededError,
    NoTextError,
    ParseFailedError,
)
from appliance.parsers.base import Block, Limits, ParsedDocument, PartProblem

_GRACE_S = 10.0
"""How much longer than a parse may take the worker is waited for before it is replaced."""

_REPLY_BYTES = 1 << 16


class ParserProcess:
    """Parses files one at a time in limited children; ``kill`` may come from any thread."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._n_kills = 0
        self._is_closed = False
        self._lock = threading.Lock()

    def parse(self, path: bytes, name: str, limits: Limits) -> ParsedDocument:
        """Return the document of a file.

        Args:
            path: absolute path, as the file system has it.
            name: file name for the choice of parser.
            limits: enforced by the child.

        Raises:
            IngestError: a subclass with the reason this file cannot be read.
            OSError: the system lacks memory, processes or descriptors; not the file's fault.
        """
        size = self._size_of(path)
        if size > limits.max_file_bytes:
            raise LimitExceededError("file_too_large", size=size, limit=limits.max_file_bytes)
        if size == 0:
            raise NoTextError("empty_file")
        return _document_of(self._result({"name": name}, path, limits))

    def render(self, path: bytes, number: int, quote: str, limits: Limits) -> dict[str, Any]:
        """Return ``{"png": base64, "found": bool}``; see ``render_page``."""
        self._size_of(path)
        page = {"number": number, "quote": quote}
        return self._result({"name": "page.pdf", "page": page}, path, limits)

    def _result(self, wanted: dict[str, Any], path: bytes, limits: Limits) -> dict[str, Any]:
        request = {
            **wanted,
            "path": base64.b64encode(path).decode("ascii"),
            "limits": dataclasses.asdict(limits),
        }
        # In memory and without a name: the text of a document never touches another disk, and a
        # full /tmp is nothing that a file could be blamed for.
        output = os.memfd_create("appliance-document")
        try:
            reply = self._ask(request, output, limits.max_seconds)
            if "error" not in reply:
                os.lseek(output, 0, os.SEEK_SET)
                with open(output, "rb", closefd=False) as content:
                    reply = json.load(content)
        finally:
            os.close(output)
        if "error" in reply:
            raise _error_of(reply["error"])
        found: dict[str, Any] = reply["ok"]
        return found

    def kill(self) -> None:
        """Stop the worker and whatever it runs; the next ``parse`` starts another."""
        with self._lock:
            worker, self._worker = self._worker, None
            line, self._line = self._line, None
            self._n_kills += 1
        if worker is not None:
            worker.kill()
            worker.wait()
        if line is not None:
            line.close()

    def close(self) -> None:
        """Stop the worker for good: a ``parse`` that has not begun by now never starts one."""
        with self._lock:
            self._is_closed = True
        self.kill()

    def _size_of(self, path: bytes) -> int:
        try:
            return os.stat(path).st_size  # noqa: PTH116 - bytes
        except FileNotFoundError as error:
            raise ParseFailedError("file_vanished") from error
        except OSError as error:
            raise ParseFailedError("file_unreadable") from error

    def _ask(self, request: dict[str, Any], output: int, max_seconds: float) -> dict[str, Any]:
        n_kills = self._n_kills
        for is_last in (False, True):
            reply = self._exchange(json.dumps(request).encode(), output, max_seconds + _GRACE_S)
            if reply is None:
                # Not even the server answered: it is stuck, as in a read from a dying disk.
                self.kill()
                raise LimitExceededError("parse_timeout", seconds=max_seconds)
            if reply:
                answer: dict[str, Any] = json.loads(reply)
                if "busy" in answer:
                    raise OSError(answer["busy"], os.strerror(answer["busy"]))
                return answer
            if is_last or self._n_kills != n_kills:
                break
            # The server reads no file itself, so its end (the kernel was short of memory) says
            # nothing about this one: it gets a second server before it is blamed.
            self.kill()
            n_kills = self._n_kills
        self.kill()
        raise ParseFailedError("parse_crashed", signal="worker")

    def _exchange(self, request: bytes, output: int, timeout_s: float) -> bytes | None:
        """Return the reply; empty when the worker is gone, None when it did not answer in time."""
        line = self._started()
        try:
            socket.send_fds(line, [request], [output])
            # Not select(): it knows no descriptor above 1,023, and connections may hold those.
            poll = select.poll()
            poll.register(line, select.POLLIN)
            return line.recv(_REPLY_BYTES) if poll.poll(timeout_s * 1000) else None
        except (ConnectionError, BrokenPipeError, ValueError):
            return b""
        except OSError:
            # ``kill`` closed the line in another thread.
            if line.fileno() == -1:
                return b""
            raise

    def _started(self) -> socket.socket:
        with self._lock:
            if self._is_closed:
                raise ParseFailedError("stopped")
            if self._worker is not None and self._line is not None:
                if self._worker.poll() is None:
                    return self._line
                self._line.close()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    self._worker = subprocess.Popen(  # noqa: S603 - our own module, no shell
                        [sys.executable, "-m", "appliance.parsers.worker"],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                except BaseException:
                    ours.close()
                    raise
            self._line = ours
            return ours


def render_page(path: bytes, number: int, quote: str, limits: Limits) -> tuple[bytes, bool]:
    """Return a page of a PDF as PNG, and whether the quote was found on it.

    It is drawn in a limited child of its own, so that looking at a page never waits for a long
    parse.

    Raises:
        ApplianceError: the file cannot be read, or has no such page.
    """
    child = ParserProcess()
    try:
        found = child.render(path, number, quote, limits)
    finally:
        child.close()
    return base64.b64decode(found["png"]), bool(found["found"])


def _error_of(error: dict[str, Any]) -> ApplianceError:
    kind = getattr(errors, error["kind"], IngestError)
    found: ApplianceError = kind(error["code"], **error["facts"])
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
        problems=tuple(PartProblem(**problem) for problem in tree["problems"]),
    )
