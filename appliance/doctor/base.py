"""What a check sees of the machine, and what it says about it.

A check is a function of a ``Machine`` that returns a ``Finding``. It changes nothing. Files are
read below ``Machine.root`` and commands go through ``Machine.run``, so that a test shows each check
a machine on which it must speak up.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from appliance.config import Config
from appliance.errors import Fact

State = Literal["ok", "warn", "fail", "skip"]

_COMMAND_S = 10.0


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    ``code`` names its sentence in ``appliance.messages.doctor``: what was found, and for ``warn``
    and ``fail`` what to do. ``skip`` means that the check has nothing to look at here.
    """

    item: str
    state: State
    code: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


def run_command(command: Sequence[str], timeout_s: float = _COMMAND_S) -> tuple[int, str]:
    """Return exit status and output of a command; 127 when there is none such, 124 when late."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed commands of the checks, no shell
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        return 127, ""
    except (subprocess.TimeoutExpired, OSError) as error:
        return 124, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


@dataclass(frozen=True)
class Machine:
    """The machine as the checks see it.

    Args:
        config: what is in force.
        root: where ``/proc``, ``/sys``, ``/dev`` and ``/etc`` are looked up.
        environ: the environment.
        run: runs a command; see ``run_command``.
        is_daemon_running: whether a daemon answers for this data folder.
    """

    config: Config
    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    run: Callable[..., tuple[int, str]] = run_command
    is_daemon_running: bool = False

    def at(self, path: str) -> Path:
        """Return an absolute path of the machine below ``root``."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """Return a small file's text without the white space around it; None when unreadable."""
        with contextlib.suppress(OSError):
            return self.at(path).read_bytes().decode("utf-8", "replace").replace("\0", "").strip()
        return None

    def glob(self, pattern: str) -> list[Path]:
        """Return the paths that match, sorted."""
        return sorted(self.root.glob(pattern.lstrip("/")))

    def value(self, path: str, key: str, separator: str = "=") -> str | None:
        """Return the value of ``key`` in a file of ``key=value`` lines, quotes taken off."""
        for line in (self.text(path) or "").splitlines():
            name, found, rest = line.partition(separator)
            if found and name.strip() == key:
                return rest.strip().strip('"')
        return None


Check = Callable[[Machine], Finding]
