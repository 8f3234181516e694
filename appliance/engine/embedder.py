"""Vectors: the model that embeds, the texts that wait for it, and the batch that serves them.

``embed``, ``count`` and the identities are for any thread; ``load``, ``step``, ``end_all`` and
``free`` are for the engine thread. The lock is the engine's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from appliance.engine.base import Priority
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
    sizes_of,
)
from appliance.engine.pace import Rate, chunk_tokens
from appliance.engine.slots import TokenArray
from appliance.engine.unigram import UnigramTokenizer, fits
from appliance.errors import (
    ApplianceError,
    ContextOverflowError,
    DeviceLostError,
    EngineError,
    EngineStoppedError,
    ModelMissingError,
)
from appliance.system.files import sha256_of
from appliance.system.gguf import GgufHeader, inspect
from appliance.units import Tokens

_log = logging.getLogger(__name__)

_MOST_TEXTS = 64
_LEAST_TOKENS = 32


class TextEmbedder:
    """Queues and context of the model that embeds; see the module's text.

    Args:
        lock: the engine's.
        path: the GGUF, None for none.
        problem: why there is no ``path``.
        n_batch: tokens in one batch, and most tokens of one text.
        step_s: seconds a batch should take.
    """

    def __init__(
        self,
        lock: threading.Condition,
        path: Path | None,
        problem: ApplianceError | None,
        *,
        n_batch: int,
        step_s: float,
    ) -> None:
        self._lock = lock
        self._path = path
        self._step_s = step_s
        self.failure: ApplianceError | None = problem
        if path is None and problem is None:
            self.failure = ModelMissingError(model="embedder")
        self.model: Model | None = None
        self._unigram: UnigramTokenizer | None = None
        self._context: Context | None = None
        self._dressing: Dressing | None = None
        self._header: GgufHeader | None = None
        self._identity: str | None = None
        self._is_stopped = False
        self._abort = AbortFlag()
        self._batch = Batch(n_batch)
        self._rate = Rate()
        self.queries = EmbedQueue()
        self.ingests = EmbedQueue()
        self.lost: DeviceLostError | None = None
        self.n_steps = 0
        self.n_embedded = 0

    # ---------------------------------------------------------------------------------------------
    # for any thread

    @property
    def header(self) -> GgufHeader:
        """The file's header, known before the model is loaded.

        Raises:
            ModelMissingError, ModelRejectedError: there is no usable file.
        """
        if self._header is None:
            if self._path is None:
                raise self.failure or ModelMissingError(model="embedder")
            self._header = inspect(self._path)
        return self._header

    @property
    def identity(self) -> str:
        """What makes vectors comparable: the model's name, its bytes, what is put around text."""
        if self._identity is None:
            header = self.header
            digest = sha256_of(header.path)
            name = header.text("general.name") or header.path.stem
            dressing = dressing_for(name, header.architecture)
            self._identity = f"{name}:{digest[:16]}:{dressing.name}"
        return self._identity

    def embed(
        self, texts: Sequence[str], kind: Kind, priority: Priority
    ) -> npt.NDArray[np.float32]:
        """Return one unit-length vector per text; see ``appliance.engine.base.Embedder.embed``."""
        model, dressing = self._opened()
        if not texts:
            return np.zeros((0, model.n_embd), dtype=np.float32)
        rows = [self._tokens(model, dressing.dress(text, kind)) for text in texts]
        limit = min(self._batch.capacity, model.n_ctx_train)
        for tokens in rows:
            if len(tokens) > limit:
                raise ContextOverflowError(
                    "embed_overflow", n_prompt_tokens=len(tokens), n_ctx=limit
                )
        job = EmbedJob(rows, model.n_embd)
        with self._lock:
            self._demand_running()
            is_query = priority <= Priority.QUERY_EMBED
            (self.queries if is_query else self.ingests).add(job)
            self._lock.notify_all()
        job.is_done.wait()
        if job.error is not None:
            raise job.error
        return job.vectors

    def count(self, text: str) -> Tokens:
        """Return the tokens of ``text`` as a passage, prefix and specials included."""
        model, dressing = self._opened()
        return Tokens(len(self._tokens(model, dressing.dress(text, "passage"))))

    def stop(self) -> None:
        """Leave the running batch; the lock is held and no other batch will follow."""
        self._is_stopped = True
        self._abort.set()

    def _tokens(self, model: Model, text: str) -> TokenArray:
        if self._unigram is not None:
            return self._unigram.tokenize(text)
        return model.tokenize(text, add_special=True, parse_special=False)

    def _opened(self) -> tuple[Model, Dressing]:
        with self._lock:
            self._demand_running()
            if self.failure is not None:
                raise self.failure
            model, dressing = self.model, self._dressing
        if model is None or dressing is None:
            raise EngineStoppedError(state="loading")
        return model, dressing

    def _demand_running(self) -> None:
        if self._is_stopped:
            raise EngineStoppedError(state="stopped")

    # ---------------------------------------------------------------------------------------------
    # for the engine thread

    def load(
        self,
        *,
        n_gpu_layers: int,
        n_threads: int,
        progress: Callable[[float], bool],
        memory: dict[str, int],
    ) -> None:
        """Open the model; a failure is kept in ``failure`` and raised to those who embed."""
        if self._path is None:
            return
        model: Model | None = None
        context: Context | None = None
        sizes: dict[str, int] = {}
        try:
            header = inspect(self._path)
            unigram = UnigramTokenizer(header) if fits(header) else None
            without = (header.architecture, unigram.n_vocab) if unigram is not None else None
            with sizes_of(sizes):
                model = Model(
                    self._path,
                    n_gpu_layers=n_gpu_layers,
                    progress=progress,
                    without_vocab=without,
                )
                shape = ContextShape(
                    n_cells=self._batch.capacity,
                    n_batch=self._batch.capacity,
                    n_seq=_MOST_TEXTS,
                    n_threads=n_threads,
                    is_embedding=True,
                )
                context = Context(model, shape, self._abort)
            self._warm_up(context, is_on_cpu=n_gpu_layers == 0)
        except ApplianceError as error:
            if context is not None:
                context.close()
            if model is not None:
                model.close()
            _log.error("the embedder cannot be used: %s", error)
            with self._lock:
                self.failure = error
            return
        if n_gpu_layers == 0:
            sizes["output"] = 0  # given back
        with self._lock:
            for kind, n_bytes in sizes.items():
                memory[kind] = memory.get(kind, 0) + n_bytes
            self.failure = None
            self._header, self._context, self._unigram = header, context, unigram
            self._dressing = dressing_for(model.name, header.architecture)
            self.model = model
        # Read while the file is warm, not in front of the first question.
        _log.info("embedder %s", self.identity)

    def _warm_up(self, context: Context, *, is_on_cpu: bool) -> None:
        """Evaluate the largest batch once, so that its buffers exist and need not grow later."""
        self._batch.clear()
        limit = min(self._batch.capacity, context.model.n_ctx_train)
        for seq_id in range(min(_MOST_TEXTS, self._batch.capacity // limit)):
            self._batch.add(np.zeros(limit, dtype=np.int32), seq_id, 0, wants="all")
        if context.decode(self._batch) == DECODED and is_on_cpu:
            context.give_back_logits(self._batch.n)

    def step(self, source: EmbedQueue) -> None:
        """Embed as many texts of ``source`` as one batch holds."""
        with self._lock:
            most = self._batch.capacity
            n_tokens = chunk_tokens(self._rate, self._step_s, least=_LEAST_TOKENS, most=most)
            items = source.take(n_tokens, _MOST_TEXTS)
        context = self._context
        if not items or context is None:
            return
        started = time.monotonic()
        try:
            is_done = self._evaluate(context, items)
        except EngineError as error:
            _log.error("an embedding batch failed: %s", error)
            if isinstance(error, DeviceLostError):
                self.lost = error
            for job, _row in items:
                job.fail(error)
            return
        self.n_steps += 1
        if is_done:
            self._rate.add(self._batch.n, time.monotonic() - started)
        else:
            with self._lock:
                source.put_back(items)

    def _evaluate(self, context: Context, items: Sequence[tuple[EmbedJob, int]]) -> bool:
        """Evaluate texts as the sequences 0, 1, ... of one batch; False when it was left early."""
        self._batch.clear()
        for seq_id, (job, row) in enumerate(items):
            self._batch.add(job.texts[row], seq_id, 0, wants="all")
        context.clear()
        status = context.decode(self._batch)
        if status == ABORTED:
            return False
        if status != DECODED:
            raise EngineError(cause="the embedding batch did not fit")
        with self._lock:
            self.n_embedded += len(items)
        for seq_id, (job, row) in enumerate(items):
            vector = unit_length(context.pooled(seq_id))
            if vector is None:
                job.fail(EngineError(cause="the embedder gave a vector without a direction"))
            else:
                job.put(row, vector)
        return True

    def end_all(self, error: ApplianceError) -> None:
        """Fail everything that waits; the lock is held."""
        self.queries.fail_all(error)
        self.ingests.fail_all(error)

    def free(self) -> None:
        """Free context and model; idempotent."""
        if self._context is not None:
            self._context.close()
        with self._lock:
            model, self.model = self.model, None
            self.lost = None
        if model is not None:
            model.close()
        self._context = None
