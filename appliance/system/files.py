"""Files that appear whole: temporary name in the same folder, fsync, rename, fsync of the folder.

A power cut leaves the old content or the new one, never a part. Temporary names begin with a dot
and end in ``.part``; the inbox ignores both.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import resource
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_BLOCK = 1 << 20
_MOST_OPEN = 16384
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def allow_many_open() -> None:
    """Raise this process's limit of open files to what the system grants it.

    The usual soft limit of 1,024 is used up by that many connections; children inherit the new one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN if hard == resource.RLIM_INFINITY else min(hard, _MOST_OPEN)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(
    path: Path, n_bytes: int | None = None, on_block: Callable[[int], None] | None = None
) -> str:
    """Return the hexadecimal SHA-256 of a file, or of its first ``n_bytes``."""
    digest, left = hashlib.sha256(), n_bytes
    n_read = 0
    with path.open("rb") as file:
        while left is None or left > 0:
            block = file.read(_BLOCK if left is None else min(_BLOCK, left))
            if not block:
                break
            digest.update(block)
            n_read += len(block)
            left = None if left is None else left - len(block)
            if on_block is not None:
                on_block(n_read)
    return digest.hexdigest()


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace ``path`` by ``content`` in one step; the folder must exist.

    Raises:
        OSError: what the system refused; ``path`` is then as it was.
    """
    temporary = _temporary_beside(path)
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
        ) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


class NewFile:
    """A file on its way; ``commit`` gives it its name. See ``new_file_beside``."""

    def __init__(self, file: BinaryIO, temporary: Path, wanted: Path) -> None:
        self._file = file
        self._temporary = temporary
        self._wanted = wanted

    def write(self, block: bytes) -> None:
        """Append ``block``."""
        self._file.write(block)

    def commit(self) -> Path:
        """Make the file durable and give it the first free name; returns that name.

        The names tried are ``name.ext``, ``name (2).ext``, ``name (3).ext`` and so on. An existing
        file is never replaced, even when two uploads of one name race.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        for n in itertools.count(1):
            path = self._wanted
            if n > 1:
                path = path.with_name(f"{self._wanted.stem} ({n}){self._wanted.suffix}")
            try:
                _rename_to_new(self._temporary, path)
            except FileExistsError:
                continue
            sync_folder(path.parent)
            return path
        raise AssertionError


@contextlib.contextmanager
def new_file_beside(wanted: Path) -> Iterator[NewFile]:
    """Write a new file that appears under ``wanted``, or a free name like it, only when committed.

    Leaving without ``commit`` leaves nothing behind.

    Raises:
        OSError: what the system refused.
    """
    temporary = _temporary_beside(wanted)
    try:
        with temporary.open("xb") as file:
            yield NewFile(file, temporary, wanted)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_beside(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(8)}.part")


def _rename_to_new(temporary: Path, path: Path) -> None:
    """Rename without replacing; file systems without hard links (exFAT) claim the name first."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        temporary.replace(path)
