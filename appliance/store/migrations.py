"""The schema as an append-only list of numbered steps, each one transaction with its record.

Never edit a step that was released. States of files and documents, and why pending work is a view,
are explained in docs/architecture.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from appliance.errors import SchemaTooNewError


def m001(db: sqlite3.Connection) -> None:
    """Files, documents, passages, keyword index, vectors, conversations."""
    for statement in (
        """CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT""",
        """CREATE TABLE documents (
            id INTEGER PRIMARY KEY,
            sha256 BLOB NOT NULL UNIQUE CHECK (length(sha256) = 32),
            size_bytes INTEGER NOT NULL,
            format TEXT NOT NULL,
            title TEXT NOT NULL,
            encoding TEXT,
            n_pages INTEGER,
            problems TEXT NOT NULL DEFAULT '[]',
            state TEXT NOT NULL CHECK (state IN ('searchable', 'ready', 'partial')),
            added_at REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE files (
            id INTEGER PRIMARY KEY,
            path BLOB NOT NULL UNIQUE,
            display TEXT NOT NULL,
            collection TEXT NOT NULL,
            size_bytes INTEGER NOT NULL,
            mtime_ns INTEGER NOT NULL,
            state TEXT NOT NULL
                CHECK (state IN ('seen', 'settled', 'hashed', 'linked', 'failed', 'ignored')),
            document_id INTEGER REFERENCES documents (id),
            error_code TEXT,
            error_facts TEXT NOT NULL DEFAULT '{}',
            attempts INTEGER NOT NULL DEFAULT 0,
            noted_at REAL NOT NULL,
            CHECK (state <> 'linked' OR document_id IS NOT NULL),
            CHECK (state <> 'failed' OR error_code IS NOT NULL)
        ) STRICT""",
        "CREATE INDEX files_document ON files (document_id)",
        "CREATE INDEX files_pending ON files (state) WHERE state IN ('seen', 'settled', 'hashed')",
        """CREATE TABLE passages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            document_id INTEGER NOT NULL REFERENCES documents (id),
            ordinal INTEGER NOT NULL,
            text TEXT NOT NULL,
            page INTEGER,
            heading TEXT,
            line_from INTEGER,
            line_to INTEGER,
            char_from INTEGER NOT NULL,
            char_to INTEGER NOT NULL,
            UNIQUE (document_id, ordinal)
        ) STRICT""",
        # Contentless: the text stands in passages once. Rows are deleted by giving FTS5 the same
        # terms again, which meta.terms_version guards (contentless_delete needs SQLite 3.43).
        """CREATE VIRTUAL TABLE passages_fts USING fts5 (
            terms, content = '', tokenize = "unicode61 remove_diacritics 0"
        )""",
        "CREATE VIRTUAL TABLE passages_vocab USING fts5vocab (passages_fts, 'row')",
        """CREATE TABLE vectors (
            passage_id INTEGER PRIMARY KEY REFERENCES passages (id),
            vector BLOB NOT NULL
        ) STRICT""",
        """CREATE VIEW jobs AS
            SELECT 'parse' AS kind, id AS file_id, document_id, display AS what
            FROM files WHERE state IN ('seen', 'settled', 'hashed')
            UNION ALL
            SELECT 'embed', NULL, id, title FROM documents WHERE state = 'searchable'""",
        """CREATE TABLE conversations (
            id TEXT PRIMARY KEY,
            client TEXT NOT NULL,
            title TEXT NOT NULL DEFAULT '',
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE turns (
            id INTEGER PRIMARY KEY,
            conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            question TEXT NOT NULL,
            answer TEXT NOT NULL,
            asked_at REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX turns_conversation ON turns (conversation_id, id)",
    ):
        db.execute(statement)


def m002(db: sqlite3.Connection) -> None:
    """Places of passages in formats without pages; document ids that are never given twice."""
    db.execute("ALTER TABLE passages ADD COLUMN place TEXT")
    db.execute(
        "INSERT INTO meta (key, value)"
        " SELECT 'last_document', CAST(coalesce(max(id), 0) AS TEXT) FROM documents"
    )


STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (m001, m002)


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Bring the schema up to date.

    Raises:
        SchemaTooNewError: a newer version wrote this file; nothing was changed.
    """
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    if found > len(STEPS):
        raise SchemaTooNewError(path=path, found=found, known=len(STEPS))
    for number in range(found, len(STEPS)):
        db.execute("BEGIN IMMEDIATE")
        try:
            STEPS[number](db)
            db.execute(f"PRAGMA user_version = {number + 1}")
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
