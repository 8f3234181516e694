"""Files, documents and passages: note, commit, replace, forget.

Every method that changes what can be found is one transaction over documents, passages, keyword
index and vectors, and returns the passages that are gone, so that the matrix in memory follows.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence

from appliance.errors import Fact, NotFoundError
from appliance.store.db import Database
from appliance.store.rows import (
    ASKED_FOR,
    DocumentRow,
    FileRow,
    FileState,
    ParsedMeta,
    PassageRow,
    collection_of,
    display_of,
)
from appliance.store.search import IN_COLLECTION
from appliance.text.chunk import NewPassage
from appliance.text.cjk import index_terms

_SQL_VARIABLES = 900
"""SQLite before 3.32 allowed 999 bound values; stay below whatever the build says."""

_FILE_COLUMNS = (
    "path, display, collection, size_bytes, mtime_ns, state, document_id, error_code, error_facts,"
    " attempts"
)

_FROM_FILE = f"FROM files f WHERE f.document_id = p.document_id ORDER BY {IN_COLLECTION} DESC, f.id"
_PASSAGE_COLUMNS = (
    "p.id, p.document_id, p.ordinal, p.text, p.page, p.heading, p.line_from, p.line_to,"
    " p.char_from, p.char_to, p.place, d.title,"
    f" (SELECT display {_FROM_FILE} LIMIT 1) AS path,"
    f" (SELECT collection {_FROM_FILE} LIMIT 1) AS collection"
)


def terms_text(text: str, heading: str | None = None) -> str:
    """Return what the keyword index holds for a passage."""
    return " ".join(index_terms(f"{heading}\n{text}" if heading else text))


class DocumentsTable:
    """Rows of ``files``, ``documents`` and ``passages``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # Files

    def files(self) -> list[FileRow]:
        """Return every known file in path order."""
        with self._db.read() as db:
            rows = db.execute(f"SELECT {_FILE_COLUMNS} FROM files ORDER BY path").fetchall()  # noqa: S608
        return [_file(row) for row in rows]

    def file(self, path: bytes) -> FileRow | None:
        """Return one file or None."""
        with self._db.read() as db:
            row = db.execute(
                f"SELECT {_FILE_COLUMNS} FROM files WHERE path = ?",  # noqa: S608
                (path,),
            ).fetchone()
        return _file(row) if row else None

    def pending_files(self, limit: int) -> list[FileRow]:
        """Return files waiting to be read, newest first."""
        with self._db.read() as db:
            rows = db.execute(
                f"SELECT {_FILE_COLUMNS} FROM files"  # noqa: S608
                " WHERE state IN ('seen', 'settled', 'hashed') ORDER BY mtime_ns DESC, id LIMIT ?",
                (limit,),
            ).fetchall()
        return [_file(row) for row in rows]

    def note(self, path: bytes, size_bytes: int, mtime_ns: int) -> FileRow:
        """Record a file that is new or changed; an unchanged one is left as it is."""
        with self._db.write() as db:
            self._note(db, path, size_bytes, mtime_ns)
            return _file(self._row(db, path))

    def _note(self, db: sqlite3.Connection, path: bytes, size_bytes: int, mtime_ns: int) -> None:
        display = display_of(path)
        db.execute(
            "INSERT INTO files"
            " (path, display, collection, size_bytes, mtime_ns, state, noted_at)"
            " VALUES (?, ?, ?, ?, ?, 'seen', ?)"
            " ON CONFLICT (path) DO UPDATE SET size_bytes = excluded.size_bytes,"
            " mtime_ns = excluded.mtime_ns, state = 'seen', attempts = 0, error_code = NULL,"
            " error_facts = '{}', noted_at = excluded.noted_at"
            " WHERE files.size_bytes <> excluded.size_bytes"
            " OR files.mtime_ns <> excluded.mtime_ns",
            (path, display, collection_of(display), size_bytes, mtime_ns, time.time()),
        )

    def apply_listing(
        self,
        moved: Sequence[tuple[bytes, bytes]],
        gone: Sequence[bytes],
        noted: Sequence[tuple[bytes, int, int]],
    ) -> list[int]:
        """Follow a whole look at the folder in one transaction."""
        with self._db.write() as db:
            for old, new in moved:
                self._move(db, old, new)
            dropped = self._forget(db, gone)
            for path, size_bytes, mtime_ns in noted:
                self._note(db, path, size_bytes, mtime_ns)
            return dropped

    def set_state(self, path: bytes, state: FileState) -> None:
        """Move a file to a state between ``seen`` and ``hashed``."""
        with self._db.write() as db:
            db.execute("UPDATE files SET state = ? WHERE path = ?", (state, path))

    def begin_attempt(self, path: bytes) -> int:
        """Count an attempt to read a file, durably before it starts; returns the count."""
        with self._db.write() as db:
            row = db.execute(
                "UPDATE files SET attempts = attempts + 1 WHERE path = ? RETURNING attempts",
                (path,),
            ).fetchone()
            n = int(row[0]) if row else 0
            return n - ASKED_FOR if n < 0 else n

    def undo_attempt(self, path: bytes) -> None:
        """Take back an attempt that the file was not to blame for (a full disk)."""
        with self._db.write() as db:
            db.execute(
                "UPDATE files SET attempts = attempts - 1"
                " WHERE path = ? AND attempts NOT IN (0, ?)",
                (path, ASKED_FOR),
            )

    def renote(self, path: bytes, size_bytes: int, mtime_ns: int) -> None:
        """Record that a file changed while it was read, whatever its size and time say."""
        with self._db.write() as db:
            db.execute(
                "UPDATE files SET size_bytes = ?, mtime_ns = ?, state = 'seen', attempts = 0"
                " WHERE path = ?",
                (size_bytes, mtime_ns, path),
            )

    def requeue(self, path: bytes) -> None:
        """Have a file read again whatever its state, and its document made anew."""
        with self._db.write() as db:
            db.execute(
                "UPDATE files SET state = 'seen', attempts = ?, error_code = NULL,"
                " error_facts = '{}' WHERE path = ?",
                (ASKED_FOR, path),
            )

    def fail(self, path: bytes, code: str, facts: dict[str, Fact]) -> list[int]:
        """Mark a file failed and drop what it said before."""
        with self._db.write() as db:
            return self._unlink(
                db,
                path,
                "state = 'failed', error_code = ?, error_facts = ?",
                (code, json.dumps(facts, ensure_ascii=False)),
            )

    def ignore(self, path: bytes) -> list[int]:
        """Forget a file's text but remember the path as unwanted until its bytes change."""
        with self._db.write() as db:
            return self._unlink(db, path, "state = 'ignored'", ())

    def forget(self, paths: Iterable[bytes]) -> list[int]:
        """Remove files that are gone, and documents no other file holds."""
        with self._db.write() as db:
            return self._forget(db, paths)

    def move(self, old: bytes, new: bytes) -> None:
        """Rename a file; its document stays as it is."""
        with self._db.write() as db:
            self._move(db, old, new)

    def _move(self, db: sqlite3.Connection, old: bytes, new: bytes) -> None:
        display = display_of(new)
        db.execute(
            "UPDATE files SET path = ?, display = ?, collection = ? WHERE path = ?",
            (new, display, collection_of(display), old),
        )

    def _forget(self, db: sqlite3.Connection, paths: Iterable[bytes]) -> list[int]:
        dropped: list[int] = []
        for path in paths:
            row = db.execute(
                "DELETE FROM files WHERE path = ? RETURNING document_id", (path,)
            ).fetchone()
            if row is not None:
                dropped += self._drop_if_unlinked(db, row[0])
        return dropped

    def _unlink(
        self, db: sqlite3.Connection, path: bytes, change: str, values: tuple[str, ...]
    ) -> list[int]:
        """Set a file's state and part it from its document."""
        row = db.execute("SELECT document_id FROM files WHERE path = ?", (path,)).fetchone()
        if row is None:
            return []
        db.execute(
            f"UPDATE files SET {change}, document_id = NULL WHERE path = ?",  # noqa: S608
            (*values, path),
        )
        return self._drop_if_unlinked(db, row[0])

    # Documents

    def link_existing(
        self, path: bytes, sha256: bytes, noted: FileRow | None
    ) -> tuple[int | None, list[int]]:
        """Point a file at the document with these bytes, if there is one."""
        with self._db.write() as db:
            row = db.execute("SELECT id FROM documents WHERE sha256 = ?", (sha256,)).fetchone()
            if row is None:
                return None, []
            return int(row["id"]), self._link(db, path, row["id"], noted)

    def commit(
        self,
        path: bytes,
        sha256: bytes,
        size_bytes: int,
        parsed: ParsedMeta,
        passages: Sequence[NewPassage],
        noted: FileRow | None,
    ) -> tuple[int, list[int]]:
        """Write a parsed document and point the file at it; what it said before goes with it."""
        terms = [terms_text(p.text, p.heading) for p in passages]
        with self._db.write() as db:
            gone = self._drop_same(db, sha256)
            document_id = self._next_id(db)
            db.execute(
                "INSERT INTO documents (id, sha256, size_bytes, format, title, encoding, n_pages,"
                " problems, state, added_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'searchable', ?)",
                (
                    document_id,
                    sha256,
                    size_bytes,
                    parsed.format,
                    parsed.title,
                    parsed.encoding,
                    parsed.n_pages,
                    json.dumps(parsed.problems, ensure_ascii=False),
                    time.time(),
                ),
            )
            for p, text in zip(passages, terms, strict=True):
                passage_id = db.execute(
                    "INSERT INTO passages (document_id, ordinal, text, page, heading, line_from,"
                    " line_to, char_from, char_to, place)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
                    (
                        document_id,
                        p.ordinal,
                        p.text,
                        p.page,
                        p.heading,
                        p.line_from,
                        p.line_to,
                        p.char_from,
                        p.char_to,
                        p.place,
                    ),
                ).fetchone()[0]
                db.execute(
                    "INSERT INTO passages_fts (rowid, terms) VALUES (?, ?)", (passage_id, text)
                )
            gone += self._link(db, path, document_id, noted)
            return document_id, gone

    def _next_id(self, db: sqlite3.Connection) -> int:
        """Return an id no document ever had: an old citation must not open a new document."""
        return int(
            db.execute(
                "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'last_document'"
                " RETURNING value"
            ).fetchone()[0]
        )

    def documents(self) -> list[DocumentRow]:
        """Return every document, the newest first."""
        with self._db.read() as db:
            rows = db.execute("SELECT * FROM documents ORDER BY added_at DESC, id DESC").fetchall()
            counts = dict(
                db.execute(
                    "SELECT document_id, count(*) FROM passages GROUP BY document_id"
                ).fetchall()
            )
            paths: dict[int, list[str]] = {}
            for row in db.execute(
                "SELECT document_id, display FROM files WHERE document_id IS NOT NULL ORDER BY id"
            ):
                paths.setdefault(row["document_id"], []).append(row["display"])
        return [_document(r, counts.get(r["id"], 0), tuple(paths.get(r["id"], ()))) for r in rows]

    def document(self, document_id: int) -> DocumentRow:
        """Return one document.

        Raises:
            NotFoundError: no such document.
        """
        with self._db.read() as db:
            row = db.execute("SELECT * FROM documents WHERE id = ?", (document_id,)).fetchone()
            if row is None:
                raise NotFoundError("document_not_found", name=str(document_id))
            n = db.execute(
                "SELECT count(*) FROM passages WHERE document_id = ?", (document_id,)
            ).fetchone()[0]
            paths = tuple(
                r["display"]
                for r in db.execute(
                    "SELECT display FROM files WHERE document_id = ? ORDER BY id", (document_id,)
                )
            )
        return _document(row, n, paths)

    def passages(self, document_id: int) -> list[PassageRow]:
        """Return a document's passages in reading order."""
        with self._db.read() as db:
            rows = db.execute(
                f"SELECT {_PASSAGE_COLUMNS} FROM passages p"  # noqa: S608
                " JOIN documents d ON d.id = p.document_id WHERE p.document_id = :document"
                " ORDER BY p.ordinal",
                {"document": document_id, "collection": None},
            ).fetchall()
        return [PassageRow(**dict(row)) for row in rows]

    def get_passages(
        self, ids: Sequence[int], collection: str | None = None
    ) -> dict[int, PassageRow]:
        """Return passages by id; ids deleted meanwhile are missing.

        A document may have several files: ``path`` is the first one, inside ``collection`` if any.
        """
        found: dict[int, PassageRow] = {}
        with self._db.read() as db:
            for start in range(0, len(ids), _SQL_VARIABLES):
                part = ids[start : start + _SQL_VARIABLES]
                marks = ",".join(f":p{n}" for n in range(len(part)))
                for row in db.execute(
                    f"SELECT {_PASSAGE_COLUMNS} FROM passages p"  # noqa: S608
                    f" JOIN documents d ON d.id = p.document_id WHERE p.id IN ({marks})",
                    {"collection": collection, **{f"p{n}": pid for n, pid in enumerate(part)}},
                ):
                    found[row["id"]] = PassageRow(**dict(row))
        return found

    def _row(self, db: sqlite3.Connection, path: bytes) -> sqlite3.Row:
        row: sqlite3.Row = db.execute(
            f"SELECT {_FILE_COLUMNS} FROM files WHERE path = ?",  # noqa: S608
            (path,),
        ).fetchone()
        return row

    def _link(
        self, db: sqlite3.Connection, path: bytes, document_id: int, noted: FileRow | None
    ) -> list[int]:
        """Point a file at a document; what only this file held before goes."""
        row = db.execute(
            "SELECT document_id, state, size_bytes, mtime_ns FROM files WHERE path = ?", (path,)
        ).fetchone()
        if row is None or row["state"] == "ignored":
            # The file was forgotten, or removed by its owner, while it was read.
            return self._drop_if_unlinked(db, document_id)
        # A change seen while it was read must be read too: the text is good until then.
        has_changed = noted is not None and (
            (noted.size_bytes, noted.mtime_ns) != (row["size_bytes"], row["mtime_ns"])
        )
        db.execute(
            "UPDATE files SET state = ?, document_id = ?, attempts = 0, error_code = NULL,"
            " error_facts = '{}' WHERE path = ?",
            ("seen" if has_changed else "linked", document_id, path),
        )
        return self._drop_if_unlinked(db, row[0])

    def _drop_same(self, db: sqlite3.Connection, sha256: bytes) -> list[int]:
        """Remove a document with these bytes, so that it can be written anew (reindex)."""
        row = db.execute("SELECT id FROM documents WHERE sha256 = ?", (sha256,)).fetchone()
        if row is None:
            return []
        db.execute(
            "UPDATE files SET document_id = NULL, state = 'seen', attempts = 0"
            " WHERE document_id = ?",
            (row[0],),
        )
        return self._drop_if_unlinked(db, row[0])

    def _drop_if_unlinked(self, db: sqlite3.Connection, document_id: int | None) -> list[int]:
        """Remove a document no file points at, everywhere; return the ids of its passages."""
        if document_id is None:
            return []
        held = db.execute(
            "SELECT 1 FROM files WHERE document_id = ? LIMIT 1", (document_id,)
        ).fetchone()
        if held is not None:
            return []
        rows = db.execute(
            "SELECT id, text, heading FROM passages WHERE document_id = ?", (document_id,)
        ).fetchall()
        db.executemany(
            "INSERT INTO passages_fts (passages_fts, rowid, terms) VALUES ('delete', ?, ?)",
            [(row["id"], terms_text(row["text"], row["heading"])) for row in rows],
        )
        db.execute(
            "DELETE FROM vectors WHERE passage_id IN"
            " (SELECT id FROM passages WHERE document_id = ?)",
            (document_id,),
        )
        db.execute("DELETE FROM passages WHERE document_id = ?", (document_id,))
        db.execute("DELETE FROM documents WHERE id = ?", (document_id,))
        return [row["id"] for row in rows]


def _file(row: sqlite3.Row) -> FileRow:
    values = dict(row)
    values["error_facts"] = json.loads(values["error_facts"])
    return FileRow(**values)


def _document(row: sqlite3.Row, n_passages: int, paths: tuple[str, ...]) -> DocumentRow:
    return DocumentRow(
        id=row["id"],
        sha256=row["sha256"],
        size_bytes=row["size_bytes"],
        format=row["format"],
        title=row["title"],
        encoding=row["encoding"],
        n_pages=row["n_pages"],
        n_passages=n_passages,
        problems=tuple(json.loads(row["problems"])),
        state=row["state"],
        added_at=row["added_at"],
        paths=paths,
    )
