"""Owner types over ``llama_cpp.llama_cpp``: model, context, batch, sampler, abort flag, log.

Nothing here decides anything. Every native object has one owner with ``close``; a call that fails
natively becomes an error of our tree with llama.cpp's own last words as its cause. Contexts,
batches and samplers belong to one thread; of a model, tokenising is read-only in llama.cpp and may
be done from any thread, under ``Model.lock`` so that it never meets ``close``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import math
import mmap
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as C  # noqa: N812 (a C library's namespace)
import numpy as np
import numpy.typing as npt

from appliance.engine.base import Sampling
from appliance.engine.slots import TokenArray
from appliance.errors import (
    DeviceLostError,
    EngineError,
    EngineStoppedError,
    ModelRejectedError,
)
from appliance.units import MIB

_log = logging.getLogger("appliance.engine.llama")
_libc = ctypes.CDLL(None)

LIBRARY_VERSION = str(llama_cpp.__version__)
DECODED, NO_KV_ROOM, ABORTED = 0, 1, 2
_BANNED = -100.0  # OpenAI's least bias, "should result in a ban of the token"

# --------------------------------------------------------------------------------------------------
# log


class _ThreadLog(threading.local):
    """What llama.cpp said in this thread: for error causes and for the sizes it only prints."""

    def __init__(self) -> None:
        self.first_error = ""
        self.sizes: list[tuple[str, int]] | None = None
        self.abort: AbortFlag | None = None
        self.level = logging.DEBUG
        self.line = ""

    @property
    def is_quiet(self) -> bool:
        """Whether complaints are the echo of our own abort and no news."""
        return self.abort is not None and self.abort.is_set


_said = _ThreadLog()
# ggml_log_level: 1 debug, 2 info, 3 warn, 4 error, 5 continuation. Its info is our debug; its
# warnings are about the file's maker or our own settings, nothing an owner could act on.
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.ERROR}
_DEBUG, _CONTINUATION = 1, 5
# Printed by llama-model.cpp, llama-kv-cache.cpp and llama-context.cpp of the pinned version; no C
# function returns these sizes.
_SIZE = re.compile(r"(model|KV|RS|compute|output) buffer size = +([0-9.]+) MiB")
_SIZE_KINDS = {
    "model": "weights",
    "KV": "kv",
    "RS": "kv",
    "compute": "compute",
    "output": "output",
}


def _on_log(level: int, text: bytes, _user: int | None) -> None:
    if level == _DEBUG:
        return  # every node of every graph while loading; nobody has asked for that yet
    if level != _CONTINUATION:
        _said.level = _LEVELS.get(level, logging.DEBUG)
    _said.line += text.decode("utf-8", "replace")
    while "\n" in _said.line:
        line, _said.line = _said.line.split("\n", 1)
        _on_line(line.strip())


def _on_line(line: str) -> None:
    if not line.strip("."):
        return
    if _said.level >= logging.ERROR and not _said.is_quiet and not _said.first_error:
        _said.first_error = line  # later ones only say that what called it failed too
    if _said.sizes is not None and (found := _SIZE.search(line)):
        _said.sizes.append((_SIZE_KINDS[found[1]], int(float(found[2]) * MIB)))
    _log.log(logging.DEBUG if _said.is_quiet else _said.level, "%s", line)


_log_callback = C.llama_log_callback(_on_log)
_once = threading.Lock()
_is_started = False


def start_backend() -> None:
    """Initialise llama.cpp once in this process and send its log to Python's logging."""
    global _is_started  # noqa: PLW0603 (the library's state is per process, so is this flag)
    with _once:
        if _is_started:
            return
        C.llama_log_set(_log_callback, ctypes.c_void_p(0))
        C.llama_backend_init()
        # When the interpreter is gone a late log line must not call into it; ``abs`` of the
        # level is the harmless C function of a fitting shape that is always there.
        silent = ctypes.cast(_libc.abs, C.llama_log_callback)
        atexit.register(C.llama_log_set, silent, ctypes.c_void_p(0))
        _is_started = True


