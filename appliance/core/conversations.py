"""The turns of a conversation: in the store when the owner keeps history, else only in memory."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict

from appliance.core.events import Answer
from appliance.errors import NotFoundError
from appliance.store import ConversationRow, Store

MAX_UNKEPT = 256
"""Unkept conversations held in memory at once; the one unused for longest is forgotten first."""

MAX_TURNS = 12
"""Turns of a conversation that may be offered to a prompt; the token budget usually takes fewer."""


class Conversations:
    """Remembers question and answer text per conversation; safe to call from any thread."""

    def __init__(self, store: Store, *, keep: bool) -> None:
        self.keep = keep
        self._store = store
        self._unkept: OrderedDict[str, list[tuple[str, str]]] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, client: str) -> str:
        """Return the id of a new, empty conversation."""
        if self.keep:
            return self._store.create_conversation(client)
        conversation = f"unkept-{uuid.uuid4().hex}"
        with self._lock:
            self._unkept[conversation] = []
            while len(self._unkept) > MAX_UNKEPT:
                self._unkept.popitem(last=False)
        return conversation

    def history(self, conversation: str) -> list[tuple[str, str]]:
        """Return up to ``MAX_TURNS`` newest (question, answer) pairs, oldest first.

        Raises:
            NotFoundError: no such conversation (or it was forgotten).
        """
        with self._lock:
            if conversation in self._unkept:
                self._unkept.move_to_end(conversation)
                return self._unkept[conversation][-MAX_TURNS:]
        if conversation.startswith("unkept-"):
            raise NotFoundError(kind="conversation", name=conversation)
        turns = self._store.turns(conversation)
        return [(turn.question, str(turn.answer["answer"])) for turn in turns[-MAX_TURNS:]]

    def record(self, conversation: str, question: str, answer: Answer) -> None:
        """Remember a finished turn; one deleted while it was being answered stays deleted."""
        with self._lock:
            if conversation in self._unkept:
                self._unkept[conversation].append((question, answer.answer))
                del self._unkept[conversation][:-MAX_TURNS]
                return
        if not conversation.startswith("unkept-"):
            self._store.add_turn(conversation, question, answer.as_json())

    def kept(self) -> list[ConversationRow]:
        """Return the conversations in the store, the newest first."""
        return self._store.conversations()

    def forget_all(self) -> int:
        """Delete every conversation, kept or not; returns how many there were."""
        with self._lock:
            n_unkept = len(self._unkept)
            self._unkept.clear()
        return n_unkept + self._store.delete_all_conversations()

    def forget(self, conversation: str) -> None:
        """Delete a conversation everywhere.

        Raises:
            NotFoundError: no such conversation.
        """
        with self._lock:
            if self._unkept.pop(conversation, None) is not None:
                return
        self._store.delete_conversation(conversation)
