"""The engine: one thread that owns the device and every llama.cpp context.

Callers only put work into queues and wait for events. The thread works in steps. One step is one
``llama_decode``: a token for every running answer, then prompt tokens of waiting ones up to a
budget that measured speed sets, so that a step stays under ``step_s`` and running answers keep
streaming while a prompt is read. Between steps the queues are looked at again, in this order:

    decode of running answers > query embedding > prefill > ingestion embedding

A step can be left before its end: ``cancel`` of an answer whose prompt is being read and ``close``
raise the context's abort flag, which llama.cpp checks between two graph nodes.

Locking: ``_lock`` guards the queues, the counters and ``_in_step``; it is never held during a
native call, except the one that must not overlap with freeing (``Model.lock``, tokenising).
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from appliance.engine.base import (
    EngineStatus,
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Message,
    Prefilled,
    Priority,
    QueueUpdate,
    Timings,
    Token,
    Usage,
)
from appliance.engine.devices import Device, DeviceChoice, choose_device
from appliance.engine.embedding import (
    Dressing,
    EmbedJob,
    EmbedQueue,
    Kind,
    dressing_for,
    unit_length,
)
from appliance.engine.native import (
    ABORTED,
    DECODED,
    AbortFlag,
    Batch,
    Context,
    ContextShape,
    Model,
    Sampler,
    sizes_of,
)
from appliance.engine.pace import Rate, chunk_tokens
from appliance.engine.slots import Slot, TokenArray, choose_slot
from appliance.engine.template import ChatTemplate
from appliance.engine.textstream import TextStream
from appliance.engine.waiting import WaitingRoom
from appliance.errors import (
    ApplianceError,
    ContextOverflowError,
    EngineError,
    EngineStoppedError,
    ModelMissingError,
    QueueFullError,
)
from appliance.system.gguf import GgufHeader, inspect
from appliance.units import Bytes, Tokens

_log = logging.getLogger(__name__)

_IDLE_WAKE_S = 1.0
_EMBED_SEQUENCES = 64
_LEAST_CHUNK = 32
# While somebody chats, ingestion gets one batch after this many times the batch's own duration.
_INGEST_REST = 10.0
_FIRST_GUESS_S = 10.0

State = Literal["loading", "ready", "failed", "stopped"]


@dataclass
class _Clock:
    """Moments of one answer, seconds of the monotonic clock."""

    accepted: float
    started: float | None = None
    prefilled: float | None = None
    first_text: float | None = None

    def timings(self, now: float) -> Timings:
        started = self.started if self.started is not None else now
        prefilled = self.prefilled if self.prefilled is not None else now
        first = self.first_text if self.first_text is not None else now
        return Timings(
            queue_s=started - self.accepted,
            prefill_s=max(0.0, prefilled - started),
            ttft_s=first - self.accepted,
            total_s=now - self.accepted,
        )


@dataclass(eq=False)
class _Work:
    """One answer on its way through the engine."""

    request: GenerationRequest
    prompt: TokenArray
    n_most: int
    clock: _Clock
    stream: TextStream
    events: queue.SimpleQueue[GenerationEvent | ApplianceError] = field(
        default_factory=queue.SimpleQueue
    )
    is_cancelled: bool = False
    is_over: bool = False
    client: str = ""
    position: int = 0
    sampler: Sampler | None = None
    n_prompt: int = 0
    n_cached: int = 0
    n_read: int = 0
    n_out: int = 0
    pending: int = -1

    @property
    def is_prefilling(self) -> bool:
        return self.n_read < len(self.prompt)


@dataclass(frozen=True)
class _Part:
    """What one slot contributes to a step."""

    slot: Slot[_Work]
    work: _Work
    tokens: TokenArray
    output_row: int
    is_prefill: bool


class _Answer:
    """The caller's end of a ``_Work``; see ``appliance.engine.base.Generation``."""

    def __init__(self, engine: LlamaEngine, work: _Work) -> None:
        self._engine = engine
        self._work = work

    def __iter__(self) -> Iterator[GenerationEvent]:
        """Yield events until ``Finished``; a caller that stops iterating cancels the answer."""
        is_over = False
        try:
            while not is_over:
                event = self._work.events.get()
                if isinstance(event, ApplianceError):
                    is_over = True
                    raise event
                is_over = isinstance(event, Finished)
                yield event
        finally:
            if not is_over:
                self.cancel()

    def cancel(self) -> None:
        """Stop within one step, at whatever stage; idempotent."""
        self._engine.cancel(self._work)