@contextlib.contextmanager
def sizes_of(memory: dict[str, int]) -> Iterator[None]:
    """Add the buffer sizes that llama.cpp reports inside the block to ``memory``, in bytes.

    Kinds: ``weights``, ``kv``, ``compute`` (reserved; less is touched) and ``output`` (logits).
    """
    _said.sizes = []
    try:
        yield
    finally:
        for kind, n_bytes in _said.sizes:
            memory[kind] = memory.get(kind, 0) + n_bytes
        _said.sizes = None


def _cause(fallback: str) -> str:
    text, _said.first_error = _said.first_error, ""
    return re.sub(r"^\w+: ", "", text) or fallback


# --------------------------------------------------------------------------------------------------
# abort


class AbortFlag:
    """Makes a running ``llama_decode`` return between two graph nodes; set from any thread.

    llama.cpp asks ``bool (*)(void *)`` before each node. A Python function there would take the
    interpreter's lock several hundred times a step, so the C library's ``strlen`` is the callback
    and a two-byte string the flag: its length is 0 (go on) or 1 (stop).
    """

    def __init__(self) -> None:
        self._flag = ctypes.create_string_buffer(2)

    def set(self) -> None:
        """Ask the running or next decode to stop."""
        self._flag[0] = b"\x01"

    def clear(self) -> None:
        """Let decodes run again."""
        self._flag[0] = b"\x00"

    @property
    def is_set(self) -> bool:
        """Whether a stop is being asked for."""
        return self._flag[0] != b"\x00"

    def attach(self, context: Any) -> None:  # noqa: ANN401 (an opaque native handle)
        """Register with a context; the flag must outlive it."""
        callback = ctypes.cast(_libc.strlen, C.ggml_abort_callback)
        C.llama_set_abort_callback(context, callback, ctypes.cast(self._flag, ctypes.c_void_p))


# --------------------------------------------------------------------------------------------------
# model


