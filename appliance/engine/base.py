"""What the rest of the box may know of an engine: values and protocols, no llama.cpp.

Life of a request: ``Engine.generate`` queues it and returns a ``Generation`` at once; iterating
that yields ``QueueUpdate`` while it waits, ``Prefilled`` once the prompt is read, ``Token`` pieces
(whole Unicode code points only), and ends with one ``Finished``. ``Generation.cancel`` works at
every stage within one engine step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from appliance.errors import Fact
from appliance.units import Bytes, Tokens

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """One chat message in the roles that chat templates know."""

    role: Role
    content: str


class Priority(IntEnum):
    """Order in the engine's queue; lower goes first, decode of running answers before all."""

    QUERY_EMBED = 1
    CHAT = 2
    INGEST_EMBED = 3


class FinishReason(str, Enum):
    """Why an answer ended; ``STOP`` and ``LENGTH`` are OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Sampling:
    """Sampler settings; ``temperature`` 0 is greedy. Names follow OpenAI's and llama.cpp's."""

    temperature: float = 0.2
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None


@dataclass(frozen=True)
class GenerationRequest:
    """One answer to generate.

    Exactly one of ``messages`` (rendered with the model's own chat template) or ``prompt`` (raw
    text) is set. ``client`` groups requests for fairness. ``max_tokens`` None means "until the
    context is full". A prompt longer than the context minus ``max_tokens`` (or minus 1) is refused
    with ``ContextOverflowError``; nothing is ever cut here.
    """

    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    client: str = ""
    priority: Priority = Priority.CHAT


@dataclass(frozen=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: Tokens
    completion_tokens: Tokens
    cached_tokens: Tokens


@dataclass(frozen=True)
class Timings:
    """Seconds, all measured from acceptance of the request."""

    queue_s: float
    prefill_s: float
    ttft_s: float
    total_s: float


@dataclass(frozen=True)
class QueueUpdate:
    """``position`` 1 is next; ``wait_s`` is an estimate from the speed measured so far."""

    position: int
    wait_s: float | None


@dataclass(frozen=True)
class Prefilled:
    """``done`` of ``total`` prompt tokens have been read."""

    done: Tokens
    total: Tokens


@dataclass(frozen=True)
class Token:
    """A piece of the answer: whole code points, never empty."""

    text: str


@dataclass(frozen=True)
class Finished:
    """The last event. ``text`` is the whole answer, equal to the pieces joined."""

    reason: FinishReason
    text: str
    usage: Usage
    timings: Timings


GenerationEvent = QueueUpdate | Prefilled | Token | Finished


class Generation(Protocol):
    """A running (or waiting) answer. Iterate once, from any one thread."""

    def __iter__(self) -> Iterator[GenerationEvent]:
        """Yield events until ``Finished``.

        Raises:
            EngineError: the answer failed; a subclass says how.
        """
        ...

    def cancel(self) -> None:
        """Stop at the next engine step, in any stage; idempotent, callable from any thread."""
        ...


@dataclass(frozen=True)
class EngineStatus:
    """What ``status`` shows of the engine; sizes in bytes.

    ``error`` is the code of the failure that left the engine without its model and ``error_facts``
    are its facts, for ``appliance.messages``. ``embedder`` is None when no embedder is loaded; an
    engine whose model failed may still embed.
    """

    state: Literal["loading", "ready", "failed", "stopped"]
    model: str | None
    embedder: str | None
    device: str
    device_reason: str
    n_ctx: int
    n_slots: int
    n_running: int
    n_waiting: int
    tokens_prefilled: int
    tokens_decoded: int
    texts_embedded: int
    prefill_tok_s: float | None
    decode_tok_s: float | None
    memory: dict[str, Bytes]
    error: str | None = None
    error_facts: dict[str, Fact] = field(default_factory=dict)


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def embedder_id(self) -> str:
        """Stable identity of model and settings (name, digest prefix, pooling, prefixes)."""
        ...

    @property
    def n_embd(self) -> int:
        """Length of a vector."""
        ...

    def embed(
        self, texts: Sequence[str], kind: Literal["query", "passage"], priority: Priority
    ) -> npt.NDArray[np.float32]:
        """Return one unit-length vector per text, in order: (len(texts), n_embd), float32.

        The model's own prefix for ``kind`` is added here. Blocks until done.

        Raises:
            ContextOverflowError: a text is longer than the embedder's context; facts name both.
            EngineError: the engine failed or is stopping.
        """
        ...

    def count_embed_tokens(self, text: str) -> Tokens:
        """Tokens of ``text`` as the embedder counts them, prefix and specials included."""
        ...


class Engine(Embedder, Protocol):
    """Generation plus embedding behind one owner thread."""

    @property
    def n_ctx(self) -> int:
        """Context of one sequence, in tokens."""
        ...

    def generate(self, request: GenerationRequest) -> Generation:
        """Queue a request.

        Raises:
            ContextOverflowError: the rendered prompt does not fit.
            QueueFullError: too many requests wait.
            EngineStoppedError: the model is still loading, failed to load, or the box is stopping.
        """
        ...

    def count_tokens(self, messages: Sequence[Message]) -> Tokens:
        """Tokens of the rendered chat prompt, generation header included."""
        ...

    def count_text_tokens(self, text: str) -> Tokens:
        """Tokens of a bare text."""
        ...

    def status(self) -> EngineStatus:
        """A snapshot; never blocks on the engine thread."""
        ...

    def steps(self) -> int:
        """A counter that moves whenever the engine thread makes progress or is idle-alive."""
        ...

    def close(self) -> None:
        """Cancel what runs, free the models, release the device; idempotent."""
        ...
