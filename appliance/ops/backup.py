"""Backups: one file with the store, the configuration and the documents; taken while the box runs.

A backup is an uncompressed tar archive (documents are compressed already, and a board has better
things to do). Its last member is the manifest with the SHA-256 of every other one, so a stick that
was pulled out too early is noticed. It appears under its name only when it is whole.

    appliance.db      the store, copied with SQLite's backup API and checked
    appliance.yaml    the configuration, if there is one
    inbox/...         the documents, unless left out
    manifest.json     what is inside
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from appliance import __version__
from appliance.config import CONFIG_NAME, Config
from appliance.errors import BackupError, StoreFullError
from appliance.store.copies import CopyFacts, check_copy, copy_database
from appliance.store.db import take_lock
from appliance.system.files import sync_folder

MANIFEST = "manifest.json"
DATABASE = "appliance.db"
INBOX = "inbox"
FORMAT = 1
KEEP = 7

_BLOCK = 1024 * 1024
_NAME = re.compile(r"appliance-(\d{8}-\d{6})(?:-(\d+))?\.tar")
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Report = Callable[[int, int], None]
"""Told bytes done and bytes in all, now and then."""


def _silent(_done: int, _all: int) -> None:
    pass


@dataclass(frozen=True)
class Manifest:
    """What a backup holds.

    ``members`` maps each member's name to its SHA-256 in hexadecimal digits.
    """

    created: str
    version: str
    schema: int
    n_documents: int
    n_passages: int
    n_files: int
    n_bytes: int
    members: dict[str, str] = field(repr=False, default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, members left out."""
        return {key: value for key, value in vars(self).items() if key != "members"}


def default_folder(config: Config) -> Path:
    """Return where backups go if nothing else is said."""
    return config.data / "backups"


def list_backups(folder: Path) -> list[Path]:
    """Return the backups in a folder, newest first; half a backup is never among them."""
    if not folder.is_dir():
        return []
    named = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    dated = [(name[1], int(name[2] or 1), path) for name, path in named if name]
    return [path for _, _, path in sorted(dated, reverse=True)]


# --------------------------------------------------------------------------------------------------
# taking one


def create(
    config: Config,
    folder: Path,
    *,
    with_documents: bool = True,
    keep: int = KEEP,
    report: Report = _silent,
) -> tuple[Path, Manifest, list[Path]]:
    """Write a backup into ``folder``; the daemon may run meanwhile.

    Args:
        config: what is in force.
        folder: where to; made when missing.
        with_documents: also take the inbox.
        keep: backups to keep there; older ones are removed once the new one is whole. 0: all.
        report: told bytes done and in all.

    Returns:
        The file, what it holds, and the older backups that were removed.

    Raises:
        BackupError: nothing to save yet, no space, a document changed while it was copied, or the
            folder cannot be written.
        StoreError: the store cannot be read or is damaged.
    """
    if not config.database.exists():
        raise BackupError("backup_nothing", path=str(config.database))
    documents = list(_documents(config.inbox_dir)) if with_documents else []
    n_bytes = config.database.stat().st_size + sum(path.stat().st_size for path, _ in documents)
    with _writing(folder, n_bytes):
        folder.mkdir(parents=True, exist_ok=True)
        # The copy of the store and the archive with it are there at the same time.
        if shutil.disk_usage(folder).free < n_bytes + config.database.stat().st_size:
            raise BackupError("backup_no_space", path=str(folder), n_bytes=n_bytes)
        temporary = folder / f".{secrets.token_hex(8)}.part"
        copied = folder / f".{secrets.token_hex(8)}.db.part"
        try:
            copy_database(config.database, copied)
            facts = check_copy(copied)
            manifest = _write_archive(temporary, config, copied, facts, documents, n_bytes, report)
            target = _free_name(folder)
            temporary.replace(target)
            sync_folder(folder)
        finally:
            temporary.unlink(missing_ok=True)
            copied.unlink(missing_ok=True)
        removed = list_backups(folder)[keep:] if keep else []
        for path in removed:
            path.unlink()
    return target, manifest, removed


@contextlib.contextmanager
def _writing(folder: Path, n_bytes: int) -> Iterator[None]:
    try:
        yield
    except StoreFullError as error:
        raise BackupError("backup_no_space", path=str(folder), n_bytes=n_bytes) from error
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise BackupError("backup_no_space", path=str(folder), n_bytes=n_bytes) from error
        cause = error.strerror or str(error)
        raise BackupError("backup_unwritable", path=str(folder), cause=cause) from error