class Model:
    """Weights and vocabulary of one GGUF.

    Args:
        path: the file; its header was checked before.
        n_gpu_layers: layers to offload; 0 keeps every device but the CPU out.
        progress: called with 0.0 to 1.0 while loading; False abandons the load.
        without_vocab: leave the tokenizer out, for a model whose texts are tokenised elsewhere:
            its architecture and how many tokens there are.

    Raises:
        ModelRejectedError: llama.cpp refuses the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        n_gpu_layers: int,
        progress: Callable[[float], bool],
        without_vocab: tuple[str, int] | None = None,
    ) -> None:
        start_backend()
        self.path = path
        self.lock = threading.Lock()
        params = C.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.progress_callback = C.llama_progress_callback(lambda done, _user: progress(done))
        no_devices = (ctypes.c_void_p * 1)()
        if n_gpu_layers == 0:
            params.devices = ctypes.cast(no_devices, ctypes.c_void_p)
        overrides = _vocab_overrides(*without_vocab) if without_vocab is not None else None
        if overrides is not None:
            params.kv_overrides = ctypes.cast(overrides, ctypes.POINTER(C.llama_model_kv_override))
        _said.first_error = ""
        self._model = C.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise ModelRejectedError(path=str(path), cause=_cause("llama.cpp could not load it"))
        self.is_offloaded = n_gpu_layers > 0
        self._vocab = C.llama_model_get_vocab(self._model)
        self.n_vocab = int(C.llama_vocab_n_tokens(self._vocab))
        self.n_ctx_train = int(C.llama_model_n_ctx_train(self._model))
        self.n_embd = int(C.llama_model_n_embd_out(self._model))
        self.has_rollback = not (
            C.llama_model_is_recurrent(self._model) or C.llama_model_is_hybrid(self._model)
        )
        self.bos = int(C.llama_vocab_bos(self._vocab))
        self.eos = int(C.llama_vocab_eos(self._vocab))
        self.adds_bos = bool(C.llama_vocab_get_add_bos(self._vocab))
        self._pieces: dict[int, bytes] = {}

    @property
    def handle(self) -> Any:  # noqa: ANN401 (an opaque native handle)
        """The native model."""
        return self._model

    @property
    def vocab(self) -> Any:  # noqa: ANN401 (an opaque native handle)
        """The native vocabulary."""
        return self._vocab

    @property
    def name(self) -> str:
        """The name in the metadata, else the file's."""
        return self.meta("general.name") or self.path.stem

    def meta(self, key: str) -> str:
        """Return a metadata value as text; empty when it is not there."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            needed = C.llama_model_meta_val_str(self._model, key.encode(), buffer, size)
            if needed < size:
                return buffer.value.decode("utf-8", "replace") if needed >= 0 else ""
            size = needed + 1

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> TokenArray:
        """Return the tokens of ``text``: (n,), int32.

        Args:
            text: lone surrogates become ``?``.
            add_special: add what the model wants around a text (BOS, EOS).
            parse_special: read spellings of control tokens as those tokens.
        """
        encoded = text.encode("utf-8", "replace")
        # A power of two: ctypes keeps the type of an array of every size it ever made.
        size = 1 << (len(encoded) + 8).bit_length()
        with self.lock:
            self._demand_open()
            while True:
                buffer = (C.llama_token * size)()
                n = C.llama_tokenize(
                    self._vocab, encoded, len(encoded), buffer, size, add_special, parse_special
                )
                if n >= 0:
                    return np.frombuffer(buffer, dtype=np.int32, count=n).copy()
                size = 1 << (-n).bit_length()

    def prompt_tokens(self, text: str) -> TokenArray:
        """Return the tokens of a rendered prompt, control tokens read, one BOS if wanted."""
        tokens = self.tokenize(text, add_special=False, parse_special=True)
        if self.adds_bos and self.bos >= 0 and (len(tokens) == 0 or tokens[0] != self.bos):
            tokens = np.concatenate([np.array([self.bos], dtype=np.int32), tokens])
        return tokens

    def piece(self, token: int) -> bytes:
        """Return the bytes a token stands for; control tokens stand for none."""
        cached = self._pieces.get(token)
        if cached is None:
            cached = self._pieces[token] = self._render(token, is_special=False)
        return cached

    def spelling(self, token: int) -> str:
        """Return how a token is written, control tokens too; empty for an absent one."""
        if token < 0:
            return ""
        return self._render(token, is_special=True).decode("utf-8", "replace")

    def ends_answer(self, token: int) -> bool:
        """Whether the model says with this token that it is done."""
        return bool(C.llama_vocab_is_eog(self._vocab, token))

    def grammar(self, source: str) -> Grammar:
        """Return a compiled GBNF grammar with a ``root`` rule.

        Raises:
            EngineError: it is not one (code ``bad_grammar``).
        """
        with self.lock:
            self._demand_open()
            _said.first_error = ""
            text = source.encode("utf-8", "replace")
            native = C.llama_sampler_init_grammar(self._vocab, text, b"root")
        if not native:
            # What is wrong inside a rule llama.cpp only prints.
            raise EngineError("bad_grammar", cause=_cause("llama.cpp could not read its rules"))
        return Grammar(native)

    def control_spellings(self) -> list[str]:
        """Return the spelling of every token that text must not be able to forge."""
        forged = C.LLAMA_TOKEN_ATTR_CONTROL | C.LLAMA_TOKEN_ATTR_UNKNOWN
        return [
            self.spelling(token)
            for token in range(self.n_vocab)
            if C.llama_vocab_get_attr(self._vocab, token) & forged
        ]

    def close(self) -> None:
        """Free the weights; idempotent. No context of this model may be left."""
        with self.lock:
            if self._model:
                C.llama_model_free(self._model)
            self._model = None

    def _render(self, token: int, *, is_special: bool) -> bytes:
        size = 64
        with self.lock:
            self._demand_open()
            while True:
                buffer = ctypes.create_string_buffer(size)
                n = C.llama_token_to_piece(self._vocab, token, buffer, size, 0, is_special)
                if n >= 0:
                    return buffer.raw[:n]
                size = -n

    def _demand_open(self) -> None:
        if not self._model:
            raise EngineStoppedError(state="stopped")


def _vocab_overrides(architecture: str, n_tokens: int) -> Any:  # noqa: ANN401 (a native array)
    """Return metadata overrides that make llama.cpp load no tokenizer."""
    overrides = (C.llama_model_kv_override * 3)()
    overrides[0].key = b"tokenizer.ggml.model"
    overrides[0].tag = C.LLAMA_KV_OVERRIDE_TYPE_STR
    overrides[0].value.val_str = b"none"
    overrides[1].key = f"{architecture}.vocab_size".encode()
    overrides[1].tag = C.LLAMA_KV_OVERRIDE_TYPE_INT
    overrides[1].value.val_i64 = n_tokens
    return overrides


# --------------------------------------------------------------------------------------------------
# batch and context


class Batch:
    """A ``llama_batch`` over numpy arrays, filled by slices instead of token by token.

    Args:
        capacity: most tokens in one batch.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.n = 0
        self._token = np.zeros(capacity, dtype=np.int32)
        self._pos = np.zeros(capacity, dtype=np.int32)
        self._n_seq = np.ones(capacity, dtype=np.int32)
        self._seq = np.zeros(capacity, dtype=np.int32)
        self._seq_at = self._seq.ctypes.data + 4 * np.arange(capacity, dtype=np.uintp)
        self._wanted = np.zeros(capacity, dtype=np.int8)
        self._native = C.llama_batch()
        for name, array in (
            ("token", self._token),
            ("pos", self._pos),
            ("n_seq_id", self._n_seq),
            ("seq_id", self._seq_at),
            ("logits", self._wanted),
        ):
            kind = dict(C.llama_batch._fields_)[name]
            setattr(self._native, name, ctypes.cast(array.ctypes.data, kind))

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.capacity - self.n

    @property
    def native(self) -> Any:  # noqa: ANN401 (passed by value to the library)
        """The native struct for what was added."""
        self._native.n_tokens = self.n
        return self._native

    def clear(self) -> None:
        """Start over."""
        self.n = 0

    def add(self, tokens: TokenArray, seq_id: int, first_pos: int, *, wants: str) -> int:
        """Append ``tokens`` of one sequence and return the batch index of the last one.

        Args:
            tokens: at least one and at most ``room``.
            seq_id: their sequence.
            first_pos: position of the first in that sequence.
            wants: which outputs are needed: ``none``, ``last`` or ``all``.
        """
        end = self.n + len(tokens)
        part = slice(self.n, end)
        self._token[part] = tokens
        self._pos[part] = np.arange(first_pos, first_pos + len(tokens), dtype=np.int32)
        self._seq[part] = seq_id
        self._wanted[part] = wants == "all"
        if wants == "last":
            self._wanted[end - 1] = 1
        self.n = end
        return end - 1


