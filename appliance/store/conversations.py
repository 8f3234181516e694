"""Conversations and turns, when the owner keeps them."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from appliance.errors import NotFoundError
from appliance.store.db import Database
from appliance.store.rows import ConversationRow, TurnRow

_TITLE_CHARS = 80


class ConversationsTable:
    """Rows of ``conversations`` and ``turns``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def create(self, client: str) -> str:
        """Return the id of a new conversation."""
        conversation = uuid.uuid4().hex
        now = time.time()
        with self._db.write() as db:
            db.execute(
                "INSERT INTO conversations (id, client, created_at, updated_at)"
                " VALUES (?, ?, ?, ?)",
                (conversation, client, now, now),
            )
        return conversation

    def add_turn(self, conversation: str, question: str, answer: dict[str, Any]) -> None:
        """Append a turn; a conversation deleted meanwhile stays deleted."""
        now = time.time()
        with self._db.write() as db:
            changed = db.execute(
                "UPDATE conversations SET updated_at = ?,"
                " title = CASE title WHEN '' THEN ? ELSE title END WHERE id = ?",
                (now, question[:_TITLE_CHARS], conversation),
            ).rowcount
            if changed:
                db.execute(
                    "INSERT INTO turns (conversation_id, question, answer, asked_at)"
                    " VALUES (?, ?, ?, ?)",
                    (conversation, question, json.dumps(answer, ensure_ascii=False), now),
                )

    def turns(self, conversation: str) -> list[TurnRow]:
        """Return the turns, oldest first.

        Raises:
            NotFoundError: no such conversation.
        """
        with self._db.read() as db:
            known = db.execute(
                "SELECT 1 FROM conversations WHERE id = ?", (conversation,)
            ).fetchone()
            if known is None:
                raise NotFoundError("conversation_not_found", name=conversation)
            rows = db.execute(
                "SELECT id, question, answer, asked_at FROM turns"
                " WHERE conversation_id = ? ORDER BY id",
                (conversation,),
            ).fetchall()
        return [
            TurnRow(r["id"], r["question"], json.loads(r["answer"]), r["asked_at"]) for r in rows
        ]

    def all(self) -> list[ConversationRow]:
        """Return every conversation, the newest first."""
        with self._db.read() as db:
            rows = db.execute(
                "SELECT c.*,"
                " (SELECT count(*) FROM turns t WHERE t.conversation_id = c.id) AS n_turns"
                " FROM conversations c ORDER BY updated_at DESC"
            ).fetchall()
        return [
            ConversationRow(
                r["id"], r["client"], r["title"], r["created_at"], r["updated_at"], r["n_turns"]
            )
            for r in rows
        ]

    def delete(self, conversation: str) -> None:
        """Delete one conversation with its turns.

        Raises:
            NotFoundError: no such conversation.
        """
        with self._db.write() as db:
            if not db.execute("DELETE FROM conversations WHERE id = ?", (conversation,)).rowcount:
                raise NotFoundError("conversation_not_found", name=conversation)

    def delete_all(self) -> int:
        """Delete every conversation; returns how many there were."""
        with self._db.write() as db:
            return db.execute("DELETE FROM conversations").rowcount
