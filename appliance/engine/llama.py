"""The engine: one thread that owns the device and every llama.cpp context.

Callers only put work into queues and wait for events; the thread works in steps and looks at the
queues again between them, in this order:

    decode of running answers > query embedding > prefill > ingestion embedding

When a step fails on the NPU, its answers end with an error, everything is freed, the device is
reset and the models are loaded again; what waits goes on waiting. If the NPU fails again while it
loads, or soon after, the CPU takes over (unless the NPU is insisted on), and the NPU is tried again
when nobody asks anything.

A step can be left before its end: ``cancel`` of an answer whose prompt is being read and ``close``
raise an abort flag, which llama.cpp checks between two graph nodes. What a step is made of lies in
``answering`` and ``embedder``; here is only who is next, loading, and the end.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from appliance.config import DeviceConfig
from appliance.engine.answering import Answering
from appliance.engine.base import (
    EngineStatus,
    Feature,
    GenerationRequest,
    Message,
    Priority,
    SavedPrompts,
)
from appliance.engine.devices import (
    Device,
    DeviceChoice,
    choose_device,
    npu_facts,
    on_cpu,
    release_npu,
    take_npu_failure,
)
from appliance.engine.embedder import TextEmbedder
from appliance.engine.embedding import Kind
from appliance.engine.work import Answer
from appliance.errors import (
    ApplianceError,
    DeviceLostError,
    EngineError,
    EngineStoppedError,
    Fact,
    ModelMissingError,
)
from appliance.units import Bytes, Tokens

_log = logging.getLogger(__name__)

_IDLE_WAKE_S = 1.0
# While somebody chats, ingestion gets one batch after this many times the batch's own duration.
_INGEST_REST = 10.0
# An NPU that fails again so soon after it was restarted is left to the CPU for a while.
_STRIKE_WINDOW_S = 600.0
_MOST_RETRY_S = 6 * 3600.0

State = Literal["loading", "ready", "failed", "stopped"]


class _Change:
    """A model that somebody waits for, and how that ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: ApplianceError | None = None
        self.is_over = threading.Event()


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
        n_threads: CPU threads; None or 0 takes every CPU this process may use.
        n_batch: most tokens in one step.
        max_queue: answers that may wait; more are refused.
        embed_batch: tokens in one embedding batch, and most tokens of one text.
        device: ``auto``, ``cpu`` or ``cann``.
        plugin_path: the NPU plugin's library, None when none is installed.
        device_settings: how the NPU is used.
        step_s: seconds a step may take while answers are streaming.
        unload_after_s: seconds without a question after which the model's memory is given back; the
            next question waits until it is loaded again. 0 keeps it.
        saved_prompts: where shared beginnings of prompts outlive the process; None for nowhere.
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
        device_settings: DeviceConfig | None = None,
        step_s: float = 0.4,
        unload_after_s: float = 0,
        saved_prompts: SavedPrompts | None = None,
        model_problem: ApplianceError | None = None,
        embedder_problem: ApplianceError | None = None,
    ) -> None:
        self._model_path = model_path
        self._n_threads = n_threads or len(os.sched_getaffinity(0))
        self._device_wanted: DeviceChoice = device
        self._plugin_path = plugin_path
        self._device_settings = device_settings or DeviceConfig()
        self._lock = threading.Condition()
        self._state: State = "loading"
        self._model_problem = model_problem
        self._failure: ApplianceError | None = model_problem
        self._is_closing = False
        self._device = on_cpu("device_pending")
        self._device_failure: tuple[str, dict[str, Fact]] | None = None
        self._npu: dict[str, Fact] = {}
        self._npu_failed_at: float | None = None
        self._n_npu_failures = 0
        self._last_npu_failure = ""
        self._fallen: tuple[str, dict[str, Fact]] | None = None
        self._retry_at: float | None = None
        self._retry_s = self._device_settings.retry_s
        self._memory: dict[str, int] = dict.fromkeys(("weights", "kv", "compute", "output"), 0)
        self._change: _Change | None = None
        self._unload_after_s = unload_after_s
        self._is_unloaded = False
        self._is_wanted = False
        self._last_used = time.monotonic()
        self._embedder_memory: dict[str, int] = {}
        self._n_wakes = 0
        self._ingest_rests_until = 0.0
        self._answers = Answering(
            self._lock,
            n_ctx=n_ctx,
            n_slots=n_slots,
            n_batch=n_batch,
            max_queue=max_queue,
            step_s=step_s,
            saved=saved_prompts,
        )
        self._vectors = TextEmbedder(
            self._lock, embedder_path, embedder_problem, n_batch=embed_batch, step_s=step_s
        )
        self._thread = threading.Thread(target=self._main, name="engine")
        self._thread.start()

    # ---------------------------------------------------------------------------------------------
    # what callers use, from any thread

    @property
    def n_ctx(self) -> int:
        """Context of one answer, in tokens."""
        return self._answers.n_ctx

    @property
    def failure(self) -> ApplianceError | None:
        """Why the model is not there, None when it is (or still loads)."""
        with self._lock:
            return self._failure

    @property
    def embedder_failure(self) -> ApplianceError | None:
        """Why the embedder is not there, None when it is (or still loads)."""
        with self._lock:
            return self._vectors.failure

    @property
    def n_embd(self) -> int:
        """Length of a vector; known from the file's header before the model is loaded."""
        return self._vectors.header.embedding_length

    @property
    def embedder_id(self) -> str:
        """Identity of the vectors; two engines with the same one agree up to rounding."""
        return self._vectors.identity

    @property
    def features(self) -> frozenset[Feature]:
        """What the model's template can do; empty until the model is loaded."""
        if self._is_unloaded:
            self._demand_ready()
        return self._answers.features

    def generate(self, request: GenerationRequest) -> Answer:
        """Queue a request; see ``appliance.engine.base.Engine.generate``."""
        self._demand_ready()
        works = self._answers.accept(request)
        try:
            with self._lock:
                self._demand_ready()
                self._answers.enqueue(works[0])
        except EngineError:
            for work in works:
                work.close()
            raise
        return Answer(works, self._answers.cancel)

    def count_tokens(self, messages: Sequence[Message]) -> Tokens:
        """Tokens of the rendered chat prompt, generation header included."""
        self._demand_ready()
        return Tokens(len(self._answers.chat_tokens(messages)))

    def count_text_tokens(self, text: str) -> Tokens:
        """Tokens of a bare text, without anything the model wants around it."""
        self._demand_ready()
        model = self._answers.opened()
        return Tokens(len(model.tokenize(text, add_special=False, parse_special=False)))

    def embed(
        self, texts: Sequence[str], kind: Kind, priority: Priority
    ) -> npt.NDArray[np.float32]:
        """Return one unit-length vector per text; see ``appliance.engine.base.Embedder.embed``."""
        return self._vectors.embed(texts, kind, priority)

    def count_embed_tokens(self, text: str) -> Tokens:
        """Tokens of ``text`` as a passage, prefix and specials included."""
        return self._vectors.count(text)

    def status(self) -> EngineStatus:
        """A snapshot; waits for no native call."""
        answers, vectors = self._answers, self._vectors
        with self._lock:
            is_ready = self._state == "ready" and self._model_path is not None
            return EngineStatus(
                state=self._state,
                model=self._model_path.stem if self._model_path and is_ready else None,
                embedder=vectors.model.path.stem if vectors.model else None,
                device=self._device.description,
                device_reason=self._device.reason,
                device_facts=dict(self._device.facts),
                device_failure=self._device_failure,
                npu=dict(self._npu),
                n_npu_failures=self._n_npu_failures,
                last_npu_failure=self._last_npu_failure,
                n_ctx=answers.n_ctx,
                n_slots=len(answers.slots),
                n_running=answers.n_running,
                n_waiting=answers.n_waiting,
                tokens_prefilled=answers.n_prefilled,
                tokens_decoded=answers.n_decoded,
                texts_embedded=vectors.n_embedded,
                prefill_tok_s=answers.prefill_rate.per_second,
                decode_tok_s=answers.decode_rate.per_second,
                memory={kind: Bytes(n_bytes) for kind, n_bytes in self._memory.items()},
                error=self._failure.code if self._failure else None,
                error_facts=dict(self._failure.facts) if self._failure else {},
            )

    def steps(self) -> int:
        """Moves with every step and every idle wake-up; still only when the thread is stuck."""
        return self._n_wakes + self._answers.n_steps + self._vectors.n_steps

    def use(self, model_path: Path) -> None:
        """Answer with another model; see ``appliance.engine.base.Engine.use``."""
        change = _Change(model_path)
        with self._lock:
            if self._is_closing:
                raise EngineStoppedError(state="stopped")
            if self._change is not None:
                raise EngineError("model_change_running")
            self._change = change
            self._state = "loading"
            self._lock.notify_all()
        change.is_over.wait()
        if change.error is not None:
            raise change.error

    def close(self) -> None:
        """Cancel what runs, refuse what waits, free everything, join the thread; idempotent."""
        with self._lock:
            self._is_closing = True
            self._answers.stop()
            self._vectors.stop()
            self._lock.notify_all()
        self._thread.join()

    def _demand_ready(self) -> None:
        """Raise unless there is a model; one that was unloaded is waited for."""
        with self._lock:
            self._last_used = time.monotonic()
            while self._is_unloaded and not self._is_closing:
                self._is_wanted = True
                self._lock.notify_all()
                self._lock.wait()
            if self._failure is not None:
                raise self._failure
            if self._is_closing:
                raise EngineStoppedError(state="stopped")
            if self._state != "ready":
                raise EngineStoppedError(state=self._state)

    # ---------------------------------------------------------------------------------------------
    # the engine thread

    def _main(self) -> None:
        try:
            self._load()
            while self._wait_for_work():
                self._turn()
        except Exception as error:  # noqa: BLE001 (a bug must fail requests, not hang them)
            _log.exception("the engine thread died")
            self._fail(EngineError(cause=f"{type(error).__name__}: {error}"))
        finally:
            self._release()

    def _load(self, npu_failure: str = "") -> None:
        """Choose the device and load both models; what the NPU fails goes to the CPU.

        Args:
            npu_failure: why the NPU is left alone this time; empty when it is not.
        """
        started = time.monotonic()
        with self._lock:
            self._failure = self._model_problem
            self._memory = dict.fromkeys(self._memory, 0)
        self._fallen = None
        device = self._choose(npu_failure)
        take_npu_failure()
        self._load_embedder(device)
        self._embedder_memory = dict(self._memory)
        if device.kind == "cann" and self._is_auto and (failed := take_npu_failure()):
            device = self._fall_back("npu_failed", failed.text)
            self._vectors.free()
            release_npu()
            self._load_embedder(device)
            self._embedder_memory = dict(self._memory)
        if self._failure is None:
            self._load_model(device)
        holds_something = self._device.kind == "cann" or self._device.reason == "npu_without_model"
        npu = npu_facts() if holds_something else {}
        with self._lock:
            self._is_unloaded = self._is_wanted = False
            self._last_used = time.monotonic()
            self._lock.notify_all()
            self._npu = npu
            self._device_failure = self._fallen
            if self._change is not None and self._change.path != self._model_path:
                self._state = "loading"  # asked for while this one was loading
            elif not self._is_closing:
                self._state = "failed" if self._failure is not None else "ready"
            state = self._state
        _log.info("engine %s after %.1f s", state, time.monotonic() - started)

    @property
    def _is_auto(self) -> bool:
        return self._device_wanted == "auto"

    def _choose(self, npu_failure: str) -> Device:
        if npu_failure and self._is_auto:
            return self._fall_back("npu_failed", npu_failure)
        try:
            device = choose_device(self._device_wanted, self._plugin_path, self._device_settings)
        except ApplianceError as error:
            self._fail(error)
            device = replace(on_cpu(error.code, **error.facts), description="none")
        with self._lock:
            self._device = device
        return device

    def _fall_back(self, reason: str, cause: str, description: str = "CPU") -> Device:
        """Note that the CPU takes over and when to try the NPU again; returns the CPU."""
        _log.error("%s: %s", reason, cause)
        self._schedule_retry()
        self._fallen = (reason, {"cause": cause})
        device = replace(on_cpu(reason, cause=cause), description=description)
        with self._lock:
            self._device = device
        return device

    def _schedule_retry(self) -> None:
        now = time.monotonic()
        self._npu_failed_at = now
        if self._retry_s > 0:
            self._retry_at = now + self._retry_s
            self._retry_s = min(2 * self._retry_s, _MOST_RETRY_S)

    def _load_embedder(self, device: Device) -> None:
        self._vectors.load(
            n_gpu_layers=device.n_gpu_layers,
            n_threads=self._n_threads,
            progress=lambda _done: not self._is_closing,
            memory=self._memory,
        )

    def _load_model(self, device: Device) -> None:
        try:
            if self._model_path is None:
                raise ModelMissingError(model="generation")
            self._answers.load(
                self._model_path,
                n_gpu_layers=device.n_gpu_layers,
                n_threads=self._n_threads,
                progress=self._between_tensors,
                memory=self._memory,
            )
        except ApplianceError as error:
            if self._is_closing:
                return
            failed = take_npu_failure() if device.kind == "cann" else None
            if failed is None:
                self._fail(error)
            elif not self._is_auto:
                self._schedule_retry()
                self._fail(EngineError("npu_load_failed", cause=failed.text))
            elif failed.is_memory:
                # The NPU is well; what it holds of the embedder may stay there.
                name = f"CPU, {device.description}"
                self._load_model(self._fall_back("npu_without_model", failed.text, name))
            else:
                cpu = self._fall_back("npu_failed", failed.text)
                self._vectors.free()
                release_npu()
                self._load_embedder(cpu)
                self._load_model(cpu)

    def _recover(self, error: DeviceLostError) -> None:
        """The NPU failed in the middle of work: restart it, or leave it alone when it did twice."""
        now = time.monotonic()
        before = self._npu_failed_at
        is_again = before is not None and now - before < _STRIKE_WINDOW_S
        self._npu_failed_at = now
        if not is_again:
            self._retry_s = self._device_settings.retry_s
        cause = str(error.facts.get("cause", error.code))
        self._n_npu_failures += 1
        self._last_npu_failure = cause
        with self._lock:
            self._device_failure = ("npu_restarting", {"cause": cause})
        self._reload(cause if is_again else "")

    def _reload(self, npu_failure: str = "") -> None:
        """Free everything, give the NPU back, and load again; what waits goes on waiting."""
        with self._lock:
            self._state = "loading"
            self._npu = {}
        self._retry_at = None
        self._answers.free()
        self._vectors.free()
        release_npu()
        release_npu()
        self._load(npu_failure)
        with self._lock:
            if self._failure is not None:
                self._answers.end_all(self._failure, is_failure=True)
            if self._vectors.failure is not None:
                self._vectors.end_all(self._vectors.failure)

    def _use(self, change: _Change) -> None:
        """Load another model; the one before comes back when that fails."""
        path, problem = self._model_path, self._model_problem
        self._answers.save_pins()
        self._model_path, self._model_problem = change.path, None
        self._reload()
        change.error = EngineStoppedError(state="stopped") if self._is_closing else self.failure
        with self._lock:
            self._change = None
        if change.error is not None and not self._is_closing:
            self._model_path, self._model_problem = path, problem
            self._reload()
        change.is_over.set()

    def _unload(self) -> None:
        """Give the model's memory back; the embedder stays, so search goes on."""
        self._answers.save_pins()
        with self._lock:
            # Not if somebody asked meanwhile; after this, who asks waits for the model.
            if not self._is_unload_due():
                return
            self._is_unloaded = True
        self._answers.free()
        with self._lock:
            self._memory = dict(self._embedder_memory)
        _log.info("the model was unloaded after %.0f s without a question", self._unload_after_s)

    def _load_again(self) -> None:
        """Load the model that was unloaded, for whoever waits in ``_demand_ready``."""
        started = time.monotonic()
        with self._lock:
            self._state = "loading"
        self._load_model(self._device)
        with self._lock:
            if self._failure is None and self._change is None:
                self._state = "ready"
            self._is_unloaded = self._is_wanted = False
            self._last_used = time.monotonic()
            self._lock.notify_all()
        _log.info("the model is back after %.1f s", time.monotonic() - started)

    def _is_unload_due(self) -> bool:
        is_held = self._unload_after_s <= 0 or self._is_unloaded or self._answers.model is None
        return not is_held and time.monotonic() - self._last_used >= self._unload_after_s

    def _fail(self, error: ApplianceError) -> None:
        """Remember why there is no model."""
        _log.error("the model cannot be used: %s", error)
        with self._lock:
            self._failure = error
            self._state = "failed"

    def _between_tensors(self, _done: float) -> bool:
        """Answer query embeddings while the model loads; False when the box is stopping."""
        self._n_wakes += 1
        self._vectors.step(self._vectors.queries)
        return not self._is_closing

    def _wait_for_work(self) -> bool:
        """Wait until there is something to do; False when the engine must stop."""
        answers, vectors = self._answers, self._vectors
        with self._lock:
            while not self._is_closing:
                self._n_wakes += 1
                n_answers = answers.n_running + answers.n_waiting
                if n_answers or len(vectors.queries) or len(vectors.ingests):
                    return True
                if self._change or self._is_retry_due() or answers.has_unsaved:
                    return True
                if self._is_wanted or self._is_unload_due():
                    return True
                self._lock.wait(_IDLE_WAKE_S)
            return False

    def _is_retry_due(self) -> bool:
        return self._retry_at is not None and time.monotonic() >= self._retry_at

    def _turn(self) -> None:
        """Do the most urgent thing, then whatever may go along with it."""
        answers, vectors = self._answers, self._vectors
        if lost := answers.lost or vectors.lost:
            self._recover(lost)
            return
        is_idle = not (answers.n_running or answers.n_waiting or len(vectors.queries))
        if is_idle and self._change is not None:
            self._use(self._change)
            return
        if not is_idle:
            self._last_used = time.monotonic()
        if self._is_wanted and self._is_unloaded:
            self._load_again()
            return
        if is_idle and self._is_unload_due():
            self._unload()
            return
        if is_idle and self._is_retry_due():
            _log.info("trying the NPU again")
            self._reload()
            return
        if is_idle and not len(vectors.ingests):
            answers.save_pins()
        answers.admit()
        is_chatting = answers.n_running > 0
        if len(vectors.queries):
            answers.step(may_prefill=False)
            vectors.step(vectors.queries)
        elif is_chatting:
            answers.step(may_prefill=True)
        now = time.monotonic()
        if len(vectors.ingests) and (not is_chatting or now >= self._ingest_rests_until):
            vectors.step(vectors.ingests)
            took = time.monotonic() - now
            self._ingest_rests_until = now + took * (1 + _INGEST_REST)

    def _release(self) -> None:
        """Tell everybody, then free native memory."""
        with self._lock:
            error = self._failure or EngineStoppedError(state="stopped")
            is_failure = not self._is_closing
            if self._is_closing:
                self._state = "stopped"
            self._is_closing = True
            self._answers.end_all(error, is_failure=is_failure)
            self._vectors.stop()
            self._vectors.end_all(error)
            change, self._change = self._change, None
            self._lock.notify_all()
        if change is not None:
            change.error = error
            change.is_over.set()
        if not is_failure:
            self._answers.save_pins()
        self._answers.free()
        self._vectors.free()
        release_npu()
