"""Answers: the slots of one model, the queue before them, and the step that serves them all.

One step is one ``llama_decode``: a token for every running answer, then prompt tokens of the others
up to a budget that measured speed sets, so that a step stays under ``step_s`` and running answers
keep streaming while a prompt is read.

Two kinds of methods. ``accept``, ``enqueue``, ``cancel`` and the numbers are for any thread.
``load``, ``admit``, ``step``, ``end_all`` and ``free`` are for the engine thread, which alone
touches the context. The lock is shared with the engine; it guards queue, slots' work and counters
and is never held during a native computation.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from appliance.engine.base import (
    Feature,
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Message,
    Prefilled,
    QueueUpdate,
    Reasoning,
    SavedPrompts,
    Token,
    Usage,
)
from appliance.engine.native import (
    ABORTED,
    DECODED,
    LIBRARY_VERSION,
    AbortFlag,
    Batch,
    Context,
    ContextShape,
    Model,
    Sampler,
    sizes_of,
)
from appliance.engine.pace import Rate, chunk_tokens
from appliance.engine.promptcache import PrefixFiles, Saved, model_digest
from appliance.engine.requests import demand_sane, grammar_source, token_logprob
from appliance.engine.slots import Slot, TokenArray, choose_slot, common_prefix
from appliance.engine.template import ChatTemplate
from appliance.engine.textstream import TextStream
from appliance.engine.thinking import CLOSE, OPEN, ThoughtSplitter
from appliance.engine.waiting import WaitingRoom
from appliance.engine.work import Clock, Work
from appliance.errors import (
    ApplianceError,
    ContextOverflowError,
    DeviceLostError,
    EngineError,
    EngineStoppedError,
    QueueFullError,
)
from appliance.system.gguf import inspect
from appliance.units import Tokens

_log = logging.getLogger(__name__)

_LEAST_CHUNK = 32
_LEAST_PINNED = 32
_N_PINS = 2
_END_OF_THOUGHT = f"\n{CLOSE}\n\n"
_FIRST_GUESS_S = 10.0


@dataclass(frozen=True)
class Part:
    """What one slot contributes to a step."""

    slot: Slot[Work]
    work: Work
    tokens: TokenArray
    output_row: int
    is_prefill: bool


class Answering:
    """Slots, queue and context of the model that answers; see the module's text."""

    def __init__(
        self,
        lock: threading.Condition,
        *,
        n_ctx: int,
        n_slots: int,
        n_batch: int,
        max_queue: int,
        step_s: float,
        saved: SavedPrompts | None = None,
    ) -> None:
        self._lock = lock
        self._n_ctx_wanted = self.n_ctx = n_ctx
        self._max_queue = max_queue
        self._step_s = step_s
        self.model: Model | None = None
        self.context: Context | None = None
        self._template: ChatTemplate | None = None
        self.abort = AbortFlag()
        self.slots: list[Slot[Work]] = [Slot(seq_id) for seq_id in range(n_slots)]
        self._pins: list[Slot[Work]] = [Slot(n_slots + n) for n in range(_N_PINS)]
        self._saved = saved
        self._files: PrefixFiles | None = None
        self._unsaved: list[Slot[Work]] = []
        self._head: tuple[object, TokenArray] | None = None
        self._batch = Batch(n_batch)
        self._waiting: WaitingRoom[Work] = WaitingRoom()
        self._in_step: set[Work] = set()
        self._is_stopping = False
        self.lost: DeviceLostError | None = None
        self._n_turns = 0
        self._answer_s: float | None = None
        self.n_steps = 0
        self.n_prefilled = 0
        self.n_decoded = 0
        self.prefill_rate = Rate()
        self.decode_rate = Rate()

    # ---------------------------------------------------------------------------------------------
    # for any thread

    @property
    def n_running(self) -> int:
        """Answers in slots."""
        return sum(slot.work is not None for slot in self.slots)

    @property
    def n_waiting(self) -> int:
        """Answers in the queue."""
        return len(self._waiting)

    def opened(self) -> Model:
        """Return the model.

        Raises:
            EngineStoppedError: it is not loaded (any more).
        """
        if self.model is None:
            raise EngineStoppedError(state="stopped")
        return self.model

    @property
    def features(self) -> frozenset[Feature]:
        """What the chat template can do."""
        return self._template.features if self._template is not None else frozenset()

    def chat_prompt(
        self, messages: Sequence[Message], *, tools: str | None = None, thinking: bool = False
    ) -> str:
        """Return the text of a conversation, ready to be answered.

        Raises:
            EngineError: the model has no chat template, or it refuses these messages or tools.
        """
        model = self.opened()
        if self._template is None:
            raise EngineError("chat_template_missing", model=model.path.stem)
        if tools is not None and "tools" not in self._template.features:
            raise EngineError("tools_unsupported", model=model.path.stem)
        prompt = self._template.render(messages, tools=tools, thinking=thinking)
        if not thinking and prompt.rstrip().endswith(OPEN):
            # A template without the switch, of a model that always thinks.
            prompt += _END_OF_THOUGHT
        return prompt

    def chat_tokens(self, messages: Sequence[Message]) -> TokenArray:
        """Return the tokens of ``chat_prompt``."""
        return self.opened().prompt_tokens(self.chat_prompt(messages))

    def accept(self, request: GenerationRequest) -> list[Work]:
        """Return the work for a request that can be served, one for each of its answers.

        Raises:
            ContextOverflowError: prompt and answer do not fit.
            EngineError: the prompt is empty or a setting makes no sense.
        """
        model = self.opened()
        demand_sane(request, model.n_vocab)
        thinks = request.thinking and request.thinking_budget != 0
        if request.prompt is not None:
            text = request.prompt
        else:
            text = self.chat_prompt(request.messages, tools=request.tools, thinking=thinks)
        prompt = model.prompt_tokens(text)
        if len(prompt) == 0:
            raise EngineError("empty_prompt")
        n_reserved = 1 if request.max_tokens is None else max(request.max_tokens, 1)
        if len(prompt) + n_reserved > self.n_ctx:
            raise ContextOverflowError(
                n_prompt_tokens=len(prompt), n_reserved=n_reserved, n_ctx=self.n_ctx
            )
        n_most = self.n_ctx - len(prompt)
        if request.max_tokens is not None:
            n_most = min(n_most, max(request.max_tokens, 0))
        is_thinking = text.rstrip().endswith(OPEN)
        splits = request.prompt is None and "thinking" in self.features
        source = grammar_source(request)
        if source is not None:
            model.grammar(source).close()  # to refuse a bad one now
        n_pinned = self._n_shared(request, prompt, thinks=thinks)
        clock = Clock(accepted=time.monotonic())
        events: queue.SimpleQueue[GenerationEvent | ApplianceError] = queue.SimpleQueue()
        works = [
            Work(
                request=request,
                prompt=prompt,
                n_prompt=len(prompt),
                n_most=n_most,
                clock=replace(clock),
                stream=TextStream(
                    request.stop, ThoughtSplitter(is_thinking=is_thinking) if splits else None
                ),
                events=events,
                index=index,
                grammar_source=source,
                n_pinned=n_pinned,
            )
            for index in range(request.n)
        ]
        works[0].followers = works[1:]
        return works

    def _n_shared(self, request: GenerationRequest, prompt: TokenArray, *, thinks: bool) -> int:
        """Return how many tokens other chats with the same system message will begin with."""
        if not request.messages or request.messages[0].role != "system":
            return 0
        key = (request.messages[0], request.tools, thinks)
        if self._head is None or self._head[0] != key:
            # What two conversations that differ in the user's words have in common. The words
            # are ones that no tokenizer joins to what stands before them.
            heads = [
                self.opened().prompt_tokens(
                    self.chat_prompt(
                        (request.messages[0], Message("user", word)),
                        tools=request.tools,
                        thinking=thinks,
                    )
                )
                for word in ("0", "\n")
            ]
            self._head = (key, heads[0][: common_prefix(heads[0], heads[1])])
        n_common = common_prefix(self._head[1], prompt)
        return n_common if n_common >= _LEAST_PINNED else 0

    def enqueue(self, work: Work) -> None:
        """Put accepted work into the queue; the lock is held.

        Raises:
            QueueFullError: the queue is full; facts say when to come back.
        """
        n_waiting = len(self._waiting)
        if n_waiting >= self._max_queue:
            wait_s = self._wait_s(n_waiting) or _FIRST_GUESS_S
            raise QueueFullError(n_waiting=n_waiting, retry_after_s=max(1, round(wait_s)))
        self._waiting.add(work, int(work.request.priority), work.request.client)
        self._announce_positions()
        self._lock.notify_all()

    def cancel(self, work: Work) -> None:
        """End ``work``: at once while it waits, within one step once it runs."""
        with self._lock:
            if work.is_over or work.is_cancelled:
                return
            work.is_cancelled = True
            if self._waiting.remove(work):
                self._finish(work, FinishReason.CANCELLED)
                self._announce_positions()
            elif work in self._in_step:
                self.abort.set()
            elif work.index and all(slot.work is not work for slot in self.slots):
                self._finish(work, FinishReason.CANCELLED)  # its prompt is still being read
            self._lock.notify_all()

    def stop(self) -> None:
        """Leave the running step; the lock is held and no other step will follow."""
        self._is_stopping = True
        self.abort.set()

    def _wait_s(self, position: int) -> float | None:
        if self._answer_s is None:
            return None
        return self._answer_s * position / len(self.slots)

    def _announce_positions(self) -> None:
        """Tell every waiting answer its place if it changed; the lock is held."""
        for position, work in enumerate(self._waiting.ordered(), start=1):
            if work.position != position and work.index == 0:
                work.position = position
                work.events.put(QueueUpdate(position, self._wait_s(position)))

    # ---------------------------------------------------------------------------------------------
    # loading and freeing, on the engine thread

    def load(
        self,
        path: Path,
        *,
        n_gpu_layers: int,
        n_threads: int,
        progress: Callable[[float], bool],
        memory: dict[str, int],
    ) -> None:
        """Open the model, make its context and read its weights once.

        Args:
            path: the GGUF.
            n_gpu_layers: layers to offload.
            n_threads: CPU threads.
            progress: called while loading; False abandons it.
            memory: what was allocated is added here.

        Raises:
            ModelMissingError, ModelRejectedError, EngineError: it cannot be used; nothing is left.
        """
        inspect(path)
        model: Model | None = None
        context: Context | None = None
        try:
            with sizes_of(memory):
                model = Model(path, n_gpu_layers=n_gpu_layers, progress=progress)
                n_ctx = min(self._n_ctx_wanted, model.n_ctx_train)
                shape = ContextShape(
                    n_cells=n_ctx * len(self.slots),
                    n_batch=self._batch.capacity,
                    n_seq=len(self.slots) + len(self._pins),
                    n_threads=n_threads,
                )
                context = Context(model, shape, self.abort)
            template = _template_of(model)
            self._warm_up(model, context)
            self._restore(context, f"gpu layers {n_gpu_layers}")
        except ApplianceError:
            if context is not None:
                context.close()
            if model is not None:
                model.close()
            raise
        with self._lock:
            self.n_ctx = n_ctx
            self.model, self.context, self._template = model, context, template

    def _warm_up(self, model: Model, context: Context) -> None:
        """Read every weight once, so that the first visitor does not wait for the disk."""
        token = np.array([max(model.bos, model.eos, 0)], dtype=np.int32)
        self._batch.clear()
        self._batch.add(token, 0, 0, wants="last")
        context.decode(self._batch)
        context.clear()

    def _restore(self, context: Context, settings: str) -> None:
        """Put back what earlier runs pinned; a box that cannot save still answers."""
        if self._saved is None or not context.model.has_rollback:
            return
        try:
            digest = model_digest(context.model.path, self._saved.folder)
            world = f"{digest}|llama-cpp-python {LIBRARY_VERSION}|{settings}"
            self._files = PrefixFiles(self._saved.folder, self._saved.most_bytes, world)
            kept = self._files.load(len(self._pins))
        except OSError as error:
            _log.warning("prompts cannot be kept across restarts: %s", error)
            self._files = None
            return
        for pin, saved in zip(self._pins, kept, strict=False):
            if context.load_sequence(pin.seq_id, saved.cells) and (
                context.length(pin.seq_id) == len(saved.tokens)
            ):
                pin.tokens = saved.tokens
            else:
                context.remove(pin.seq_id, 0)
        _log.info("%d shared prompts restored", sum(len(pin.tokens) > 0 for pin in self._pins))

    @property
    def has_unsaved(self) -> bool:
        """Whether ``save_pins`` has something to do."""
        return self._files is not None and bool(self._unsaved)

    def save_pins(self) -> None:
        """Write what was pinned and is not on the disk yet; for idle moments."""
        if self._files is None or self.context is None:
            return
        pins, self._unsaved = self._unsaved, []
        for pin in pins:
            saved = Saved(pin.tokens, self.context.save_sequence(pin.seq_id))
            try:
                if len(pin.tokens) and self._files.save(saved):
                    _log.info("saved a shared prompt of %d tokens", len(pin.tokens))
            except OSError as error:
                _log.warning("a shared prompt could not be saved: %s", error)

    def _pin(self, slot: Slot[Work], work: Work, context: Context) -> None:
        """Keep the shared beginning of a prompt that was just read, in place of the oldest."""
        tokens = work.prompt[: work.n_pinned]
        if not len(tokens) or not context.model.has_rollback:
            return
        for pin in self._pins:
            if np.array_equal(pin.tokens, tokens):
                pin.last_used = self._n_turns
                if self._files is not None:
                    self._files.touch(tokens)
                return
        pin = min(self._pins, key=lambda pin: (len(pin.tokens) > 0, pin.last_used))
        context.remove(pin.seq_id, 0)
        context.share(slot.seq_id, pin.seq_id, len(tokens))
        pin.tokens, pin.last_used = tokens.copy(), self._n_turns
        if pin not in self._unsaved:
            self._unsaved.append(pin)

    def _unpin(self, context: Context) -> bool:
        """Give the pins' cells back; False when there were none."""
        held = [pin for pin in self._pins if len(pin.tokens)]
        for pin in held:
            context.remove(pin.seq_id, 0)
            pin.tokens = pin.tokens[:0]
        self._unsaved = []
        return bool(held)

    def end_all(self, error: ApplianceError, *, is_failure: bool) -> None:
        """Refuse what waits with ``error``; what runs ends with it too, or cancelled.

        The lock is held.
        """
        for slot in self.slots:
            if slot.work is not None and is_failure:
                self._over(slot.work, error)
                slot.work = None
            elif slot.work is not None:
                self._vacate(slot, FinishReason.CANCELLED)
        while len(self._waiting):
            work, _client = self._waiting.pop()
            self._over(work, error)

    def free(self) -> None:
        """Free context and model; idempotent."""
        if self.context is not None:
            self.context.close()
        if self.model is not None:
            self.model.close()
        self.context = self.model = None
        self.lost = None
        for slot in (*self.slots, *self._pins):
            slot.tokens = slot.tokens[:0]
        self._unsaved = []

    # ---------------------------------------------------------------------------------------------
    # serving, on the engine thread

    def admit(self) -> None:
        """Give free slots to waiting answers."""
        context = self.context
        if context is None:
            return
        while any(slot.work is None for slot in self.slots):
            with self._lock:
                if not len(self._waiting):
                    return
                work, client = self._waiting.pop()
                work.client = client
                self._announce_positions()
            self._start(work, context)

    def _start(self, work: Work, context: Context) -> None:
        assert self.model is not None  # noqa: S101 (a context has a model)
        choice = choose_slot(
            self.slots, work.prompt, can_share=context.model.has_rollback, pinned=self._pins
        )
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
        sampling = work.request.sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + work.index)
        if work.grammar_source is not None:
            work.grammar = self.model.grammar(work.grammar_source)
        work.sampler = Sampler(
            self.model, sampling, work.prompt, n_ctx=self.n_ctx, grammar=work.grammar
        )
        work.n_cached = work.n_read = len(kept)
        work.clock.started = time.monotonic()
        with self._lock:
            slot.tokens = kept.copy()
            slot.last_used = self._n_turns
            slot.work = work

    def step(self, *, may_prefill: bool) -> None:
        """Evaluate one batch for all running answers and handle its outcome."""
        context = self.context
        if context is None:
            return
        with self._lock:
            self.abort.clear()
            for slot in self.slots:
                if slot.work is not None and slot.work.is_cancelled:
                    self._vacate(slot, FinishReason.CANCELLED)
            parts = self._plan(may_prefill=may_prefill)
            # A cancelled answer in its decode phase waits for the end of a short step; only one
            # that is reading its prompt is worth throwing the others' step away.
            self._in_step = {part.work for part in parts if part.is_prefill}
            if self._is_stopping:
                self.abort.set()
        if not parts:
            return
        started = time.monotonic()
        try:
            status = context.decode(self._batch)
        except EngineError as error:
            if isinstance(error, DeviceLostError):
                self.lost = error
            self._fail_running(error)
            return
        finally:
            with self._lock:
                self._in_step = set()
        took = time.monotonic() - started
        self.n_steps += 1
        if status == ABORTED:
            self._drop_cancelled_prefills(context)
        elif status == DECODED:
            self._after_decode(context, parts, took)
        elif not self._unpin(context):
            self._fail_running(EngineError(cause="the KV cache has no room left"))

    def _plan(self, *, may_prefill: bool) -> list[Part]:
        """Fill the batch: a token for each decoding slot, then prompt tokens up to the budget."""
        self._batch.clear()
        parts: list[Part] = []
        running = [(slot, slot.work) for slot in self.slots if slot.work is not None]
        for slot, work in running:
            if not work.is_prefilling:
                tokens = np.array([work.pending], dtype=np.int32)
                row = self._batch.add(tokens, slot.seq_id, len(slot.tokens), wants="last")
                parts.append(Part(slot, work, tokens, row, is_prefill=False))
        if not may_prefill:
            return parts
        target_s = self._step_s if parts else 2 * self._step_s
        most = self._batch.room
        budget = chunk_tokens(self.prefill_rate, target_s, least=_LEAST_CHUNK, most=most)
        for slot, work in sorted(running, key=lambda pair: pair[0].last_used):
            if not work.is_prefilling or budget <= 0:
                continue
            tokens = work.prompt[work.n_read : work.n_read + budget]
            is_last = work.n_read + len(tokens) == len(work.prompt)
            wants = "last" if is_last else "none"
            row = self._batch.add(tokens, slot.seq_id, len(slot.tokens), wants=wants)
            parts.append(Part(slot, work, tokens, row, is_prefill=True))
            budget -= len(tokens)
        return parts

    def _after_decode(self, context: Context, parts: Sequence[Part], took: float) -> None:
        n_prefill = sum(len(part.tokens) for part in parts if part.is_prefill)
        n_decode = len(parts) - sum(part.is_prefill for part in parts)
        if n_prefill:
            self.prefill_rate.add(n_prefill, took)
        else:
            self.decode_rate.add(n_decode, took)
        with self._lock:
            self.n_prefilled += n_prefill
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
                self._pin(part.slot, work, context)
                self._call_followers(work)
            if work.n_most == 0:
                self._end(part.slot, FinishReason.LENGTH)
            else:
                self._sample(part)

    def _next_token(self, work: Work, context: Context, row: int) -> int | None:
        """Return the token that comes next; None when the answer could not go on and has ended."""
        assert work.sampler is not None  # noqa: S101 (a running answer has one)
        if work.forced:
            token = work.forced.pop(0)
            work.sampler.accept(token)
            return token
        try:
            return work.sampler.sample(context, row, is_free=work.stream.is_thinking)
        except EngineError as error:
            with self._lock:
                slot = next(slot for slot in self.slots if slot.work is work)
                slot.work = None
                self._waiting.done(work.client)
                self._over(work, error)
            return None

    def _say_prefilled(self, work: Work) -> None:
        if work.index == 0:
            work.events.put(Prefilled(Tokens(work.n_read), Tokens(len(work.prompt))))

    def _call_followers(self, work: Work) -> None:
        """The prompt is in the cache: let the other answers to it start from there."""
        if not work.followers:
            return
        with self._lock:
            followers, work.followers = work.followers, []
            for follower in followers:
                if not follower.is_over:
                    priority = int(work.request.priority)
                    self._waiting.add(follower, priority, work.client, is_follower=True)

    def _sample(self, part: Part) -> None:
        """Choose the next token of an answer and show what can be shown."""
        work, context, model = part.work, self.context, self.model
        assert context is not None  # noqa: S101 (a step has one)
        assert model is not None  # noqa: S101 (a context has one)
        if work.request.top_logprobs is not None:
            logits = context.logits(part.output_row)
        token = self._next_token(work, context, part.output_row)
        if token is None:
            return
        if model.ends_answer(token) and not work.request.ignore_eos:
            self._end(part.slot, FinishReason.STOP)
            return
        if work.request.top_logprobs is not None and not work.stream.is_thinking:
            found = token_logprob(model, logits, token, work.request.top_logprobs)
            work.logprobs.append(found)
        work.n_out += 1
        work.n_reasoning += work.stream.is_thinking
        with self._lock:
            self.n_decoded += 1
        self._show(work, work.stream.feed(model.piece(token)))
        self._mind_budget(work, model)
        if work.stream.is_stopped:
            self._end(part.slot, FinishReason.STOP)
        elif work.n_out >= work.n_most:
            self._end(part.slot, FinishReason.LENGTH)
        else:
            work.pending = token

    def _mind_budget(self, work: Work, model: Model) -> None:
        """End a thought that has taken as many tokens as it may."""
        budget = work.request.thinking_budget
        if budget is None or work.forced or not work.stream.is_thinking:
            return
        if work.n_reasoning >= budget:
            closing = model.tokenize(_END_OF_THOUGHT, add_special=False, parse_special=True)
            work.forced = closing.tolist()

    def _show(self, work: Work, text: str) -> None:
        thought = work.stream.take_thought()
        if (text or thought) and work.clock.first_text is None:
            work.clock.first_text = time.monotonic()
        if thought:
            work.events.put(Reasoning(thought, work.index))
        if text:
            new = tuple(work.logprobs[work.n_logprobs_sent :])
            work.n_logprobs_sent = len(work.logprobs)
            work.events.put(Token(text, work.index, new))

    def _end(self, slot: Slot[Work], reason: FinishReason) -> None:
        with self._lock:
            self._vacate(slot, reason)

    def _vacate(self, slot: Slot[Work], reason: FinishReason) -> None:
        """Finish a slot's answer; what the cache holds of it stays for the next turn."""
        work = slot.work
        assert work is not None  # noqa: S101 (callers pass busy slots)
        slot.work = None
        self._waiting.done(work.client)
        if reason is FinishReason.CANCELLED and work.is_prefilling and self.context is not None:
            self.context.remove(slot.seq_id, 0)
            slot.tokens = slot.tokens[:0]
        if reason is not FinishReason.CANCELLED:
            took = time.monotonic() - (work.clock.started or work.clock.accepted)
            self._answer_s = took if self._answer_s is None else 0.7 * self._answer_s + 0.3 * took
        self._finish(work, reason)

    def _finish(self, work: Work, reason: FinishReason) -> None:
        """Send the last events and free what the answer owned."""
        if not work.stream.is_stopped:
            self._show(work, work.stream.finish())
        usage = Usage(
            Tokens(work.n_prompt),
            Tokens(work.n_out),
            Tokens(work.n_cached),
            Tokens(work.n_reasoning),
        )
        last = Finished(
            reason,
            work.stream.text,
            usage,
            work.clock.timings(time.monotonic()),
            work.index,
            work.stream.thought,
            tuple(work.logprobs),
        )
        self._over(work, last)

    def _over(self, work: Work, last: Finished | ApplianceError) -> None:
        """Send the last event; answers that were to follow this one end with it."""
        work.is_over = True
        work.close()
        work.events.put(last)
        followers, work.followers = work.followers, []
        for follower in followers:
            if follower.is_over:
                continue
            if isinstance(last, Finished):
                self._finish(follower, last.reason)
            else:
                self._over(follower, last)

    def _drop_cancelled_prefills(self, context: Context) -> None:
        """A step was left early: end the cancelled, put the others' cells back as they were."""
        with self._lock:
            for slot in self.slots:
                if slot.work is not None and slot.work.is_cancelled:
                    self._vacate(slot, FinishReason.CANCELLED)
        for slot in self.slots:
            if not context.remove(slot.seq_id, len(slot.tokens)):
                context.remove(slot.seq_id, 0)
                self._reread(slot)

    def _reread(self, slot: Slot[Work]) -> None:
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
            for slot in self.slots:
                work, slot.work = slot.work, None
                slot.tokens = slot.tokens[:0]
                if work is not None:
                    self._waiting.done(work.client)
                    self._over(work, error)
        for pin in self._pins:
            pin.tokens = pin.tokens[:0]
        self._unsaved = []
        if self.context is not None:
            self.context.clear()


def _template_of(model: Model) -> ChatTemplate | None:
    source = model.meta("tokenizer.chat_template")
    if not source:
        return None
    return ChatTemplate(
        source,
        bos=model.spelling(model.bos),
        eos=model.spelling(model.eos),
        control_tokens=model.control_spellings(),
    )
