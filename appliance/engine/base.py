"""What the rest of the box may know of an engine: values and protocols, no llama.cpp.

Life of a request: ``Engine.generate`` queues it and returns a ``Generation`` at once; iterating
that yields ``QueueUpdate`` while it waits, ``Prefilled`` while the prompt is read, ``Reasoning``
and ``Token`` pieces (whole Unicode code points only), and ends with one ``Finished`` for each of
the ``n`` answers asked for. ``Generation.cancel`` works at every stage within one engine step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from appliance.errors import Fact
from appliance.units import Bytes, Tokens

Role = Literal["system", "user", "assistant", "tool"]
Feature = Literal["chat", "tools", "thinking"]

MOST_TOP_LOGPROBS = 20
MOST_ANSWERS = 16
"""Bounds of ``GenerationRequest.top_logprobs`` (OpenAI's) and ``n`` (ours)."""

ANY_TOOL = "*"
"""``GenerationRequest.tool_choice`` when some tool must be called, no matter which."""


@dataclass(frozen=True)
class ToolCall:
    """A call the assistant made earlier; ``arguments`` is JSON text of an object."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True)
class Message:
    """One chat message in the roles that chat templates know.

    ``tool_calls`` belong to an assistant's message, ``tool_call_id`` and ``name`` to the answer of
    a tool. What the assistant thought in earlier turns is left out, as its makers advise.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""


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
    """Sampler settings; ``temperature`` 0 is greedy. Names follow OpenAI's and llama.cpp's.

    A ``seed`` makes an answer repeatable; the i-th of ``n`` answers uses ``seed + i``. Penalties
    look at the last ``penalty_last_n`` tokens of the answer, never at the prompt, because evidence
    is meant to be repeated. ``dry_multiplier`` above 0 switches DRY on, which looks at prompt and
    answer. ``logit_bias`` holds (token id, bias) pairs; -100 and below bans a token.
    """

    temperature: float = 0.2
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    typical_p: float = 1.0
    penalty_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class GenerationRequest:
    """One answer to generate.

    Exactly one of ``messages`` (rendered with the model's own chat template) or ``prompt`` (raw
    text) is set. ``client`` groups requests for fairness. ``max_tokens`` None means "until the
    context is full". A prompt longer than the context minus ``max_tokens`` (or minus 1) is refused
    with ``ContextOverflowError``; nothing is ever cut here.

    Attributes:
        stop: texts that end the answer and are not shown; they are looked for in what is said, not
            in what is thought.
        n: answers to the one prompt, which is read once; events carry their ``index``.
        top_logprobs: None for no log-probabilities, else how many alternatives per token (0 to
            ``MOST_TOP_LOGPROBS``). They are the model's own, before any sampler setting.
        grammar: GBNF with a ``root`` rule; what is said (not what is thought) follows it.
        json_schema: JSON text of a schema; not together with ``grammar``.
        tools: JSON text of an array of OpenAI tool objects, handed to the chat template. Calls come
            back as text in the template's own form.
        tool_choice: name of the tool that must be called, or ``ANY_TOOL``; empty leaves it to the
            model. ``json_schema`` then describes the call, for engines that can only be held to a
            schema.
        thinking: let a thinking model think; others ignore it.
        thinking_budget: most tokens of thinking; then it is ended and the model must speak.
        ignore_eos: go on to ``max_tokens`` whatever the model says; for measurements.
    """

    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    client: str = ""
    priority: Priority = Priority.CHAT
    n: int = 1
    top_logprobs: int | None = None
    grammar: str | None = None
    json_schema: str | None = None
    tools: str | None = None
    tool_choice: str = ""
    thinking: bool = False
    thinking_budget: int | None = None
    ignore_eos: bool = False


_NONE = Tokens(0)


@dataclass(frozen=True)
class Usage:
    """Token counts of one answer; ``completion_tokens`` includes ``reasoning_tokens``."""

    prompt_tokens: Tokens
    completion_tokens: Tokens
    cached_tokens: Tokens
    reasoning_tokens: Tokens = _NONE


@dataclass(frozen=True)
class TopLogprob:
    """One candidate for a token: its bytes (not always whole characters) and its log-probability.

    Natural logarithm; the candidate's text is ``bytes`` of a control token's spelling if need be.
    """

    token: int
    bytes: bytes
    logprob: float


@dataclass(frozen=True)
class TokenLogprob(TopLogprob):
    """The token that was chosen, and the ``top`` candidates of its place, likeliest first."""

    top: tuple[TopLogprob, ...] = ()


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
    """A piece of the answer: whole code points, never empty.

    ``logprobs`` are those of the tokens sampled since the piece before; a token whose text is held
    back (half a character, maybe the beginning of a stop text) travels with a later piece.
    """

    text: str
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Reasoning:
    """A piece of what a thinking model thinks before it speaks; never empty, tags left out."""

    text: str
    index: int = 0


@dataclass(frozen=True)
class Finished:
    """The last event of answer ``index``, and of the whole when it is the n-th of its kind.

    ``text`` is the whole answer, equal to the ``Token`` pieces joined; ``reasoning`` the same for
    ``Reasoning``. ``logprobs`` are those of all tokens of ``text``, when asked for.
    """

    reason: FinishReason
    text: str
    usage: Usage
    timings: Timings
    index: int = 0
    reasoning: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()


GenerationEvent = QueueUpdate | Prefilled | Token | Reasoning | Finished


class Generation(Protocol):
    """A running (or waiting) answer. Iterate once, from any one thread."""

    def __iter__(self) -> Iterator[GenerationEvent]:
        """Yield events until the last ``Finished``.

        Raises:
            EngineError: the answer failed; a subclass says how.
        """
        ...

    def cancel(self) -> None:
        """Stop at the next engine step, in any stage; idempotent, callable from any thread."""
        ...


@dataclass(frozen=True)
class SavedPrompts:
    """Where shared beginnings of prompts are kept across restarts, and how many bytes of them."""

    folder: Path
    most_bytes: int


@dataclass(frozen=True)
class ServerStatus:
    """A server that works for this box. ``problem`` is (code, facts) while it cannot."""

    role: Literal["generation", "embedding"]
    url: str
    is_up: bool
    n_lost: int
    problem: tuple[str, dict[str, Fact]] | None = None


@dataclass(frozen=True)
class EngineStatus:
    """What ``status`` shows of the engine; sizes in bytes.

    ``error`` is the code of the failure that left the engine without its model and ``error_facts``
    are its facts, for ``appliance.messages``. ``embedder`` is None when no embedder is loaded; an
    engine whose model failed may still embed. ``device_reason`` is a code of ``appliance.messages``
    as well, with its ``device_facts``: why the models run where they do. ``device_failure`` holds
    the same when an NPU that was to be used failed. ``npu`` is what the NPU's plugin reports
    (``appliance.engine.devices.npu_facts``); empty without one. ``n_npu_failures`` counts failures
    in the middle of work since the engine started.
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
    device_facts: dict[str, Fact] = field(default_factory=dict)
    device_failure: tuple[str, dict[str, Fact]] | None = None
    npu: dict[str, Fact] = field(default_factory=dict)
    n_npu_failures: int = 0
    last_npu_failure: str = ""
    servers: tuple[ServerStatus, ...] = ()


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

    @property
    def features(self) -> frozenset[Feature]:
        """What the model's template can do; empty until the model is loaded."""
        ...

    def generate(self, request: GenerationRequest) -> Generation:
        """Queue a request.

        Raises:
            ContextOverflowError: the rendered prompt does not fit.
            QueueFullError: too many requests wait.
            EngineError: something in the request makes no sense; codes ``bad_sampling``,
                ``bad_grammar``, ``bad_schema``, ``empty_prompt``, ``chat_template_missing``,
                ``chat_template_invalid``, ``tools_unsupported``.
            EngineStoppedError: the model is still loading, failed to load, or the box is stopping.
        """
        ...

    def count_tokens(self, messages: Sequence[Message]) -> Tokens:
        """Tokens of the rendered chat prompt, generation header included."""
        ...

    def count_text_tokens(self, text: str) -> Tokens:
        """Tokens of a bare text."""
        ...

    def use(self, model_path: Path) -> None:
        """Answer with another model from now on; blocks until it is loaded.

        What was accepted is answered by the model before; meanwhile new requests are refused as
        while a model loads. If the new one cannot be loaded, the one before is loaded again.

        Args:
            model_path: the GGUF; the caller looked at its header.

        Raises:
            EngineError: ``model_change_running``; ``done_by_server`` when a server answers; else
                why the new model could not be loaded.
            ModelError: the file cannot be used.
            EngineStoppedError: the box is stopping.
        """
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
