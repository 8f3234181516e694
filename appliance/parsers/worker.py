"""One file in one child process: limits first, then parse, then one JSON object back.

``python -m appliance.parsers.worker`` is a small server that the parent starts once. It imports a
parser when the first file needs it and forks a grandchild for every file, so that a file pays for a
fork and not for a start of Python, and a crash, a bomb or an endless loop costs that grandchild.

Standard input is a ``SOCK_SEQPACKET`` socket, so that a message is whole or absent. A request is
``{"path": <base64 of bytes>, "name", "limits"}``, with ``"page"`` when a page is to be drawn, and
carries the descriptor of an anonymous file in memory, which the grandchild writes the document to,
so that a large one never fills a pipe. For each request one message comes back: ``{"ok": true}``,
``{"error": {...}}``, or ``{"busy": errno}`` when the system had no process or memory to spare,
which is no fault of the file.

Limits: address space and CPU time by ``setrlimit``, wall-clock by the server, the document's size
by ``RLIMIT_FSIZE``. When the daemon dies, so does the server, and with it the grandchild
(PDEATHSIG).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import dataclasses
import errno
import json
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

from appliance.errors import ApplianceError, LimitExceededError, ParseFailedError
from appliance.parsers import ocr
from appliance.parsers.base import Limits
from appliance.parsers.registry import parser_for

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.005
_CPU_SLACK_S = 2
_REQUEST_BYTES = 1 << 16


def main() -> int:
    """Serve requests until the daemon closes its end of standard input."""
    _die_with_parent(os.getppid())
    line = socket.socket(fileno=os.dup(0))
    # Nothing a parser reads or prints may meet the protocol.
    quiet = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(quiet, number)
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, _REQUEST_BYTES, 1)
        if not message or not descriptors:
            return 0
        try:
            reply = _serve(json.loads(message), descriptors[0])
        except OSError as error:
            reply = {"busy": error.errno or errno.EAGAIN}
        finally:
            os.close(descriptors[0])
        line.send(json.dumps(reply).encode())


def _serve(request: dict[str, Any], output: int) -> dict[str, Any]:
    reply = _serve_once(request, output)
    # ONNX Runtime does not always survive a refused allocation.
    is_short = reply.get("error", {}).get("code") in ("parse_memory", "parse_crashed")
    if is_short and request["limits"]["ocr"] == "auto" and ocr.is_installed():
        # Reading pictures takes the most by far: without it, the pages that have text are read.
        os.ftruncate(output, 0)
        os.lseek(output, 0, os.SEEK_SET)
        return _serve_once({**request, "limits": {**request["limits"], "ocr": "short"}}, output)
    return reply


def _serve_once(request: dict[str, Any], output: int) -> dict[str, Any]:
    limits = Limits(**request["limits"])
    with contextlib.suppress(ApplianceError):
        parser_for(request["name"])  # import it here, once, instead of in every grandchild
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        # The grandchild; os._exit keeps it from running the server's clean-up.
        try:
            _die_with_parent(server)
            _limit(limits)
            os._exit(_write(output, _parse(request, limits)))
        except MemoryError:
            os._exit(_EXIT_MEMORY)
        except BaseException:  # noqa: BLE001 - reported as a crash of this file by the exit status
            os._exit(_EXIT_CRASH)
    status = _wait(pid, limits.max_seconds)
    if status is None:
        return _error(LimitExceededError("parse_timeout", seconds=limits.max_seconds))
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return _error(LimitExceededError("parse_timeout", seconds=limits.max_seconds))
        return _error(ParseFailedError("parse_crashed", signal=signal.Signals(number).name))
    code = os.WEXITSTATUS(status)
    if code == _EXIT_MEMORY:
        return _error(
            LimitExceededError("parse_memory", limit_mib=limits.max_memory_bytes // (1 << 20))
        )
    if code == _EXIT_TEXT:
        return _error(LimitExceededError("too_much_text", limit=limits.max_text_chars))
    if code != 0:
        return _error(ParseFailedError("parse_crashed", signal=f"exit {code}"))
    return {"ok": True}


_EXIT_MEMORY = 3
_EXIT_CRASH = 4
_EXIT_TEXT = 5


def _write(output: int, tree: dict[str, Any]) -> int:
    """Write the answer; returns the exit status."""
    try:
        with open(output, "wb", closefd=False) as file:
            file.write(json.dumps(tree).encode())
    except OSError as error:
        if error.errno == errno.EFBIG:
            return _EXIT_TEXT
        # The file lies in memory, and memory is all it can lack.
        return _EXIT_MEMORY if error.errno in (errno.ENOSPC, errno.ENOMEM) else _EXIT_CRASH
    return 0


def _parse(request: dict[str, Any], limits: Limits) -> dict[str, Any]:
    path = os.fsdecode(base64.b64decode(request["path"]))
    try:
        if "page" in request:
            png, is_found = _render(path, **request["page"])
            return {"ok": {"png": base64.b64encode(png).decode("ascii"), "found": is_found}}
        document = parser_for(request["name"], path).parse(path, limits)
    except ApplianceError as error:
        return _error(error)
    except RecursionError:
        return _error(ParseFailedError("damaged", format=request["name"].rsplit(".", 1)[-1]))
    except FileNotFoundError:
        return _error(ParseFailedError("file_vanished"))
    except PermissionError:
        return _error(ParseFailedError("file_unreadable"))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a parser's own fault; the name helps to find it
        return _error(ParseFailedError("parse_crashed", signal=type(error).__name__))
    n_chars = sum(len(block.text) for block in document.blocks)
    if n_chars > limits.max_text_chars:
        return _error(LimitExceededError("too_much_text", limit=limits.max_text_chars))
    return {"ok": dataclasses.asdict(document)}


def _render(path: str, number: int, quote: str) -> tuple[bytes, bool]:
    from appliance.parsers.render import page_png

    return page_png(path, number, quote)


def _error(error: ApplianceError) -> dict[str, Any]:
    kind = type(error).__name__
    return {"error": {"kind": kind, "code": error.code, "facts": error.facts}}


def _limit(limits: Limits) -> None:
    seconds = int(limits.max_seconds) + _CPU_SLACK_S
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (limits.max_memory_bytes, limits.max_memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # JSON takes at most 6 bytes for a character (\\uXXXX), 12 for one outside the first plane.
    most = limits.max_text_chars * 12 + (1 << 20)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    os.nice(10)


def _wait(pid: int, seconds: float) -> int | None:
    """Return the grandchild's status, or None after killing it for taking too long."""
    deadline = time.monotonic() + seconds
    pause = _POLL_S / 5
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, _POLL_S * 4)


def _die_with_parent(parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before the line above could have told us.
        os._exit(_EXIT_CRASH)


if __name__ == "__main__":
    sys.exit(main())
