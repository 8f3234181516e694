"""The real daemon as a child process on loopback, for end-to-end tests.

``Box`` starts ``appliance serve`` on a data folder of its own with ``--port 0`` and a ready file,
and ends it at the end of the test. The fixtures ``box`` and ``box_folder`` are in conftest.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from appliance.client import Client

APPLIANCE = (sys.executable, "-m", "appliance")
START_S = 60.0
READ_S = 300.0


class Box:
    """One daemon; ``with Box(data) as box`` waits until it is ready.

    Args:
        data: its data folder; made when missing.
        config: text of ``appliance.yaml``, None for none.
        environ: variables to set beside the test's own.
        prefix: a command to run the daemon under (``unshare``, ``strace``).
        arguments: further arguments of ``appliance serve``.
    """

    def __init__(
        self,
        data: Path,
        *,
        config: str | None = None,
        environ: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.data = data
        self.inbox = data / "inbox"
        self.log_path = data / "daemon.log"
        self.environ = {**os.environ, "LC_ALL": "C.UTF-8", **(environ or {})}
        self.prefix = prefix
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.pid = 0
        self.inbox.mkdir(parents=True, exist_ok=True)
        if config is not None:
            (data / "appliance.yaml").write_text(config, encoding="utf-8")

    def __enter__(self) -> Box:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Box:
        """Start the daemon and wait until it answers."""
        ready = self.data / "ready.json"
        ready.unlink(missing_ok=True)
        command = [*self.prefix, *APPLIANCE, "serve", "--data", str(self.data), "--port", "0"]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(ready), *self.arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environ,
            )
        deadline = time.monotonic() + START_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the daemon did not start:\n{self.log()}")
            time.sleep(0.02)
        where = json.loads(ready.read_text(encoding="utf-8"))
        self.url, self.pid = where["url"], where["pid"]
        return self

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 40.0) -> int:
        """Ask for a stop and return the exit status; 0 when it was not running."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the daemon did not stop:\n{self.log()}") from None

    def kill(self) -> None:
        """End the daemon as a power cut would."""
        if self.process is not None:
            process, self.process = self.process, None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid or process.pid, signal.SIGKILL)
            process.kill()
            process.wait()

    def restart(self) -> Box:
        """Stop, then start on the same data."""
        self.stop()
        return self.start()

    @property
    def client(self) -> Client:
        """A client of this daemon."""
        return Client(self.url)

    def log(self) -> str:
        """What the daemon has written so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def run(self, *arguments: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a command of the appliance on this data folder."""
        return subprocess.run(
            [*APPLIANCE, *arguments, "--data", str(self.data)],
            capture_output=True,
            encoding="utf-8",
            env=self.environ,
            timeout=timeout_s,
            check=False,
        )

    def json(self, *arguments: str, timeout_s: float = 300.0) -> dict[str, Any]:
        """Run a command with ``--json`` that must succeed, and return what it printed."""
        done = self.run(*arguments, "--json", timeout_s=timeout_s)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def wait(self) -> dict[str, Any]:
        """Wait until every document is read; returns ``kb stats``."""
        return self.json("kb", "wait", "--timeout", str(READ_S), timeout_s=READ_S + 30)

    def wait_model(self) -> None:
        """Wait until the model is loaded (or failed)."""
        deadline = time.monotonic() + READ_S
        while self.client.get("/api/status")["models"]["generation"]["state"] == "loading":
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)
