"""One file in one child process: limits first, then parse, then one JSON object on a pipe.

``python -m appliance.parsers.worker`` is a small server that the parent starts once. It imports a
parser when the first file needs it and forks a grandchild for every file, so that a file pays for a
fork and not for a start of Python, and a crash, a bomb or an endless loop costs that grandchild.

Requests are lines on standard input: ``{"path": <base64 of bytes>, "name", "limits", "output"}``.
For each, one line comes back on standard output: ``{"ok": true}`` or ``{"error": {...}}``. The
document itself comes back in the file named ``output``, so that a large one never fills a pipe.
Limits: address space and CPU time by ``setrlimit``, wall-clock by the server, file growth by
``RLIMIT_FSIZE``. When the daemon dies, so does the server, and with it the grandchild (PDEATHSIG).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import dataclasses
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from appliance.errors import ApplianceError, LimitExceededError, ParseFailedError
from appliance.parsers.base import Limits
from appliance.parsers.registry import parser_for

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.005
_CPU_SLACK_S = 2


def main() -> int:
    """Serve requests until standard input closes."""
    _die_with_parent()
    # Nothing a parser prints may be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    for line in sys.stdin:
        answers.write(json.dumps(_serve(json.loads(line))) + "\n")
        answers.flush()
    return 0


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    limits = Limits(**request["limits"])
    output = Path(request["output"])
    with contextlib.suppress(ApplianceError):
        parser_for(request["name"])  # import it here, once, instead of in every grandchild
    pid = os.fork()
    if pid == 0:
        # The grandchild; os._exit keeps it from running the server's clean-up.
        try:
            _die_with_parent()
            _limit(limits)
            output.write_text(json.dumps(_parse(request, limits)), encoding="utf-8")
            os._exit(0)
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
    if code != 0:
        return _error(ParseFailedError("parse_crashed", signal=f"exit {code}"))
    return {"ok": True}


_EXIT_MEMORY = 3
_EXIT_CRASH = 4


def _parse(request: dict[str, Any], limits: Limits) -> dict[str, Any]:
    path = os.fsdecode(base64.b64decode(request["path"]))
    try:
        document = parser_for(request["name"]).parse(path, limits)
    except ApplianceError as error:
        return _error(error)
    except RecursionError:
        return _error(ParseFailedError("damaged", format=request["name"].rsplit(".", 1)[-1]))
    except FileNotFoundError:
        return _error(ParseFailedError("file_vanished"))
    except PermissionError:
        return _error(ParseFailedError("file_unreadable"))
    n_chars = sum(len(block.text) for block in document.blocks)
    if n_chars > limits.max_text_chars:
        return _error(LimitExceededError("too_much_text", limit=limits.max_text_chars))
    return {"ok": dataclasses.asdict(document)}


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


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
