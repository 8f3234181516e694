"""What a question produces, in order, for every front end.

``Queued`` (zero or more) > ``Evidence`` (once, before the model has read a word) > ``Queued`` /
``Reading`` > ``Delta`` (many) > ``Answer`` (once, last). A refusal is an ``Answer`` with
``refused`` set, no ``Delta`` and no call of the model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

RefusalReason = Literal["no_documents", "indexing", "nothing_relevant", "embedder_changed"]


@dataclass(frozen=True)
class Citation:
    """A mark ``[n]`` and the place it points at; ``quote`` is text of that place."""

    n: int
    document: int
    path: str
    page: int | None
    heading: str | None
    line_from: int | None
    line_to: int | None
    quote: str
    place: str | None = None
    passage: int | None = None


@dataclass(frozen=True)
class Queued:
    """``position`` 1 is next; ``wait_s`` is an estimate or None."""

    position: int
    wait_s: float | None


@dataclass(frozen=True)
class Evidence:
    """The passages the answer will rest on, best first."""

    citations: tuple[Citation, ...]


@dataclass(frozen=True)
class Reading:
    """Prefill progress in tokens."""

    done: int
    total: int


@dataclass(frozen=True)
class Delta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True)
class Notice:
    """Something the person should know (turns left out, device fell back); already a sentence."""

    code: str
    text: str


@dataclass(frozen=True)
class AnswerUsage:
    """Tokens of the whole turn."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class AnswerTimings:
    """Seconds since the question arrived."""

    queue_s: float = 0.0
    search_s: float = 0.0
    ttft_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True)
class Answer:
    """The finished turn; the shape of ``appliance ask --json``."""

    answer: str
    refused: bool
    reason: RefusalReason | None
    citations: tuple[Citation, ...]
    usage: AnswerUsage
    timings: AnswerTimings
    model: str | None
    finish_reason: Literal["stop", "length", "cancelled", "refused"] = "stop"
    conversation: str | None = None
    notices: tuple[Notice, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for ``json.dumps``."""
        return asdict(self)


TurnEvent = Queued | Evidence | Reading | Delta | Notice | Answer
