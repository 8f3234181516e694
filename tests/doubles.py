"""Scripted stand-ins for what tests of other layers do not want to load.

``ScriptedEngine`` speaks the whole ``Engine`` protocol without a model: answers come from a list,
in order, and every request is recorded. Its counters move exactly as a real engine's would, so a
test may say "the token counter did not move". Embeddings are hashed character n-grams: texts that
share words or Chinese bigrams are near each other, so that retrieval tests mean something.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from appliance.engine.base import (
    EngineStatus,
    Feature,
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Message,
    Prefilled,
    Priority,
    QueueUpdate,
    Reasoning,
    Timings,
    Token,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from appliance.errors import (
    ContextOverflowError,
    EngineError,
    EngineStoppedError,
    QueueFullError,
)
from appliance.units import Bytes, Tokens

Answer = str | BaseException

THINKS = "\0"
"""Parts what a scripted answer thinks from what it says."""


def pieces_of(text: str) -> list[str]:
    """Cut a text into "tokens" that join to it: each CJK character alone, other runs by word."""
    pieces: list[str] = []
    for char in text:
        is_wide = unicodedata.east_asian_width(char) in {"W", "F"}
        if pieces and not is_wide and not char.isspace() and pieces[-1][-1].isascii():
            pieces[-1] += char
        else:
            pieces.append(char)
    return pieces


class ScriptedGeneration:
    """One scripted answer; ``cancel`` works between two pieces, as in the real engine."""

    def __init__(
        self, engine: ScriptedEngine, request: GenerationRequest, answer: Answer, n_prompt: int
    ) -> None:
        self._engine = engine
        self._request = request
        self._answer = answer
        self._n_prompt = n_prompt
        self._is_cancelled = threading.Event()
        self._accepted = time.monotonic()

    def cancel(self) -> None:
        self._is_cancelled.set()

    def __iter__(self) -> Iterator[GenerationEvent]:
        engine = self._engine
        try:
            yield from self._events()
        finally:
            with engine.lock:
                engine.n_running -= 1

    def _events(self) -> Iterator[GenerationEvent]:
        engine, text = self._engine, ""
        yield QueueUpdate(position=1, wait_s=0.0)
        engine.gate.wait()
        if self._is_cancelled.is_set():
            yield self._finished(FinishReason.CANCELLED, text, 0)
            return
        if isinstance(self._answer, BaseException):
            raise self._answer
        with engine.lock:
            engine.tokens_prefilled += self._n_prompt
        yield Prefilled(Tokens(self._n_prompt), Tokens(self._n_prompt))
        for index in range(self._request.n):
            yield from self._answered(index)

    def _answered(self, index: int) -> Iterator[GenerationEvent]:
        engine, text = self._engine, ""
        n_out, reason = 0, FinishReason.STOP
        thought, _, said = self._answer.rpartition(THINKS)
        if thought and self._request.thinking:
            yield Reasoning(thought, index)
        else:
            thought = ""
        logprobs: tuple[TokenLogprob, ...] = ()
        for piece in pieces_of(said):
            if self._is_cancelled.is_set() or engine.is_closed:
                reason = FinishReason.CANCELLED
                break
            if self._request.max_tokens is not None and n_out >= self._request.max_tokens:
                reason = FinishReason.LENGTH
                break
            if engine.token_delay_s:
                time.sleep(engine.token_delay_s)
            n_out += 1
            with engine.lock:
                engine.tokens_decoded += 1
                engine.n_steps += 1
            cut = [at for stop in self._request.stop if (at := (text + piece).find(stop)) >= 0]
            if cut:
                rest = (text + piece)[len(text) : min(cut)]
                text = (text + piece)[: min(cut)]
                if rest:
                    yield Token(rest, index)
                break
            text += piece
            new: tuple[TokenLogprob, ...] = ()
            if self._request.top_logprobs is not None:
                top = tuple(
                    TopLogprob(n, f"{n}".encode(), -1.0 - n)
                    for n in range(self._request.top_logprobs)
                )
                new = (TokenLogprob(n_out, piece.encode(), -0.5, top),)
                logprobs += new
            yield Token(piece, index, new)
        last = self._finished(reason, text, n_out)
        yield dataclasses.replace(last, index=index, reasoning=thought, logprobs=logprobs)

    def _finished(self, reason: FinishReason, text: str, n_out: int) -> Finished:
        total = time.monotonic() - self._accepted
        usage = Usage(Tokens(self._n_prompt), Tokens(n_out), Tokens(0))
        return Finished(reason, text, usage, Timings(0.0, 0.0, 0.0, total))


class ScriptedEngine:
    """An ``Engine`` that says what the test wrote.

    Args:
        answers: what to say, in order; an exception is raised while the answer is iterated. When
            they run out the next request fails loudly, unless ``default`` is given.
        default: answer of every request beyond ``answers``.
        n_ctx: context; prompts longer than it are refused as the real engine does.
        n_embd: vector length.
        token_delay_s: pause before each piece, for tests of streaming and stopping.
        state: what ``status`` says; anything but "ready" refuses work.

    ``requests`` and ``prompts`` record what came in. ``gate`` is an Event that holds answers back
    while cleared.
    """

    def __init__(
        self,
        answers: Iterable[Answer] = (),
        *,
        default: Answer | None = None,
        n_ctx: int = 4096,
        n_slots: int = 2,
        n_embd: int = 384,
        max_queue: int = 64,
        token_delay_s: float = 0.0,
        embedder_id: str = "scripted-ngrams-1",
        state: Literal["loading", "ready", "failed", "stopped"] = "ready",
    ) -> None:
        self.answers: list[Answer] = list(answers)
        self.default = default
        self.token_delay_s = token_delay_s
        self.state: Literal["loading", "ready", "failed", "stopped"] = state
        self.requests: list[GenerationRequest] = []
        self.embedded: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.lock = threading.RLock()
        self.is_closed = False
        self.n_running = 0
        self.n_steps = 0
        self.tokens_prefilled = 0
        self.tokens_decoded = 0
        self.texts_embedded = 0
        self._n_ctx = n_ctx
        self._n_slots = n_slots
        self._n_embd = n_embd
        self._max_queue = max_queue
        self._embedder_id = embedder_id

    @property
    def prompts(self) -> list[str]:
        """The prompts so far, as one text each (messages as ``role: content`` lines)."""
        return [_rendered(request) for request in self.requests]

    def enqueue(self, answers: Iterable[Answer]) -> None:
        """Append answers to the script."""
        self.answers.extend(answers)

    @property
    def n_ctx(self) -> int:
        return self._n_ctx

    @property
    def features(self) -> frozenset[Feature]:
        return frozenset({"chat", "tools", "thinking"})

    @property
    def n_embd(self) -> int:
        return self._n_embd

    @property
    def embedder_id(self) -> str:
        return self._embedder_id

    def generate(self, request: GenerationRequest) -> ScriptedGeneration:
        self._demand_ready()
        n_prompt = int(self.count_text_tokens(_rendered(request)))
        room = max(request.max_tokens or 1, 1)
        if n_prompt + room > self._n_ctx:
            raise ContextOverflowError(n_prompt_tokens=n_prompt, n_reserved=room, n_ctx=self._n_ctx)
        with self.lock:
            if self.n_running >= self._n_slots + self._max_queue:
                raise QueueFullError(n_waiting=self._max_queue, retry_after_s=1)
            self.requests.append(request)
            if self.answers:
                answer: Answer | None = self.answers.pop(0)
            else:
                answer = self.default
            if answer is None:
                raise AssertionError(f"no scripted answer left for: {_rendered(request)[-200:]}")
            self.n_running += 1
        return ScriptedGeneration(self, request, answer, n_prompt)

    def count_tokens(self, messages: Sequence[Message]) -> Tokens:
        return self.count_text_tokens(_rendered(GenerationRequest(messages=tuple(messages))))

    def count_text_tokens(self, text: str) -> Tokens:
        return Tokens(len(pieces_of(text)))

    def embed(
        self, texts: Sequence[str], kind: Literal["query", "passage"], priority: Priority
    ) -> npt.NDArray[np.float32]:
        del priority
        self._demand_ready()
        for text in texts:
            n_tokens = int(self.count_embed_tokens(text))
            if n_tokens > 512:
                raise ContextOverflowError("embed_overflow", n_prompt_tokens=n_tokens, n_ctx=512)
        with self.lock:
            self.texts_embedded += len(texts)
            self.n_steps += 1
            self.embedded.extend((kind, text) for text in texts)
        vectors = np.zeros((len(texts), self._n_embd), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = _hashed_ngrams(text, self._n_embd)
        return vectors

    def count_embed_tokens(self, text: str) -> Tokens:
        return Tokens(len(pieces_of(text)) + 4)

    def use(self, model_path: Path) -> None:
        raise EngineError(cause=f"this engine has no use for {model_path}")

    def status(self) -> EngineStatus:
        with self.lock:
            return EngineStatus(
                state="stopped" if self.is_closed else self.state,
                model="scripted",
                embedder="scripted-ngrams",
                device="none",
                device_reason="device_configured",
                n_ctx=self._n_ctx,
                n_slots=self._n_slots,
                n_running=min(self.n_running, self._n_slots),
                n_waiting=max(0, self.n_running - self._n_slots),
                tokens_prefilled=self.tokens_prefilled,
                tokens_decoded=self.tokens_decoded,
                texts_embedded=self.texts_embedded,
                prefill_tok_s=None,
                decode_tok_s=None,
                memory={"weights": Bytes(0), "kv": Bytes(0), "compute": Bytes(0)},
            )

    def steps(self) -> int:
        with self.lock:
            self.n_steps += 1
            return self.n_steps

    def close(self) -> None:
        self.is_closed = True
        self.gate.set()

    def _demand_ready(self) -> None:
        if self.is_closed or self.state != "ready":
            raise EngineStoppedError(state="stopped" if self.is_closed else self.state)


def _rendered(request: GenerationRequest) -> str:
    if request.prompt is not None:
        return request.prompt
    return "\n".join(f"{message.role}: {message.content}" for message in request.messages)


def _hashed_ngrams(text: str, n_embd: int) -> npt.NDArray[np.float32]:
    vector = np.zeros(n_embd, dtype=np.float32)
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = [piece for piece in pieces_of(folded) if not piece.isspace()]
    grams = words + [a + b for a, b in itertools.pairwise(words)]
    for gram in grams or [folded]:
        digest = hashlib.blake2b(gram.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        value = int.from_bytes(digest, "little")
        vector[value % n_embd] += 1.0 if value >> 63 else -1.0
    norm = float(np.linalg.norm(vector))
    if norm == 0.0:
        vector[0], norm = 1.0, 1.0
    return vector / np.float32(norm)