class LlamaEngine:
    """Generation and embedding over GGUF files; implements ``appliance.engine.base.Engine``.

    The constructor returns at once; the engine thread loads the embedder, then the model. While
    the model loads, embedding already works.

    Args:
        model_path: the model that answers, None for none.
        embedder_path: the model that embeds, None for none.
        n_ctx: context of one answer in tokens, prompt included; lowered to what the model was
            trained for.
        n_slots: answers at the same time. The KV cache holds ``n_ctx * n_slots`` tokens.
        n_threads: CPU threads; None takes every CPU this process may use.
        n_batch: most tokens in one step.
        max_queue: answers that may wait; more are refused.
        embed_batch: tokens in one embedding batch, and most tokens of one text.
        device: ``auto``, ``cpu`` or ``cann``.
        plugin_path: the NPU plugin's library, None when none is installed.
        step_s: seconds a step may take while answers are streaming.
        model_problem: why there is no ``model_path``; shown by ``status`` and raised on use.
        embedder_problem: the same for ``embedder_path``.
    """

    def __init__(
        self,
        model_path: Path | None,
        embedder_path: Path | None,
        *,
        n_ctx: int = 4096,
        n_slots: int = 2,
        n_threads: int | None = None,
        n_batch: int = 512,
        max_queue: int = 32,
        embed_batch: int = 512,
        device: DeviceChoice = "auto",
        plugin_path: Path | None = None,
        step_s: float = 0.4,
        model_problem: ApplianceError | None = None,
        embedder_problem: ApplianceError | None = None,
    ) -> None:
        self._model_path = model_path
        self._embedder_path = embedder_path
        self._n_ctx = n_ctx
        self._n_slots = n_slots
        self._n_threads = n_threads or len(os.sched_getaffinity(0))
        self._n_batch = n_batch
        self._max_queue = max_queue
        self._embed_batch = embed_batch
        self._device_wanted: DeviceChoice = device
        self._plugin_path = plugin_path
        self._step_s = step_s

        self._lock = threading.Condition()
        self._state: State = "loading"
        self._failure: ApplianceError | None = model_problem
        self._embed_failure: ApplianceError | None = embedder_problem
        self._is_closing = False
        self._device = Device("cpu", 0, "CPU", "not chosen yet")
        self._memory: dict[str, int] = {"weights": 0, "kv": 0, "compute": 0}
        self._waiting: WaitingRoom[_Work] = WaitingRoom()
        self._queries = EmbedQueue()
        self._ingests = EmbedQueue()
        self._in_step: set[_Work] = set()
        self._n_steps = 0
        self._n_prefilled = 0
        self._n_decoded = 0
        self._n_embedded = 0
        self._answer_s: float | None = None

        # Owned by the engine thread from here on, except that tokenising may read the models.
        self._model: Model | None = None
        self._context: Context | None = None
        self._embedder: Model | None = None
        self._embed_context: Context | None = None
        self._template: ChatTemplate | None = None
        self._dressing: Dressing | None = None
        self._embed_header: GgufHeader | None = None
        self._embedder_id: str | None = None
        self._abort = AbortFlag()
        self._embed_abort = AbortFlag()
        self._slots: list[Slot[_Work]] = [Slot(seq_id) for seq_id in range(n_slots)]
        self._batch = Batch(n_batch)
        self._embed_tokens = Batch(embed_batch)
        self._prefill_rate = Rate()
        self._decode_rate = Rate()
        self._embed_rate = Rate()
        self._n_turns = 0
        self._ingest_rests_until = 0.0

        self._thread = threading.Thread(target=self._main, name="engine")
        self._thread.start()

    # ---------------------------------------------------------------------------------------------
    # what callers use, from any thread

    @property
    def n_ctx(self) -> int:
        """Context of one answer, in tokens."""
        return self._n_ctx

    @property
    def failure(self) -> ApplianceError | None:
        """Why the model is not there, None when it is (or still loads)."""
        with self._lock:
            return self._failure

    @property
    def n_embd(self) -> int:
        """Length of a vector; known from the file's header before the model is loaded."""
        return self._header().embedding_length

    @property
    def embedder_id(self) -> str:
        """Identity of the vectors: what the model is called, its bytes and what is put around text.

        Two engines with the same identity give the same vectors up to rounding.
        """
        if self._embedder_id is None:
            header = self._header()
            digest = hashlib.sha256()
            with header.path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
            name = header.text("general.name") or header.path.stem
            dressing = dressing_for(name, header.architecture)
            self._embedder_id = f"{name}:{digest.hexdigest()[:16]}:{dressing.name}"
        return self._embedder_id

    def generate(self, request: GenerationRequest) -> _Answer:
        """Queue a request; see ``appliance.engine.base.Engine.generate``."""
        model = self._ready_model()
        if request.prompt is not None:
            prompt = model.prompt_tokens(request.prompt)
        else:
            prompt = self._chat_tokens(request.messages)
        if len(prompt) == 0:
            raise EngineError("empty_prompt")
        n_reserved = 1 if request.max_tokens is None else max(request.max_tokens, 1)
        if len(prompt) + n_reserved > self._n_ctx:
            raise ContextOverflowError(
                n_prompt_tokens=len(prompt), n_reserved=n_reserved, n_ctx=self._n_ctx
            )
        n_most = self._n_ctx - len(prompt)
        if request.max_tokens is not None:
            n_most = min(n_most, request.max_tokens)
        clock = _Clock(accepted=time.monotonic())
        work = _Work(request, prompt, n_most, clock, TextStream(request.stop), n_prompt=len(prompt))
        with self._lock:
            self._demand_ready()
            if len(self._waiting) >= self._max_queue:
                wait = self._wait_s(len(self._waiting)) or _FIRST_GUESS_S
                raise QueueFullError(
                    n_waiting=len(self._waiting), retry_after_s=max(1, round(wait))
                )
            self._waiting.add(work, int(request.priority), request.client)
            self._announce_positions()
            self._lock.notify_all()
        return _Answer(self, work)

    def cancel(self, work: _Work) -> None:
        """End ``work``: at once while it waits, within one step once it runs."""
        with self._lock:
            if work.is_over or work.is_cancelled:
                return
            work.is_cancelled = True
            if self._waiting.remove(work):
                self._finish(work, FinishReason.CANCELLED)
                self._announce_positions()
            elif work in self._in_step:
                self._abort.set()
            self._lock.notify_all()

    def count_tokens(self, messages: Sequence[Message]) -> Tokens:
        """Tokens of the rendered chat prompt, generation header included."""
        self._ready_model()
        return Tokens(len(self._chat_tokens(tuple(messages))))

    def count_text_tokens(self, text: str) -> Tokens:
        """Tokens of a bare text, without anything the model wants around it."""
        model = self._ready_model()
        return Tokens(len(model.tokenize(text, add_special=False, parse_special=False)))

    def embed(
        self, texts: Sequence[str], kind: Kind, priority: Priority
    ) -> npt.NDArray[np.float32]:
        """Return one unit-length vector per text; see ``appliance.engine.base.Embedder.embed``."""
        embedder, dressing = self._ready_embedder()
        if not texts:
            return np.zeros((0, embedder.n_embd), dtype=np.float32)
        rows = [self._embed_text(embedder, dressing, text, kind) for text in texts]
        limit = self._embed_limit(embedder)
        for tokens in rows:
            if len(tokens) > limit:
                raise ContextOverflowError(
                    "embed_overflow", n_prompt_tokens=len(tokens), n_ctx=limit
                )
        job = EmbedJob(rows, embedder.n_embd)
        with self._lock:
            if self._is_closing or self._state == "stopped":
                raise EngineStoppedError(state="stopped")
            is_query = priority <= Priority.QUERY_EMBED
            (self._queries if is_query else self._ingests).add(job)
            self._lock.notify_all()
        job.is_done.wait()
        if job.error is not None:
            raise job.error
        return job.vectors

    def count_embed_tokens(self, text: str) -> Tokens:
        """Tokens of ``text`` as a passage, prefix and specials included."""
        embedder, dressing = self._ready_embedder()
        return Tokens(len(self._embed_text(embedder, dressing, text, "passage")))

    def status(self) -> EngineStatus:
        """A snapshot; waits for no native call."""
        with self._lock:
            failure = self._failure
            model, embedder = self._model, self._embedder
            return EngineStatus(
                state=self._state,
                model=model.path.stem if model is not None and self._state == "ready" else None,
                embedder=embedder.path.stem if embedder is not None else None,
                device=self._device.description,
                device_reason=self._device.reason,
                n_ctx=self._n_ctx,
                n_slots=self._n_slots,
                n_running=sum(slot.work is not None for slot in self._slots),
                n_waiting=len(self._waiting),
                tokens_prefilled=self._n_prefilled,
                tokens_decoded=self._n_decoded,
                texts_embedded=self._n_embedded,
                prefill_tok_s=self._prefill_rate.per_second,
                decode_tok_s=self._decode_rate.per_second,
                memory={kind: Bytes(n_bytes) for kind, n_bytes in self._memory.items()},
                error=failure.code if failure is not None else None,
                error_facts=dict(failure.facts) if failure is not None else {},
            )

    def steps(self) -> int:
        """Moves with every step and every idle wake-up; still only when the thread is stuck."""
        return self._n_steps

    def close(self) -> None:
        """Cancel what runs, refuse what waits, free everything, join the thread; idempotent."""
        with self._lock:
            self._is_closing = True
            self._abort.set()
            self._embed_abort.set()
            self._lock.notify_all()
        self._thread.join()

    # ---------------------------------------------------------------------------------------------
    # callers' helpers

    def _demand_ready(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closing:
            raise EngineStoppedError(state="stopped")
        if self._state != "ready":
            raise EngineStoppedError(state=self._state)

    def _ready_model(self) -> Model:
        with self._lock:
            self._demand_ready()
            model = self._model
        if model is None:
            raise EngineStoppedError(state="stopped")
        return model

    def _ready_embedder(self) -> tuple[Model, Dressing]:
        with self._lock:
            if self._is_closing:
                raise EngineStoppedError(state="stopped")
            if self._embed_failure is not None:
                raise self._embed_failure
            embedder, dressing = self._embedder, self._dressing
        if embedder is None or dressing is None:
            raise EngineStoppedError(state="loading")
        return embedder, dressing

    def _header(self) -> GgufHeader:
        if self._embed_header is None:
            if self._embedder_path is None:
                raise self._embed_failure or ModelMissingError(model="embedder")
            self._embed_header = inspect(self._embedder_path)
        return self._embed_header

    def _chat_tokens(self, messages: Sequence[Message]) -> TokenArray:
        model = self._ready_model()
        if self._template is None:
            raise EngineError("chat_template_missing", model=model.name)
        return model.prompt_tokens(self._template.render(messages))

    def _embed_text(self, embedder: Model, dressing: Dressing, text: str, kind: Kind) -> TokenArray:
        dressed = dressing.dress(text, kind)
        return embedder.tokenize(dressed, add_special=True, parse_special=False)

    def _embed_limit(self, embedder: Model) -> int:
        return min(self._embed_batch, embedder.n_ctx_train)

    def _wait_s(self, position: int) -> float | None:
        if self._answer_s is None:
            return None
        return self._answer_s * position / self._n_slots

    def _announce_positions(self) -> None:
        """Tell every waiting answer its place if it changed; the lock is held."""
        for position, work in enumerate(self._waiting.ordered(), start=1):
            if work.position != position:
                work.position = position
                work.events.put(QueueUpdate(position, self._wait_s(position)))

    # ---------------------------------------------------------------------------------------------
    # the engine thread

    def _main(self) -> None:
        try:
            self._load()
            while self._wait_for_work():
                self._turn()
        except Exception as error:  # noqa: BLE001 (a bug must fail requests, not hang them)
            _log.exception("the engine thread died")
            with self._lock:
                self._failure = EngineError(cause=f"{type(error).__name__}: {error}")
                self._state = "failed"
        finally:
            self._release()

    def _load(self) -> None:
        started = time.monotonic()
        try:
            device = choose_device(self._device_wanted, self._plugin_path)
        except ApplianceError as error:
            self._fail_load(error)
            device = Device("cpu", 0, "none", str(error))
        with self._lock:
            self._device = device
        self._load_embedder(device)
        if self._failure is None:
            self._load_model(device)
        with self._lock:
            if not self._is_closing:
                self._state = "failed" if self._failure is not None else "ready"
            state = self._state
        _log.info("engine %s after %.1f s", state, time.monotonic() - started)

    def _fail_load(self, error: ApplianceError) -> None:
        _log.error("the model cannot be used: %s", error)
        with self._lock:
            self._failure = error

    def _load_embedder(self, device: Device) -> None:
        if self._embedder_path is None or self._is_closing:
            if self._embed_failure is None:
                self._embed_failure = ModelMissingError(model="embedder")
            return
        embedder: Model | None = None
        try:
            header = inspect(self._embedder_path)
            with sizes_of(self._memory):
                embedder = Model(
                    self._embedder_path,
                    n_gpu_layers=device.n_gpu_layers,
                    progress=lambda _done: not self._is_closing,
                )
                shape = ContextShape(
                    n_cells=self._embed_batch,
                    n_batch=self._embed_batch,
                    n_seq=_EMBED_SEQUENCES,
                    n_threads=self._n_threads,
                    is_embedding=True,
                )
                self._embed_context = Context(embedder, shape, self._embed_abort)
        except ApplianceError as error:
            if embedder is not None:
                embedder.close()
            _log.error("the embedder cannot be used: %s", error)
            with self._lock:
                self._embed_failure = error
            return
        with self._lock:
            self._embed_header = header
            self._dressing = dressing_for(embedder.name, header.architecture)
            self._embedder = embedder

    def _load_model(self, device: Device) -> None:
        if self._model_path is None:
            self._fail_load(ModelMissingError(model="chat"))
            return
        model: Model | None = None
        context: Context | None = None
        try:
            inspect(self._model_path)
            with sizes_of(self._memory):
                model = Model(
                    self._model_path,
                    n_gpu_layers=device.n_gpu_layers,
                    progress=self._between_tensors,
                )
                self._n_ctx = min(self._n_ctx, model.n_ctx_train)
                shape = ContextShape(
                    n_cells=self._n_ctx * self._n_slots,
                    n_batch=self._n_batch,
                    n_seq=self._n_slots,
                    n_threads=self._n_threads,
                )
                context = Context(model, shape, self._abort)
            template = self._load_template(model)
            self._warm_up(model, context)
        except ApplianceError as error:
            if context is not None:
                context.close()
            if model is not None:
                model.close()
            if not self._is_closing:
                self._fail_load(error)
            return
        with self._lock:
            self._model, self._context, self._template = model, context, template

    def _load_template(self, model: Model) -> ChatTemplate | None:
        source = model.meta("tokenizer.chat_template")
        if not source:
            return None
        return ChatTemplate(
            source,
            bos=model.spelling(model.bos),
            eos=model.spelling(model.eos),
            control_tokens=model.control_spellings(),
        )

    def _warm_up(self, model: Model, context: Context) -> None:
        """Read every weight once, so that the first visitor does not wait for the disk."""
        token = max(model.bos, model.eos, 0)
        self._batch.clear()
        self._batch.add(np.array([token], dtype=np.int32), 0, 0, wants="last")
        context.decode(self._batch)
        context.clear()

    def _between_tensors(self, _done: float) -> bool:
        """Answer query embeddings while the model loads; False when the box is stopping."""
        self._n_steps += 1
        if len(self._queries):
            self._embed_step(self._queries)
        return not self._is_closing

    def _wait_for_work(self) -> bool:
        """Wait until there is something to do; False when the engine must stop."""
        with self._lock:
            while not self._is_closing:
                self._n_steps += 1
                is_running = any(slot.work is not None for slot in self._slots)
                if is_running or len(self._waiting) or len(self._queries) or len(self._ingests):
                    return True
                self._lock.wait(_IDLE_WAKE_S)
            return False

    def _turn(self) -> None:
        """Do the most urgent thing, then whatever may go along with it."""
        self._admit()
        is_chatting = any(slot.work is not None for slot in self._slots)
        if len(self._queries):
            self._chat_step(may_prefill=False)
            self._embed_step(self._queries)
        elif is_chatting:
            self._chat_step(may_prefill=True)
        now = time.monotonic()
        if len(self._ingests) and (not is_chatting or now >= self._ingest_rests_until):
            self._embed_step(self._ingests)
            took = time.monotonic() - now
            self._ingest_rests_until = now + took * (1 + _INGEST_REST)

    # ---------------------------------------------------------------------------------------------
    # answers

    def _admit(self) -> None:
        """Give free slots to waiting answers."""
        context = self._context
        if context is None:
            return
        while any(slot.work is None for slot in self._slots):
            with self._lock:
                if not len(self._waiting):
                    return
                work, client = self._waiting.pop()
                work.client = client
                self._announce_positions()
            self._start(work, context)

    def _start(self, work: _Work, context: Context) -> None:
        assert self._model is not None  # noqa: S101 (a context has a model)
        choice = choose_slot(self._slots, work.prompt, can_share=context.model.has_rollback)
        slot, source, n_common = choice.slot, choice.source, choice.n_common
        kept = source.tokens[:n_common]
        if slot is not source:
            context.remove(slot.seq_id, 0)
            context.share(source.seq_id, slot.seq_id, n_common)
        elif not context.remove(slot.seq_id, n_common):
            # A recurrent state cannot be wound back: start over.
            context.remove(slot.seq_id, 0)
            kept = kept[:0]
        self._n_turns += 1
        work.sampler = Sampler(self._model, work.request.sampling)
        work.n_cached = work.n_read = len(kept)
        work.clock.started = time.monotonic()
        with self._lock:
            slot.tokens = kept.copy()
            slot.last_used = self._n_turns
            slot.work = work

    def _chat_step(self, *, may_prefill: bool) -> None:
        """Evaluate one batch for all running answers and handle its outcome."""
        context = self._context
        if context is None:
            return
        with self._lock:
            self._abort.clear()
            for slot in self._slots:
                if slot.work is not None and slot.work.is_cancelled:
                    self._vacate(slot, FinishReason.CANCELLED)
            parts = self._plan(may_prefill=may_prefill)
            # A cancelled answer in its decode phase waits for the end of a short step; only one
            # that is reading its prompt is worth throwing the others' step away.
            self._in_step = {part.work for part in parts if part.is_prefill}
            if self._is_closing:
                self._abort.set()
        if not parts:
            return
        started = time.monotonic()
        try:
            status = context.decode(self._batch)
        except EngineError as error:
            self._fail_running(error)
            return
        finally:
            with self._lock:
                self._in_step = set()
        took = time.monotonic() - started
        self._n_steps += 1
        if status == ABORTED:
            self._drop_cancelled_prefills(context)
        elif status == DECODED:
            self._after_decode(parts, took)
        else:
            self._fail_running(EngineError(cause="the KV cache has no room left"))

    def _plan(self, *, may_prefill: bool) -> list[_Part]:
        """Fill the batch: a token for each decoding slot, then prompt tokens up to the budget."""
        self._batch.clear()
        parts: list[_Part] = []
        running = [(slot, slot.work) for slot in self._slots if slot.work is not None]
        for slot, work in running:
            if not work.is_prefilling:
                tokens = np.array([work.pending], dtype=np.int32)
                row = self._batch.add(tokens, slot.seq_id, len(slot.tokens), wants="last")
                parts.append(_Part(slot, work, tokens, row, is_prefill=False))
        if not may_prefill:
            return parts
        target_s = self._step_s if parts else 2 * self._step_s
        most = self._batch.room
        budget = chunk_tokens(self._prefill_rate, target_s, least=_LEAST_CHUNK, most=most)
        for slot, work in sorted(running, key=lambda pair: pair[0].last_used):
            if not work.is_prefilling or budget <= 0:
                continue
            tokens = work.prompt[work.n_read : work.n_read + budget]
            is_last = work.n_read + len(tokens) == len(work.prompt)
            wants = "last" if is_last else "none"
            row = self._batch.add(tokens, slot.seq_id, len(slot.tokens), wants=wants)
            parts.append(_Part(slot, work, tokens, row, is_prefill=True))
            budget -= len(tokens)
        return parts

    def _after_decode(self, parts: Sequence[_Part], took: float) -> None:
        n_prefill = sum(len(part.tokens) for part in parts if part.is_prefill)
        n_decode = len(parts) - sum(part.is_prefill for part in parts)
        if n_prefill:
            self._prefill_rate.add(n_prefill, took)
        else:
            self._decode_rate.add(n_decode, took)
        with self._lock:
            self._n_prefilled += n_prefill
        for part in parts:
            part.slot.tokens = np.concatenate([part.slot.tokens, part.tokens])
            work = part.work
            if part.is_prefill:
                work.n_read += len(part.tokens)
                if work.is_prefilling:
                    self._say_prefilled(work)
                    continue
                work.clock.prefilled = time.monotonic()
                self._say_prefilled(work)
            if work.n_most == 0:
                self._end(part.slot, FinishReason.LENGTH)
            else:
                self._sample(part)

    def _say_prefilled(self, work: _Work) -> None:
        work.events.put(Prefilled(Tokens(work.n_read), Tokens(len(work.prompt))))

    def _sample(self, part: _Part) -> None:
        """Choose the next token of an answer and show what can be shown."""
        work, context, model = part.work, self._context, self._model
        assert work.sampler is not None  # noqa: S101 (a running answer has one)
        assert context is not None  # noqa: S101 (a step has one)
        assert model is not None  # noqa: S101 (a context has one)
        token = work.sampler.sample(context, part.output_row)
        if model.ends_answer(token):
            self._end(part.slot, FinishReason.STOP)
            return
        work.n_out += 1
        with self._lock:
            self._n_decoded += 1
        self._show(work, work.stream.feed(model.piece(token)))
        if work.stream.is_stopped:
            self._end(part.slot, FinishReason.STOP)
        elif work.n_out >= work.n_most:
            self._end(part.slot, FinishReason.LENGTH)
        else:
            work.pending = token

    def _show(self, work: _Work, text: str) -> None:
        if not text:
            return
        if work.clock.first_text is None:
            work.clock.first_text = time.monotonic()
        work.events.put(Token(text))

    def _end(self, slot: Slot[_Work], reason: FinishReason) -> None:
        with self._lock:
            self._vacate(slot, reason)

    def _vacate(self, slot: Slot[_Work], reason: FinishReason) -> None:
        """Finish a slot's answer; what the cache holds of it stays for the next turn."""
        work = slot.work
        assert work is not None  # noqa: S101 (callers pass busy slots)
        slot.work = None
        self._waiting.done(work.client)
        if reason is FinishReason.CANCELLED and work.is_prefilling and self._context is not None:
            self._context.remove(slot.seq_id, 0)
            slot.tokens = slot.tokens[:0]
        if reason is not FinishReason.CANCELLED:
            took = time.monotonic() - (work.clock.started or work.clock.accepted)
            self._answer_s = took if self._answer_s is None else 0.7 * self._answer_s + 0.3 * took
        self._finish(work, reason)

    def _finish(self, work: _Work, reason: FinishReason) -> None:
        """Send the last events and free what the answer owned."""
        if not work.stream.is_stopped:
            self._show(work, work.stream.finish())
        usage = Usage(Tokens(work.n_prompt), Tokens(work.n_out), Tokens(work.n_cached))
        timings = work.clock.timings(time.monotonic())
        self._over(work, Finished(reason, work.stream.text, usage, timings))

    def _over(self, work: _Work, last: Finished | ApplianceError) -> None:
        work.is_over = True
        if work.sampler is not None:
            work.sampler.close()
        work.events.put(last)

    def _drop_cancelled_prefills(self, context: Context) -> None:
        """A step was left early: end the cancelled, put the others' cells back as they were."""
        with self._lock:
            for slot in self._slots:
                if slot.work is not None and slot.work.is_cancelled:
                    self._vacate(slot, FinishReason.CANCELLED)
        for slot in self._slots:
            if not context.remove(slot.seq_id, len(slot.tokens)):
                context.remove(slot.seq_id, 0)
                self._reread(slot)

    def _reread(self, slot: Slot[_Work]) -> None:
        """The cache of this slot is gone: read what it held again as a prompt."""
        work = slot.work
        if work is not None and not work.is_prefilling:
            answered = np.array([work.pending], dtype=np.int32)
            work.prompt = np.concatenate([slot.tokens, answered])
        if work is not None:
            work.n_read = 0
        slot.tokens = slot.tokens[:0]

    def _fail_running(self, error: EngineError) -> None:
        """The context cannot be trusted after this: fail its answers and empty it."""
        _log.error("a step failed: %s", error)
        with self._lock:
            for slot in self._slots:
                work, slot.work = slot.work, None
                slot.tokens = slot.tokens[:0]
                if work is not None:
                    self._waiting.done(work.client)
                    self._over(work, error)
        if self._context is not None:
            self._context.clear()

    # ---------------------------------------------------------------------------------------------
    # embeddings

    def _embed_step(self, source: EmbedQueue) -> None:
        """Embed as many texts as one batch holds."""
        context = self._embed_context
        with self._lock:
            n_tokens = chunk_tokens(
                self._embed_rate, self._step_s, least=_LEAST_CHUNK, most=self._embed_tokens.capacity
            )
            items = source.take(n_tokens, _EMBED_SEQUENCES)
        if not items:
            return
        if context is None:
            for job, _row in items:
                job.fail(self._embed_failure or EngineStoppedError(state="stopped"))
            return
        started = time.monotonic()
        try:
            is_done = self._embed_batch_of(context, items)
        except EngineError as error:
            _log.error("an embedding batch failed: %s", error)
            for job, _row in items:
                job.fail(error)
            return
        self._n_steps += 1
        if not is_done:
            with self._lock:
                source.put_back(items)
            return
        self._embed_rate.add(self._embed_tokens.n, time.monotonic() - started)

    def _embed_batch_of(self, context: Context, items: Sequence[tuple[EmbedJob, int]]) -> bool:
        """Evaluate texts as the sequences 0, 1, ... of one batch; False when it was left early."""
        self._embed_tokens.clear()
        for seq_id, (job, row) in enumerate(items):
            self._embed_tokens.add(job.texts[row], seq_id, 0, wants="all")
        context.clear()
        status = context.decode(self._embed_tokens)
        if status == ABORTED:
            return False
        if status != DECODED:
            raise EngineError(cause="the embedding batch did not fit")
        with self._lock:
            self._n_embedded += len(items)
        for seq_id, (job, row) in enumerate(items):
            vector = unit_length(context.pooled(seq_id))
            if vector is None:
                job.fail(EngineError(cause="the embedder gave a vector without a direction"))
            else:
                job.put(row, vector)
        return True

    # ---------------------------------------------------------------------------------------------
    # the end

    def _release(self) -> None:
        """Tell everybody, then free native memory in the reverse order of its making."""
        with self._lock:
            error = self._failure or EngineStoppedError(state="stopped")
            if self._is_closing:
                self._state = "stopped"
            self._is_closing = True
            for slot in self._slots:
                if slot.work is not None:
                    self._vacate(slot, FinishReason.CANCELLED)
            while len(self._waiting):
                work, _client = self._waiting.pop()
                self._over(work, error)
            self._queries.fail_all(error)
            self._ingests.fail_all(error)
        for context in (self._context, self._embed_context):
            if context is not None:
                context.close()
        for model in (self._model, self._embedder):
            if model is not None:
                model.close()
