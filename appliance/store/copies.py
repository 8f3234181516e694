"""Copies of the store's file: taken while it is in use, and checked before they are trusted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import SchemaTooNewError, StoreCorruptError
from appliance.store.db import translated
from appliance.store.migrations import STEPS

_PAGES_PER_STEP = 256


@dataclass(frozen=True)
class CopyFacts:
    """What a checked copy holds."""

    schema: int
    n_documents: int
    n_passages: int
    n_conversations: int


def copy_database(
    source: Path, target: Path, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> None:
    """Copy the store to ``target`` with SQLite's backup API; the store may be in use meanwhile.

    Args:
        source: the store's file.
        target: the file to write; it must not exist.
        progress: told pages copied and pages in all.

    Raises:
        StoreError: the source cannot be read; StoreFullError when the target's disk is full.
    """
    with translated(source):
        # Not "immutable": what is only in the write-ahead log belongs to the copy.
        reader = sqlite3.connect(f"file:{_quoted(source)}?mode=ro", uri=True, timeout=30.0)
        try:
            writer = sqlite3.connect(target)
            try:
                reader.backup(
                    writer,
                    pages=_PAGES_PER_STEP,
                    progress=lambda _status, left, all_pages: progress(all_pages - left, all_pages),
                )
                # The copy is one file, wherever it is taken.
                writer.execute("PRAGMA journal_mode = DELETE")
            finally:
                writer.close()
        finally:
            reader.close()


def check_copy(path: Path) -> CopyFacts:
    """Check a copy whole and return what it holds; nothing is written.

    Raises:
        StoreCorruptError: SQLite's integrity check failed.
        SchemaTooNewError: a newer version wrote it.
        StoreError: it cannot be read.
    """
    with translated(path):
        db = sqlite3.connect(f"file:{_quoted(path)}?mode=ro&immutable=1", uri=True)
        try:
            found = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
            if found != "ok":
                raise StoreCorruptError(path=str(path), cause=found)
            schema = int(db.execute("PRAGMA user_version").fetchone()[0])
            if schema > len(STEPS):
                raise SchemaTooNewError(path=str(path), found=schema, known=len(STEPS))
            if schema == 0:
                raise StoreCorruptError(path=str(path), cause="no schema")
            counts = [
                int(db.execute(query).fetchone()[0])
                for query in (
                    "SELECT count(*) FROM documents",
                    "SELECT count(*) FROM passages",
                    "SELECT count(*) FROM conversations",
                )
            ]
        finally:
            db.close()
    return CopyFacts(schema, *counts)


def _quoted(path: Path) -> str:
    """Return the path for an SQLite URI."""
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