@dataclass(frozen=True)
class ContextShape:
    """Sizes of a context. ``n_cells`` is the KV cache's capacity, shared by all sequences."""

    n_cells: int
    n_batch: int
    n_seq: int
    n_threads: int
    is_embedding: bool = False


class Context:
    """A ``llama_context``: KV cache, compute buffers, threads.

    Raises:
        EngineError: it could not be made; memory is the usual cause.
    """

    def __init__(self, model: Model, shape: ContextShape, abort: AbortFlag) -> None:
        params = C.llama_context_default_params()
        params.n_ctx = shape.n_cells
        params.n_batch = params.n_ubatch = shape.n_batch
        params.n_seq_max = shape.n_seq
        params.n_threads = params.n_threads_batch = shape.n_threads
        params.kv_unified = True
        params.no_perf = True
        params.embeddings = shape.is_embedding
        if not shape.is_embedding:
            # One row of logits per sequence and step; the default reserves one for every token of
            # a batch, 300 MB at a vocabulary of 151,936.
            params.n_outputs_max = shape.n_seq
            params.n_outputs_max_per_seq = 1
        _said.first_error = ""
        self._context = C.llama_init_from_model(model.handle, params)
        if not self._context:
            raise EngineError(cause=_cause("the context could not be made"))
        self._memory = C.llama_get_memory(self._context)
        self._abort = abort
        self.model = model
        abort.attach(self._context)

    @property
    def handle(self) -> Any:  # noqa: ANN401 (an opaque native handle)
        """The native context."""
        return self._context

    @property
    def pooling(self) -> int:
        """The ``llama_pooling_type`` in force."""
        return int(C.llama_pooling_type(self._context))

    def decode(self, batch: Batch) -> int:
        """Evaluate ``batch``.

        Returns:
            ``DECODED``, ``NO_KV_ROOM`` or ``ABORTED``; after the last two nothing of the batch is
            in the cache.

        Raises:
            DeviceLostError: the computation failed on the NPU, which must be reset.
            EngineError: it failed on the CPU.
        """
        _said.first_error, _said.abort = "", self._abort
        if self._memory:
            status = C.llama_decode(self._context, batch.native)
        else:
            status = C.llama_encode(self._context, batch.native)
        _said.abort = None
        if status in (DECODED, NO_KV_ROOM, ABORTED):
            return int(status)
        error = DeviceLostError if self.model.is_offloaded else EngineError
        raise error(cause=_cause(f"decoding failed with status {status}"))

    def pooled(self, seq_id: int) -> npt.NDArray[np.float32]:
        """Return a copy of the pooled embedding of a sequence of the last batch: (n_embd,)."""
        row = C.llama_get_embeddings_seq(self._context, seq_id)
        if not row:
            raise EngineError(cause="this model gives no pooled embeddings")
        return np.ctypeslib.as_array(row, shape=(self.model.n_embd,)).copy()

    def give_back_logits(self, n_tokens: int) -> None:
        """Return to the system the memory of logits that an embedder never writes.

        llama.cpp makes room for a row of logits per token, whether the model has them or not, and
        clears it once: 512 MB for 512 tokens of a vocabulary of 250,000. Call after a batch of
        ``n_tokens``, the largest there will be, so that the room is not made again. Only for
        memory of the CPU. To be deleted when llama.cpp's ``output_reserve`` asks what is needed.
        """
        rows = C.llama_get_logits(self._context)
        if not rows:
            return
        page = mmap.PAGESIZE
        start = ctypes.addressof(rows.contents)
        end = (start + 4 * self.model.n_vocab * n_tokens) // page * page
        start = -(-start // page) * page
        if end > start:
            _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)

    def logits(self, index: int) -> npt.NDArray[np.float32]:
        """Return a view of the logits of batch row ``index``: (n_vocab,), valid until ``decode``.

        Raises:
            EngineError: that row has none.
        """
        row = C.llama_get_logits_ith(self._context, index)
        if not row:
            raise EngineError(cause="a step gave no logits")
        return np.ctypeslib.as_array(row, shape=(self.model.n_vocab,))

    def remove(self, seq_id: int, first_pos: int) -> bool:
        """Drop the cells of a sequence from ``first_pos`` on; False when the model cannot."""
        if not self._memory:
            return True
        return bool(C.llama_memory_seq_rm(self._memory, seq_id, first_pos, -1))

    def share(self, source: int, target: int, n_tokens: int) -> None:
        """Let ``target`` also own the first ``n_tokens`` cells of ``source``; nothing is copied."""
        C.llama_memory_seq_cp(self._memory, source, target, 0, n_tokens)

    def save_sequence(self, seq_id: int) -> bytes:
        """Return the cells of a sequence in the library's own form; empty when it has none."""
        size = C.llama_state_seq_get_size(self._context, seq_id)
        buffer = (ctypes.c_uint8 * size)()
        n = C.llama_state_seq_get_data(self._context, buffer, size, seq_id)
        return bytes(memoryview(buffer)[:n])

    def load_sequence(self, seq_id: int, cells: bytes) -> bool:
        """Put saved cells back as a sequence; False when they do not fit this context."""
        buffer = (ctypes.c_uint8 * len(cells)).from_buffer_copy(cells)
        return bool(C.llama_state_seq_set_data(self._context, buffer, len(cells), seq_id))

    def length(self, seq_id: int) -> int:
        """Return how many tokens of a sequence are in the cache."""
        return int(C.llama_memory_seq_pos_max(self._memory, seq_id)) + 1 if self._memory else 0

    def clear(self) -> None:
        """Empty the cache."""
        if self._memory:
            C.llama_memory_clear(self._memory, False)  # noqa: FBT003 (native)

    def close(self) -> None:
        """Free the context; idempotent."""
        if self._context:
            C.llama_free(self._context)
        self._context = None


