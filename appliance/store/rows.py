"""What the store hands out: frozen rows and search results."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.errors import Fact

FileState = Literal["seen", "settled", "hashed", "linked", "failed", "ignored"]
DocumentState = Literal["searchable", "ready", "partial"]

ASKED_FOR = -1000
"""Where ``attempts`` starts when the owner asked for a file to be read again: below zero, until it
is read, the document of the same bytes that is already there will not do.
"""


@dataclass(frozen=True)
class FileRow:
    """A path in the inbox; ``path`` is the bytes the file system has, ``display`` is for people."""

    path: bytes
    display: str
    collection: str
    size_bytes: int
    mtime_ns: int
    state: FileState
    document_id: int | None
    error_code: str | None
    error_facts: dict[str, Fact]
    attempts: int

    @property
    def is_asked_for(self) -> bool:
        """Whether the owner asked for it to be read again."""
        return self.attempts < 0


@dataclass(frozen=True)
class DocumentRow:
    """The content of one or more files with the same bytes."""

    id: int
    sha256: bytes
    size_bytes: int
    format: str
    title: str
    encoding: str | None
    n_pages: int | None
    n_passages: int
    problems: tuple[dict[str, Any], ...]
    state: DocumentState
    added_at: float
    paths: tuple[str, ...]


@dataclass(frozen=True)
class ParsedMeta:
    """What a parser learned about a document besides its text."""

    format: str
    title: str
    encoding: str | None = None
    n_pages: int | None = None
    problems: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class PassageRow:
    """A stored passage and where it comes from; ``path`` is one of its document's files."""

    id: int
    document_id: int
    ordinal: int
    text: str
    page: int | None
    heading: str | None
    line_from: int | None
    line_to: int | None
    char_from: int
    char_to: int
    path: str
    collection: str
    title: str
    place: str | None = None


@dataclass(frozen=True)
class ConversationRow:
    """One conversation; ``title`` is its first question."""

    id: str
    client: str
    title: str
    created_at: float
    updated_at: float
    n_turns: int


@dataclass(frozen=True)
class TurnRow:
    """One question and the answer's JSON."""

    id: int
    question: str
    answer: dict[str, Any] = field(default_factory=dict)
    asked_at: float = 0.0


def display_of(path: bytes) -> str:
    """Return a path as people read it: UTF-8, else GB18030, else with escapes."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return path.decode("gb18030")
    except UnicodeDecodeError:
        return path.decode("utf-8", "backslashreplace")


def collection_of(display: str) -> str:
    """Return the collection of a file: its folder inside the inbox, '' for the top."""
    return os.path.dirname(display)  # noqa: PTH120 - a relative text path, not a file
