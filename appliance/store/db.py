"""Connections to the one SQLite file: one writer behind a lock, a reader per thread.

Every foreign exception is translated here, once. WAL with ``synchronous=FULL``: a committed
transaction survives a power cut, which is what the whole box promises.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from appliance.errors import StoreCorruptError, StoreError, StoreFullError
from appliance.store.migrations import migrate

_PAGE_CACHE_KIB = 8 * 1024
_BUSY_TIMEOUT_S = 30.0

_LOCK_WAIT_S = 2.0
"""How long a start waits for the lock: a daemon killed while it started a child leaves the lock to
that child until it has become the parser, which a busy board may take a second for.
"""


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn sqlite3's exceptions about the file ``path`` into the store's."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "disk is full" in text or "disk full" in text:
            raise StoreFullError(path=str(path)) from error
        if "malformed" in text or "not a database" in text or "corrupt" in text:
            raise StoreCorruptError(path=str(path), cause=text) from error
        raise StoreError(path=str(path), cause=text) from error


def take_lock(path: Path) -> int:
    """Return a descriptor that holds the lock of the store ``path``; closing it gives it back.

    Raises:
        StoreError: ``store_locked`` when another process has it, or the folder cannot be used.
        StoreFullError: no space for the lock's file.
    """
    lock_path = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreFullError(path=str(path)) from error
        raise StoreError(path=str(path), cause=str(error)) from error
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if time.monotonic() < deadline:
                time.sleep(_LOCK_WAIT_S / 50)
                continue
            holder = os.read(fd, 32).decode("ascii", "replace").strip()
            os.close(fd)
            raise StoreError("store_locked", path=str(path), pid=holder or "?") from error
    try:
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
    except OSError as error:
        os.close(fd)
        if error.errno == errno.ENOSPC:
            raise StoreFullError(path=str(path)) from error
        raise StoreError(path=str(path), cause=str(error)) from error
    return fd


class Database:
    """The file, its lock and its connections."""

    def __init__(self, path: Path) -> None:
        """Open, check and migrate ``path``; create it when missing.

        Raises:
            StoreError: ``store_locked`` when another process has it open, or it cannot be opened.
            StoreCorruptError: SQLite's quick check failed.
            SchemaTooNewError: written by a newer version.
            StoreFullError: no space for the first pages.
        """
        self.path = path
        self._closed = False
        self._write_lock = threading.RLock()
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = threading.Lock()
        self._lock_fd = take_lock(path)
        try:
            with self.translated():
                self._writer = self._connect()
                try:
                    self._check()
                    migrate(self._writer, str(path))
                except BaseException:
                    self._writer.close()
                    raise
        except BaseException:
            os.close(self._lock_fd)
            raise

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            db.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
            db.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            db.close()
            raise
        return db

    def _check(self) -> None:
        found = self._writer.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreCorruptError(path=str(self.path), cause=str(found))

    def translated(self) -> contextlib.AbstractContextManager[None]:
        """Turn sqlite3's exceptions into the store's."""
        return translated(self.path)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other writers out, so that what mirrors the file in memory changes in its order."""
        with self._write_lock:
            yield

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed at the end, rolled back on any exception."""
        with self._write_lock, self.translated():
            if self._closed:
                raise StoreError(path=str(self.path), cause="closed")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                # After SQLITE_FULL or an I/O error SQLite may have rolled back by itself.
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """This thread's own connection; sees the last committed state."""
        with self.translated():
            db: sqlite3.Connection | None = getattr(self._local, "db", None)
            if db is None:
                with self._readers_lock:
                    if self._closed:
                        raise StoreError(path=str(self.path), cause="closed")
                    db = self._connect()
                    db.execute("PRAGMA query_only = ON")
                    self._readers.append(db)
                self._local.db = db
                self._local.token = _CloseWithThread(lambda: self._drop_reader(db))
            yield db

    def _drop_reader(self, db: sqlite3.Connection) -> None:
        with self._readers_lock:
            if db in self._readers:
                self._readers.remove(db)
                db.close()

    def size_bytes(self) -> int:
        """Return the size of the file, not of what waits beside it."""
        return self.path.stat().st_size

    def vacuum(self) -> None:
        """Write the file anew without its free pages, and shorten it."""
        with self._write_lock, self.translated():
            if self._closed:
                raise StoreError(path=str(self.path), cause="closed")
            self._writer.execute("VACUUM")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Checkpoint and close everything; idempotent."""
        with self._write_lock, self._readers_lock:
            if self._closed:
                return
            self._closed = True
            for db in self._readers:
                db.close()
            self._readers.clear()
            with contextlib.suppress(sqlite3.Error):
                # Only a tidy-up: an unfinished checkpoint is done at the next open.
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._writer.close()
            os.close(self._lock_fd)


class _CloseWithThread:
    """Lives in a thread's locals, so that the thread's end closes its connection."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._pid = os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self._pid:
            # A forked child loses the locals of every other thread. The connections are the
            # parent's, and a lock that one of its threads held at the fork is never given back.
            return
        with contextlib.suppress(Exception):
            self._close()