# --------------------------------------------------------------------------------------------------
# sampler


class Grammar:
    """A compiled grammar and how far the text has gone in it; made by ``Model.grammar``."""

    def __init__(self, native: Any) -> None:  # noqa: ANN401 (an opaque native handle)
        self._native = native

    def restrict(self, candidates: Candidates) -> bool:
        """Give every token that may not come next the logit -inf; False when none may."""
        C.llama_sampler_apply(self._native, candidates.native)
        return candidates.has_any

    def accept(self, token: int) -> None:
        """Go on by ``token``, which ``restrict`` left in: llama.cpp ends the process otherwise."""
        C.llama_sampler_accept(self._native, token)

    def close(self) -> None:
        """Free it; idempotent."""
        if self._native:
            C.llama_sampler_free(self._native)
        self._native = None


class Candidates:
    """Tokens to choose from, as the array that samplers work on.

    Args:
        n_tokens: room; a vocabulary, or 1 to ask about one token.
    """

    _DTYPE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

    def __init__(self, n_tokens: int) -> None:
        self._rows = np.zeros(n_tokens, dtype=self._DTYPE)
        self._ids = np.arange(n_tokens, dtype=np.int32)
        self._array = C.llama_token_data_array()
        pointer = ctypes.POINTER(C.llama_token_data)
        self._data = ctypes.cast(self._rows.ctypes.data, pointer)
        self.native = ctypes.byref(self._array)

    def fill(self, logits: npt.NDArray[np.float32]) -> None:
        """Offer the whole vocabulary with these logits."""
        self._offer(self._ids, logits)

    def ask(self, token: int) -> None:
        """Offer ``token`` alone."""
        self._offer(np.int32(token), np.float32(0.0))

    @property
    def has_any(self) -> bool:
        """Whether a candidate is left that is not ruled out."""
        return bool(np.isfinite(self._rows["logit"][: self._array.size].max(initial=-np.inf)))

    @property
    def chosen(self) -> int:
        """The token that the last sampler of a chain chose."""
        return int(self._array.data[self._array.selected].id)

    def _offer(self, ids: npt.NDArray[np.int32] | np.int32, logits: object) -> None:
        self._rows["id"] = ids
        self._rows["logit"] = logits
        self._array.data = self._data
        self._array.size = len(self._rows)
        self._array.selected = -1
        self._array.sorted = False


