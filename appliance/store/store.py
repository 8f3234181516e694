"""The store as the layers above see it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from appliance.errors import Fact, StoreCorruptError, StoreError, StoreFullError
from appliance.store import search
from appliance.store.conversations import ConversationsTable
from appliance.store.db import Database
from appliance.store.documents import DocumentsTable, terms_text
from appliance.store.rows import (
    ConversationRow,
    DocumentRow,
    FileRow,
    FileState,
    ParsedMeta,
    PassageRow,
    TurnRow,
)
from appliance.store.vectors import Background, VectorMatrix, quantise
from appliance.text.chunk import NewPassage
from appliance.text.cjk import TERMS_VERSION


class Store:
    """Documents, passages, both indexes and conversations in one file; any thread may call it."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._documents = DocumentsTable(db)
        self._conversations = ConversationsTable(db)
        self._matrix = VectorMatrix()
        self._rebuild_terms_if_changed()
        self._load_matrix()

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open or create the file; see ``Database`` for what is raised."""
        db = Database(path)
        try:
            return cls(db)
        except BaseException:
            db.close()
            raise

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return self._db.path

    def close(self) -> None:
        """Checkpoint and close; idempotent."""
        self._db.close()

    # Files and documents

    def files(self) -> list[FileRow]:
        """Return every known file in path order."""
        return self._documents.files()

    def file(self, path: bytes) -> FileRow | None:
        """Return one file or None."""
        return self._documents.file(path)

    def pending_files(self, limit: int = 100) -> list[FileRow]:
        """Return files waiting to be read, newest first."""
        return self._documents.pending_files(limit)

    def note_file(self, path: bytes, size_bytes: int, mtime_ns: int) -> FileRow:
        """Record a new or changed file; its old document stays until it is replaced."""
        return self._documents.note(path, size_bytes, mtime_ns)

    def set_file_state(self, path: bytes, state: FileState) -> None:
        """Move a file to ``seen``, ``settled`` or ``hashed``."""
        self._documents.set_state(path, state)

    def begin_attempt(self, path: bytes) -> int:
        """Durably count an attempt to read a file before it starts."""
        return self._documents.begin_attempt(path)

    def undo_attempt(self, path: bytes) -> None:
        """Take back an attempt that the file was not to blame for."""
        self._documents.undo_attempt(path)

    def renote_file(self, path: bytes, size_bytes: int, mtime_ns: int) -> None:
        """Have a file read again because it changed while it was read."""
        self._documents.renote(path, size_bytes, mtime_ns)

    def requeue_file(self, path: bytes) -> None:
        """Have a file read again whatever its state."""
        self._documents.requeue(path)

    def fail_file(self, path: bytes, code: str, facts: dict[str, Fact]) -> None:
        """Mark a file failed; what it said before can no longer be found."""
        with self._db.exclusive():
            self._matrix.remove(self._documents.fail(path, code, facts))

    def ignore_file(self, path: bytes) -> None:
        """Forget a file's text until its bytes change."""
        with self._db.exclusive():
            self._matrix.remove(self._documents.ignore(path))

    def apply_listing(
        self,
        moved: Sequence[tuple[bytes, bytes]],
        gone: Sequence[bytes],
        noted: Sequence[tuple[bytes, int, int]],
    ) -> None:
        """Follow a whole look at the folder (renamed, gone, new or changed) in one transaction."""
        with self._db.exclusive():
            self._matrix.remove(self._documents.apply_listing(moved, gone, noted))

    def forget_files(self, paths: Iterable[bytes]) -> None:
        """Remove files that are gone, in one transaction."""
        with self._db.exclusive():
            self._matrix.remove(self._documents.forget(paths))

    def forget_file(self, path: bytes) -> None:
        """Remove one file that is gone."""
        self.forget_files([path])

    def move_file(self, old: bytes, new: bytes) -> None:
        """Rename a file without reading it again."""
        self._documents.move(old, new)

    def link_existing(self, path: bytes, sha256: bytes, noted: FileRow | None = None) -> int | None:
        """Point a file at the document with these bytes; None if there is none.

        ``noted`` is the file's row as it was when its bytes were read: if the folder's watcher saw
        another change since, the file stays to be read again.
        """
        with self._db.exclusive():
            document_id, gone = self._documents.link_existing(path, sha256, noted)
            self._matrix.remove(gone)
        return document_id

    def commit_document(
        self,
        path: bytes,
        sha256: bytes,
        size_bytes: int,
        parsed: ParsedMeta,
        passages: Sequence[NewPassage],
        noted: FileRow | None = None,
    ) -> int:
        """Write a parsed document in one transaction; returns its id.

        ``noted`` as in ``link_existing``. A file forgotten or ignored meanwhile gets nothing.
        """
        with self._db.exclusive():
            document_id, gone = self._documents.commit(
                path, sha256, size_bytes, parsed, passages, noted
            )
            self._matrix.remove(gone)
        return document_id

    def documents(self) -> list[DocumentRow]:
        """Return every document, the newest first."""
        return self._documents.documents()

    def document(self, document_id: int) -> DocumentRow:
        """Return one document or raise NotFoundError."""
        return self._documents.document(document_id)

    def passages(self, document_id: int) -> list[PassageRow]:
        """Return a document's passages in reading order."""
        return self._documents.passages(document_id)

    def get_passages(
        self, ids: Sequence[int], collection: str | None = None
    ) -> dict[int, PassageRow]:
        """Return passages by id; of several files, ``path`` is one inside ``collection``."""
        return self._documents.get_passages(ids, collection)

    def count_files(self) -> tuple[int, int]:
        """Return how many files wait to be read, and how many there are."""
        with self._db.read() as db:
            row = db.execute(
                "SELECT total(state IN ('seen', 'settled', 'hashed')), count(*) FROM files"
            ).fetchone()
        return int(row[0]), int(row[1])

    # Vectors

    def embedder_id(self) -> str | None:
        """Return the embedder that made the vectors, None before the first."""
        return self.get_meta("embedder")

    def pending_embeddings(self, limit: int) -> list[tuple[int, str]]:
        """Return passages without a vector as (id, text), newest documents first."""
        with self._db.read() as db:
            rows = db.execute(
                "SELECT p.id, p.text FROM documents d JOIN passages p ON p.document_id = d.id"
                " WHERE d.state = 'searchable'"
                " AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.passage_id = p.id)"
                " ORDER BY d.id DESC, p.ordinal LIMIT ?",
                (limit,),
            ).fetchall()
        return [(row[0], row[1]) for row in rows]

    def count_pending_embeddings(self) -> int:
        """Return how many passages have no vector yet."""
        with self._db.read() as db:
            return int(
                db.execute(
                    "SELECT count(*) FROM documents d JOIN passages p ON p.document_id = d.id"
                    " WHERE d.state = 'searchable'"
                    " AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.passage_id = p.id)"
                ).fetchone()[0]
            )

    def add_vectors(
        self, embedder_id: str, ids: Sequence[int], matrix: npt.NDArray[np.float32]
    ) -> None:
        """Store unit vectors; passages deleted meanwhile are skipped, finished documents get ready.

        Raises:
            StoreError: ``embedder_changed`` when the index holds another embedder's vectors.
        """
        rows = quantise(matrix)
        with self._db.exclusive():
            kept = self._write_vectors(embedder_id, ids, rows)
            self._matrix.remove([ids[n] for n in kept])
            self._matrix.add([ids[n] for n in kept], rows[kept])

    def _write_vectors(
        self, embedder_id: str, ids: Sequence[int], rows: npt.NDArray[np.int8]
    ) -> list[int]:
        """Return the positions in ``ids`` that still had a passage."""
        kept: list[int] = []
        with self._db.write() as db:
            known = db.execute("SELECT value FROM meta WHERE key = 'embedder'").fetchone()
            if known is None:
                db.execute("INSERT INTO meta (key, value) VALUES ('embedder', ?)", (embedder_id,))
            elif known[0] != embedder_id:
                raise StoreError("embedder_changed", indexed_with=known[0])
            for n, passage_id in enumerate(ids):
                inserted = db.execute(
                    "INSERT OR REPLACE INTO vectors (passage_id, vector)"
                    " SELECT id, ? FROM passages WHERE id = ?",
                    (rows[n].tobytes(), passage_id),
                ).rowcount
                if inserted:
                    kept.append(n)
            if kept:
                self._finish_documents(db, [ids[n] for n in kept])
        return kept

    def finish_documents(self) -> int:
        """Make documents ready that lack no vector; returns how many that were."""
        with self._db.write() as db:
            return self._finish_documents(db)

    def _finish_documents(self, db: sqlite3.Connection, ids: Sequence[int] | None = None) -> int:
        """Make documents ready that lack no vector: those of some passages, or all."""
        some = ""
        if ids is not None:
            marks = ",".join("?" * len(ids))
            some = f" AND id IN (SELECT document_id FROM passages WHERE id IN ({marks}))"  # noqa: S608
        return db.execute(
            "UPDATE documents SET state = CASE problems WHEN '[]' THEN 'ready' ELSE 'partial' END"  # noqa: S608
            " WHERE state = 'searchable' AND NOT EXISTS (SELECT 1 FROM passages p"
            " WHERE p.document_id = documents.id"
            " AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.passage_id = p.id))" + some,
            tuple(ids or ()),
        ).rowcount

    def reset_vectors(self, embedder_id: str) -> None:
        """Drop every vector and have all documents embedded anew by another model."""
        with self._db.exclusive():
            with self._db.write() as db:
                db.execute("DELETE FROM vectors")
                db.execute("UPDATE documents SET state = 'searchable'")
                db.execute(
                    "INSERT INTO meta (key, value) VALUES ('embedder', ?)"
                    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (embedder_id,),
                )
            self._matrix.replace(np.zeros(0, np.int64), np.zeros((0, 0), np.int8))

    def _load_matrix(self) -> None:
        with self._db.read() as db:
            n, least, most = db.execute(
                "SELECT count(*), min(length(vector)), max(length(vector)) FROM vectors"
            ).fetchone()
            if not n:
                return
            if least != most:
                raise StoreCorruptError(path=str(self.path), cause="vectors of unequal length")
            # Row by row: a list of all blobs would take the matrix's memory once more.
            ids, rows = np.empty(n, np.int64), np.empty((n, most), np.int8)
            for at, row in enumerate(
                db.execute("SELECT passage_id, vector FROM vectors ORDER BY passage_id")
            ):
                ids[at], rows[at] = row[0], np.frombuffer(row[1], np.int8)
        self._matrix.replace(ids, rows)

    # Search

    def keyword_search(
        self, terms: Sequence[str], k: int, scope: search.Scope = search.EVERYWHERE
    ) -> search.KeywordHits:
        """Return passages holding any of ``terms``, by BM25."""
        return search.keyword_search(self._db, terms, k, scope)

    def known_terms(self, terms: Sequence[str]) -> dict[str, int]:
        """Return the document frequency of those ``terms`` that are indexed."""
        return search.known_terms(self._db, terms)

    def vocabulary(self) -> list[tuple[str, int]]:
        """Return every indexed term with its document frequency."""
        return search.vocabulary(self._db)

    def terms_with(self, char: str) -> list[str]:
        """Return indexed bigrams that contain one Chinese character."""
        return search.terms_with(self._db, char)

    def dense_search(
        self, vector: npt.NDArray[np.float32], k: int, scope: search.Scope = search.EVERYWHERE
    ) -> tuple[list[tuple[int, float]], Background | None]:
        """Return the nearest passages as (id, cosine), and the query's background."""
        return search.dense_search(self._db, self._matrix, vector, k, scope)

    # Conversations

    def create_conversation(self, client: str) -> str:
        """Return the id of a new conversation."""
        return self._conversations.create(client)

    def add_turn(self, conversation: str, question: str, answer: dict[str, Any]) -> None:
        """Append a turn."""
        self._conversations.add_turn(conversation, question, answer)

    def turns(self, conversation: str) -> list[TurnRow]:
        """Return the turns of a conversation, oldest first."""
        return self._conversations.turns(conversation)

    def conversations(self) -> list[ConversationRow]:
        """Return every conversation, the newest first."""
        return self._conversations.all()

    def delete_conversation(self, conversation: str) -> None:
        """Delete one conversation."""
        self._conversations.delete(conversation)

    def delete_all_conversations(self) -> int:
        """Delete every conversation."""
        return self._conversations.delete_all()

    # Care

    def get_meta(self, key: str) -> str | None:
        """Return a stored setting."""
        with self._db.read() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        """Store a setting."""
        with self._db.write() as db:
            db.execute(
                "INSERT INTO meta (key, value) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, value),
            )

    def count_pending_work(self) -> int:
        """Return how many files or documents are not finished."""
        with self._db.read() as db:
            return int(db.execute("SELECT count(*) FROM jobs").fetchone()[0])

    def count_passages(self) -> int:
        """Return how many passages there are."""
        return search.count_passages(self._db)

    def has_passages(self, collection: str | None = None) -> bool:
        """Whether anything can be found at all, or in one collection."""
        with self._db.read() as db:
            if collection is None:
                return db.execute("SELECT 1 FROM passages LIMIT 1").fetchone() is not None
            row = db.execute(
                "SELECT 1 FROM passages p JOIN files f ON f.document_id = p.document_id"  # noqa: S608
                f" WHERE {search.IN_COLLECTION} LIMIT 1",
                {"collection": collection},
            ).fetchone()
        return row is not None

    def jobs(self) -> list[dict[str, Any]]:
        """Return pending work, derived from the states of files and documents."""
        with self._db.read() as db:
            return [dict(row) for row in db.execute("SELECT * FROM jobs").fetchall()]

    def stats(self) -> dict[str, Any]:
        """Return the counts of ``kb stats --json``."""
        with self._db.read() as db:
            one = {
                name: int(db.execute(f"SELECT count(*) FROM {name}").fetchone()[0])  # noqa: S608
                for name in ("documents", "passages", "vectors")
            }
            by_state = {
                row[0]: row[1]
                for row in db.execute("SELECT state, count(*) FROM documents GROUP BY state")
            }
            for row in db.execute(
                "SELECT state, count(*) FROM files WHERE state <> 'linked' GROUP BY state"
            ):
                by_state[row[0]] = by_state.get(row[0], 0) + row[1]
        failed = [
            {"path": f.display, "code": f.error_code, "facts": f.error_facts}
            for f in self.files()
            if f.state == "failed"
        ]
        return {**one, "by_state": by_state, "failed": failed}

    def vacuum(self) -> tuple[int, int]:
        """Give freed space back to the disk; returns the file's bytes before and after.

        Searches go on meanwhile, writes wait.

        Raises:
            StoreFullError: no room for the copy that SQLite makes; nothing was changed.
        """
        before = self._db.size_bytes()
        free = shutil.disk_usage(self.path.parent).free
        if free < before:
            raise StoreFullError("vacuum_no_space", needed=before, free=free)
        with self._db.exclusive():
            with self._db.write() as db:
                db.execute("INSERT INTO passages_fts (passages_fts) VALUES ('optimize')")
            self._db.vacuum()
        return before, self._db.size_bytes()

    def check(self) -> list[str]:
        """Return inconsistencies between tables and indexes; an empty list is a healthy store."""
        queries = {
            "passage {} has no document": "SELECT id FROM passages WHERE document_id NOT IN"
            " (SELECT id FROM documents)",
            "vector {} has no passage": "SELECT passage_id FROM vectors WHERE passage_id NOT IN"
            " (SELECT id FROM passages)",
            "document {} has no file": "SELECT id FROM documents WHERE id NOT IN"
            " (SELECT document_id FROM files WHERE document_id IS NOT NULL)",
            "passage {} is not in the keyword index": "SELECT id FROM passages WHERE id NOT IN"
            " (SELECT rowid FROM passages_fts)",
            "keyword row {} has no passage": "SELECT rowid FROM passages_fts WHERE rowid NOT IN"
            " (SELECT id FROM passages)",
            "ready document {} lacks vectors": "SELECT DISTINCT d.id FROM documents d"
            " JOIN passages p ON p.document_id = d.id WHERE d.state <> 'searchable'"
            " AND p.id NOT IN (SELECT passage_id FROM vectors)",
        }
        problems: list[str] = []
        with self._db.read() as db:
            for text, query in queries.items():
                problems += [text.format(row[0]) for row in db.execute(query)]
            problems += [
                f"sqlite: {row[0]}"
                for row in db.execute("PRAGMA integrity_check")
                if row[0] != "ok"
            ]
            n_vectors = int(db.execute("SELECT count(*) FROM vectors").fetchone()[0])
        if n_vectors != len(self._matrix):
            problems.append(f"{n_vectors} vectors stored, {len(self._matrix)} in memory")
        with self._db.write() as writer:
            try:
                writer.execute("INSERT INTO passages_fts (passages_fts) VALUES ('integrity-check')")
            except sqlite3.DatabaseError as error:
                problems.append(f"keyword index: {error}")
        return problems

    def _rebuild_terms_if_changed(self) -> None:
        """Index all passages anew when the way terms are made has changed."""
        known = self.get_meta("terms_version")
        if known == TERMS_VERSION:
            return
        with self._db.write() as db:
            db.execute("INSERT INTO passages_fts (passages_fts) VALUES ('delete-all')")
            for row in db.execute("SELECT id, text, heading FROM passages").fetchall():
                db.execute(
                    "INSERT INTO passages_fts (rowid, terms) VALUES (?, ?)",
                    (row["id"], terms_text(row["text"], row["heading"])),
                )
            db.execute(
                "INSERT INTO meta (key, value) VALUES ('terms_version', ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (TERMS_VERSION,),
            )
