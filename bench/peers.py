"""Run llama-bench and llama-server, which ``make peers`` builds from the pinned sources."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

BUILD = Path(".cache/peers")


def llama_bench(
    folder: Path, model: Path, *, threads: int, n_prompt: int, n_gen: int
) -> tuple[float, float]:
    """Return prefill and decode speed of one repetition, in tokens per second."""
    command = [str(folder / "bin/llama-bench"), "-m", str(model), "-t", str(threads)]
    command += ["-p", str(n_prompt), "-n", str(n_gen), "-r", "1", "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    rows = json.loads(done.stdout)
    prefill = next(row for row in rows if row["n_prompt"])
    decode = next(row for row in rows if row["n_gen"])
    return float(prefill["avg_ts"]), float(decode["avg_ts"])


class Server:
    """A server under test on a free port of this machine; use as a context manager.

    Args:
        command: what to run; ``{port}`` in it is replaced.
        ready: path that answers 200 when requests may come.
        model: its model's name in requests.
        folder: where its output goes.
    """

    def __init__(self, command: list[str], ready: str, model: str, folder: Path) -> None:
        self.model = model
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._command = [part.replace("{port}", str(self.port)) for part in command]
        self._ready = f"http://127.0.0.1:{self.port}{ready}"
        self._log = (folder / "server.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)  # noqa: S603
        deadline = time.monotonic() + 120
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise SystemExit(f"{self._command[0]} did not start; see {self._log.name}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
        self._log.close()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._ready, timeout=5) as reply:  # noqa: S310 (loopback)
                body = reply.read()
        except OSError:
            return False
        # Ours is up before its model is.
        return b'"loading"' not in body


def llama_server(
    folder: Path, model: Path, *, threads: int, slots: int, n_ctx: int, work: Path
) -> Server:
    """Return llama-server with ``slots`` slots of ``n_ctx`` tokens each, otherwise as it comes."""
    command = [str(folder / "bin/llama-server"), "-m", str(model), "--port", "{port}"]
    command += ["-t", str(threads), "-np", str(slots), "-c", str(n_ctx * slots)]
    return Server(command, "/health", model.stem, work)