def _documents(inbox: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file of the inbox with its name in the archive; hidden and half files left out."""
    for parent, folders, names in os.walk(inbox):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent) / name
            if name.startswith(".") or name.endswith(".part") or not path.is_file():
                continue
            if not path.is_symlink():
                yield path, f"{INBOX}/{path.relative_to(inbox).as_posix()}"


def _write_archive(
    target: Path,
    config: Config,
    database: Path,
    facts: CopyFacts,
    documents: list[tuple[Path, str]],
    n_bytes: int,
    report: Report,
) -> Manifest:
    members: dict[str, str] = {}
    done = 0

    def add(archive: tarfile.TarFile, path: Path, name: str) -> None:
        nonlocal done
        try:
            file = path.open("rb")
        except FileNotFoundError:
            # Removed since it was listed: it is no document any more.
            return
        with file:
            status = os.fstat(file.fileno())
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = status.st_size, status.st_mtime, 0o640
            reader = _Hashing(file)
            try:
                archive.addfile(entry, reader)
            except OSError as error:
                if error.errno is None:
                    # tarfile's word for a file that ended earlier than it was long.
                    raise BackupError("backup_document_changed", path=str(path)) from error
                raise
            members[name] = reader.hexdigest()
        done += entry.size
        report(min(done, n_bytes), n_bytes)

    with target.open("xb") as raw:
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
            add(archive, database, DATABASE)
            if (config.data / CONFIG_NAME).is_file():
                add(archive, config.data / CONFIG_NAME, CONFIG_NAME)
            for path, name in documents:
                add(archive, path, name)
            manifest = Manifest(
                created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                version=__version__,
                schema=facts.schema,
                n_documents=facts.n_documents,
                n_passages=facts.n_passages,
                n_files=sum(name.startswith(f"{INBOX}/") for name in members),
                n_bytes=done,
                members=members,
            )
            _add_manifest(archive, manifest)
        raw.flush()
        os.fsync(raw.fileno())
    return manifest


def _add_manifest(archive: tarfile.TarFile, manifest: Manifest) -> None:
    # Names that are no UTF-8 (a GBK file name) keep their bytes as JSON escapes.
    content = json.dumps({"format": FORMAT, **vars(manifest)}).encode("ascii")
    entry = tarfile.TarInfo(MANIFEST)
    entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o640
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        archive.addfile(entry, file)


def _free_name(folder: Path) -> Path:
    """Return a name that sorts after every backup of this second."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    taken = [_NAME.fullmatch(path.name) for path in list_backups(folder)]
    numbers = [int(name[2] or 1) for name in taken if name and name[1] == stamp]
    number = max(numbers, default=0) + 1
    return folder / (f"appliance-{stamp}-{number}.tar" if number > 1 else f"appliance-{stamp}.tar")


class _Hashing:
    """A file that is hashed while it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, n: int = -1) -> bytes:
        """Return up to ``n`` bytes."""
        block = self._file.read(n)
        self._hash.update(block)
        return block

    def hexdigest(self) -> str:
        """Return the SHA-256 of what was read."""
        return self._hash.hexdigest()


# --------------------------------------------------------------------------------------------------
# reading one


def verify(path: Path, report: Report = _silent) -> Manifest:
    """Read a backup whole, compare every digest, check the store inside; nothing is changed.

    Raises:
        BackupError: it is no backup, is damaged or not whole.
        StoreError: the store inside is damaged, or of a newer version.
    """
    with tempfile.TemporaryDirectory(prefix="appliance-verify-") as folder:
        return _unpack(path, Path(folder), {DATABASE}, report)


def restore(
    path: Path, config: Config, *, replace: bool = False, report: Report = _silent
) -> tuple[Manifest, Path | None]:
    """Put a backup's store, configuration and documents in place; the daemon must not run.

    What was there before is moved into a folder ``before-restore-...`` of the data folder, never
    deleted. Everything is unpacked and checked before anything is moved.

    Args:
        path: the backup.
        config: names the data folder.
        replace: allow it when the data folder already has a store or documents.
        report: told bytes done and in all.

    Returns:
        What was restored, and where the old content is (None if there was none).

    Raises:
        BackupError: the backup is damaged, there is something to replace, or no space.
        StoreError: a daemon runs on the data folder, or the store inside cannot be used.
    """
    data, inbox = config.data, config.inbox_dir
    has_old = config.database.exists() or any(True for _ in _documents(inbox))
    if has_old and not replace:
        raise BackupError("backup_would_replace", path=str(data))
    with _writing(data, path.stat().st_size if path.exists() else 0):
        data.mkdir(parents=True, exist_ok=True)
        lock = take_lock(config.database)
        stage = data / f".restore-{secrets.token_hex(4)}.part"
        try:
            stage.mkdir()
            manifest = _unpack(path, stage, None, report)
            old = data / time.strftime("before-restore-%Y%m%d-%H%M%S") if has_old else None
            _swap(config, stage, old, with_inbox=manifest.n_files > 0)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            os.close(lock)
    return manifest, old


def _swap(config: Config, stage: Path, old: Path | None, *, with_inbox: bool) -> None:
    data, inbox = config.data, config.inbox_dir
    if old is not None:
        old.mkdir()
    if with_inbox:
        if inbox.exists():
            (inbox.rename(old / INBOX) if old is not None else inbox.rmdir())
        (stage / INBOX).rename(inbox)
        inbox.chmod(0o770)
    if (stage / CONFIG_NAME).exists():
        if (data / CONFIG_NAME).exists() and old is not None:
            os.link(data / CONFIG_NAME, old / CONFIG_NAME)
        (stage / CONFIG_NAME).replace(data / CONFIG_NAME)
    if config.database.exists() and old is not None:
        os.link(config.database, old / DATABASE)
        # A log that belongs to the old file would be applied to the new one.
        for suffix in ("-wal", "-shm"):
            log = config.database.with_name(DATABASE + suffix)
            if log.exists():
                log.rename(old / log.name)
    (stage / DATABASE).replace(config.database)
    sync_folder(data)
    _give_to_owner(data, inbox)


def _give_to_owner(data: Path, inbox: Path) -> None:
    """Hand what root restored to the user the data folder belongs to."""
    owner = data.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    below = [p for top in (inbox,) if top.exists() for p in (top, *top.rglob("*"))]
    for path in (data / DATABASE, data / CONFIG_NAME, *below):
        if path.exists():
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _unpack(path: Path, folder: Path, wanted: set[str] | None, report: Report) -> Manifest:
    """Write members into ``folder``, hashing all of them; ``wanted`` None means every one."""
    found: dict[str, str] = {}
    manifest: Manifest | None = None
    try:
        size = path.stat().st_size
        with tarfile.open(path, "r:") as archive:
            for entry in archive:
                source = archive.extractfile(entry) if entry.isreg() else None
                if source is None or not _is_ours(entry.name):
                    raise BackupError("backup_damaged", path=str(path), cause=entry.name)
                if entry.name == MANIFEST:
                    manifest = _manifest(json.load(source))
                    continue
                is_wanted = wanted is None or entry.name in wanted
                target = folder / entry.name if is_wanted else None
                found[entry.name] = _copy(source, target, entry)
                report(min(archive.offset, size), size)
    except FileNotFoundError as error:
        raise BackupError("backup_not_found", path=str(path)) from error
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as error:
        raise BackupError("backup_damaged", path=str(path), cause=str(error)) from error
    if manifest is None:
        raise BackupError("backup_damaged", path=str(path), cause="its end is missing")
    names = {*found, *manifest.members}
    wrong = sorted(name for name in names if found.get(name) != manifest.members.get(name))
    if wrong:
        raise BackupError("backup_damaged", path=str(path), cause=wrong[0])
    check_copy(folder / DATABASE)
    return manifest


def _is_ours(name: str) -> bool:
    """Return whether a member may be written below the data folder."""
    parts = PurePosixPath(name).parts
    if name in (DATABASE, CONFIG_NAME, MANIFEST):
        return True
    return len(parts) > 1 and parts[0] == INBOX and ".." not in parts


def _manifest(said: dict[str, Any]) -> Manifest:
    if said.pop("format") != FORMAT:
        raise ValueError("a format of another version")
    return Manifest(**said)


def _copy(source: Any, target: Path | None, entry: tarfile.TarInfo) -> str:  # noqa: ANN401
    digest = hashlib.sha256()
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") if target is not None else contextlib.nullcontext() as file:
        n_bytes = 0
        while block := source.read(_BLOCK):
            digest.update(block)
            n_bytes += len(block)
            if file is not None:
                file.write(block)
        if n_bytes != entry.size:
            raise tarfile.ReadError(f"{entry.name} ends too early")
        if file is not None:
            file.flush()
            os.fsync(file.fileno())
    if target is not None:
        # Same time as before, so that the inbox does not look changed.
        os.utime(target, (entry.mtime, entry.mtime))
    return digest.hexdigest()
