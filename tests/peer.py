"""A real llama-server from ``make peers``; the tests that need it are left out without it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

_BUILT = Path(__file__).parent.parent / ".cache" / "peers" / "bin" / "llama-server"
START_S = 90.0


def llama_server_path() -> Path:
    """Return the program, or leave the test out."""
    path = Path(os.environ.get("LLAMA_SERVER") or _BUILT)
    if not path.is_file():
        pytest.skip("no llama-server: run 'make peers'")
    return path


class LlamaServer:
    """A server on a port of its own; ``kill`` and ``start`` bring it down and back."""

    def __init__(self, model: Path, log: Path, *arguments: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._log = log
        program = llama_server_path()
        self._environ = {**os.environ, "LD_LIBRARY_PATH": str(program.parent)}
        self._command = [str(program), "-m", str(model), "--port", str(self.port), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environ,
            )
        deadline = time.monotonic() + START_S
        while not self._is_well():
            is_late = time.monotonic() > deadline or self._process.poll() is not None
            assert not is_late, self._log.read_text(errors="replace")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def n_running(self) -> int:
        """Slots that are busy."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/slots", timeout=10) as reply:
            return sum(slot["is_processing"] for slot in json.load(reply))

    def _is_well(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                return True
        except OSError:
            return False
