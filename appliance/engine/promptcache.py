"""Read prompts that outlive the process: KV cells of shared beginnings, saved as files.

A file holds the cells of one sequence, the tokens they belong to and a digest of everything. It is
used for a prompt only if all of its tokens are the prompt's first tokens, so texts that look alike
but tokenise differently never meet; and only if its ``world`` is ours: the model's bytes, the
library's version and the settings that change what a cell holds. Anything else about a file that
is not as expected means that it is not used and is removed. The folder has a cap in bytes; the
file that was used longest ago leaves first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from appliance.engine.slots import TokenArray
from appliance.system import files

_log = logging.getLogger(__name__)
_MAGIC = b"APPLPFX1"
_DIGEST_BYTES = 32
_SUFFIX = ".kv"
_DIGESTS = "models.json"


@dataclass(frozen=True)
class Saved:
    """The cells of a sequence, as the library writes them, and its tokens."""

    tokens: TokenArray
    cells: bytes


class PrefixFiles:
    """The folder of saved beginnings.

    Args:
        folder: made when it is needed.
        most_bytes: cap of all files together; 0 saves nothing.
        world: what must be equal for cells to mean the same.
    """

    def __init__(self, folder: Path, most_bytes: int, world: str) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._world = hashlib.sha256(world.encode()).digest()

    def save(self, saved: Saved) -> bool:
        """Write one beginning, make room for it; False when it is there or larger than the cap.

        Raises:
            OSError: the folder cannot be written.
        """
        tokens = saved.tokens.astype("<i4").tobytes()
        head = _MAGIC + self._world + len(saved.tokens).to_bytes(4, "little")
        body = head + tokens + saved.cells
        path = self._path(saved.tokens)
        if path.exists() or len(body) + _DIGEST_BYTES > self._most_bytes:
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_room(len(body) + _DIGEST_BYTES)
        files.write_whole(path, body + hashlib.sha256(body).digest(), mode=0o600)
        return True

    def load(self, most: int) -> list[Saved]:
        """Return up to ``most`` beginnings of our world, the last used first."""
        found: list[Saved] = []
        for path in self._by_use()[::-1]:
            if len(found) == most:
                break
            saved = self._read(path)
            if saved is not None:
                found.append(saved)
        return found

    def touch(self, tokens: TokenArray) -> None:
        """Note that a beginning was used."""
        with contextlib.suppress(OSError):
            os.utime(self._path(tokens))

    def _path(self, tokens: TokenArray) -> Path:
        name = hashlib.sha256(self._world + tokens.astype("<i4").tobytes()).hexdigest()
        return self._folder / (name + _SUFFIX)

    def _read(self, path: Path) -> Saved | None:
        try:
            content = path.read_bytes()
        except OSError as error:
            _log.warning("a saved prompt cannot be read: %s", error)
            return None
        body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
        at = len(_MAGIC) + len(self._world)
        n_tokens = int.from_bytes(body[at : at + 4], "little")
        end = at + 4 + 4 * n_tokens
        is_whole = body.startswith(_MAGIC) and hashlib.sha256(body).digest() == digest
        if not is_whole or len(body) <= end:
            _log.warning("removing a saved prompt that is damaged: %s", path.name)
            path.unlink(missing_ok=True)
            return None
        if body[len(_MAGIC) : at] != self._world:
            return None  # another model's, which may come back
        return Saved(np.frombuffer(body[at + 4 : end], dtype="<i4").astype(np.int32), body[end:])

    def _by_use(self) -> list[Path]:
        """Return the files, the one used longest ago first."""
        if not self._folder.is_dir():
            return []
        stamped = []
        for path in self._folder.glob("*" + _SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                stamped.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(stamped)]

    def _make_room(self, n_bytes: int) -> None:
        paths = self._by_use()
        total = sum(path.stat().st_size for path in paths)
        for path in paths:
            if total + n_bytes <= self._most_bytes:
                return
            total -= path.stat().st_size
            path.unlink(missing_ok=True)


def model_digest(path: Path, folder: Path) -> str:
    """Return the SHA-256 of a model's bytes, remembered in ``folder`` by its path, size and time.

    Raises:
        OSError: the model cannot be read or the folder not be written.
    """
    stat = path.stat()
    key = f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ino}"
    index = folder / _DIGESTS
    known: object = None
    with contextlib.suppress(FileNotFoundError, ValueError):
        known = json.loads(index.read_text(encoding="utf-8"))
    if not isinstance(known, dict) or key not in known:
        digest = files.sha256_of(path)
        folder.mkdir(parents=True, exist_ok=True)
        known = {key: digest}
        files.write_whole(index, json.dumps(known).encode())
    return str(known[key])