class Sampler:
    """A native sampler chain for one answer, in llama.cpp's own order.

    Args:
        model: whose tokens these are.
        sampling: the settings; they were checked, because llama.cpp asserts on bad ones.
        prompt: what the answer follows; only DRY looks at it.
        n_ctx: the most tokens a penalty may look back.
        grammar: what the answer must follow; freed by its owner.
    """

    def __init__(
        self,
        model: Model,
        sampling: Sampling,
        prompt: TokenArray,
        *,
        n_ctx: int,
        grammar: Grammar | None = None,
    ) -> None:
        self._grammar = grammar
        self._all = Candidates(model.n_vocab) if grammar is not None else None
        self._one = Candidates(1)
        self._chain = C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())
        if sampling.logit_bias:
            biases = (C.llama_logit_bias * len(sampling.logit_bias))(
                *(
                    (token, bias if bias > _BANNED else -math.inf)
                    for token, bias in sampling.logit_bias
                )
            )
            self._add(C.llama_sampler_init_logit_bias(model.n_vocab, len(biases), biases))
        penalised = (
            sampling.repeat_penalty != 1.0
            or sampling.presence_penalty != 0.0
            or sampling.frequency_penalty != 0.0
        )
        if penalised and sampling.penalty_last_n != 0:
            self._add(
                C.llama_sampler_init_penalties(
                    model.n_vocab,
                    _look_back(sampling.penalty_last_n, n_ctx),
                    sampling.repeat_penalty,
                    sampling.frequency_penalty,
                    sampling.presence_penalty,
                )
            )
        if sampling.dry_multiplier > 0.0 and sampling.dry_penalty_last_n != 0:
            self._add_dry(model, sampling, prompt, n_ctx)
        if sampling.temperature <= 0:
            self._add(C.llama_sampler_init_greedy())
            return
        if sampling.top_k > 0:
            self._add(C.llama_sampler_init_top_k(sampling.top_k))
        if sampling.typical_p < 1.0:
            self._add(C.llama_sampler_init_typical(sampling.typical_p, 1))
        if sampling.top_p < 1.0:
            self._add(C.llama_sampler_init_top_p(sampling.top_p, 1))
        if sampling.min_p > 0.0:
            self._add(C.llama_sampler_init_min_p(sampling.min_p, 1))
        self._add(C.llama_sampler_init_temp(sampling.temperature))
        seed = C.LLAMA_DEFAULT_SEED if sampling.seed is None else sampling.seed & 0xFFFFFFFF
        self._add(C.llama_sampler_init_dist(seed))

    def _add_dry(self, model: Model, sampling: Sampling, prompt: TokenArray, n_ctx: int) -> None:
        breakers = [text.encode("utf-8", "replace") for text in sampling.dry_breakers]
        n_back = _look_back(sampling.dry_penalty_last_n, n_ctx)
        dry = C.llama_sampler_init_dry(
            model.vocab,
            sampling.dry_multiplier,
            sampling.dry_base,
            sampling.dry_allowed_length,
            n_back,
            (ctypes.c_char_p * len(breakers))(*breakers),
            len(breakers),
        )
        self._add(dry)
        for token in prompt[-n_back:]:
            C.llama_sampler_accept(dry, int(token))

    def sample(self, context: Context, index: int, *, is_free: bool = False) -> int:
        """Return the token chosen from the logits of batch row ``index``.

        Args:
            context: where the logits are.
            index: the row.
            is_free: the grammar does not rule here (the model thinks).

        Raises:
            EngineError: no token of this model follows the grammar (code ``grammar_dead_end``).
        """
        if self._grammar is None or self._all is None or is_free:
            return int(C.llama_sampler_sample(self._chain, context.handle, index))
        logits = context.logits(index)
        # The likely token mostly follows the grammar anyway; asking it about one token costs
        # nothing, about a vocabulary of 150,000 tens of milliseconds.
        token = self._choose(logits)
        if not self._allows(token):
            self._all.fill(logits)
            if not self._grammar.restrict(self._all):
                raise EngineError("grammar_dead_end")
            C.llama_sampler_apply(self._chain, self._all.native)
            token = self._all.chosen
            if not self._allows(token):
                raise EngineError("grammar_dead_end")
        self._grammar.accept(token)
        self.accept(token)
        return token

    def accept(self, token: int) -> None:
        """Let the chain know of a token that it did not choose."""
        C.llama_sampler_accept(self._chain, token)

    def _choose(self, logits: npt.NDArray[np.float32]) -> int:
        assert self._all is not None  # noqa: S101 (a grammar has one)
        self._all.fill(logits)
        C.llama_sampler_apply(self._chain, self._all.native)
        return self._all.chosen

    def _allows(self, token: int) -> bool:
        assert self._grammar is not None  # noqa: S101 (callers checked)
        self._one.ask(token)
        return self._grammar.restrict(self._one)

    def close(self) -> None:
        """Free the chain; idempotent."""
        if self._chain:
            C.llama_sampler_free(self._chain)
        self._chain = None

    def _add(self, sampler: Any) -> None:  # noqa: ANN401 (an opaque native handle)
        C.llama_sampler_chain_add(self._chain, sampler)


def _look_back(n_tokens: int, n_ctx: int) -> int:
    """Return how many tokens a penalty looks at; -1 means all."""
    return n_ctx if n_tokens < 0 else min(n_tokens, n_ctx)
