"""Embedding work: what a family of embedders wants around a text, and how texts share a batch."""

from __future__ import annotations

import threading
import unicodedata
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from appliance.engine.slots import TokenArray
from appliance.errors import ApplianceError, EngineError

Kind = Literal["query", "passage"]


@dataclass(frozen=True)
class Dressing:
    """What is put around a text; ``name`` is part of the embedder's identity.

    ``is_nested`` says that the first numbers of a vector are a smaller vector of their own
    (Matryoshka). Sources: the model cards of intfloat/multilingual-e5-small and
    Qwen/Qwen3-Embedding-0.6B.
    """

    name: str
    query: str
    passage: str
    is_nfkc: bool
    is_nested: bool = False

    def dress(self, text: str, kind: Kind) -> str:
        """Return the text as the model wants it."""
        if self.is_nfkc:
            text = normalised(text)
        return (self.query if kind == "query" else self.passage) + text


def normalised(text: str) -> str:
    """Return ``text`` as SentencePiece's ``nmt_nfkc`` would, which such models were trained on.

    NFKC, every kind of white space and invisible mark as a plain space, other control characters
    removed. Without this a line break would be an unknown token.
    """
    return unicodedata.normalize("NFKC", text).translate(_INVISIBLE)


# SentencePiece, data/nmt_nfkc rules: what becomes a space, what is dropped.
_SPACES = "\t\n\x0c\r\u1680\u200b\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"
_DROPPED = [*range(1, 9), 11, *range(14, 32), 127, 143, 159]
_INVISIBLE = {**dict.fromkeys(map(ord, _SPACES), " "), **dict.fromkeys(_DROPPED, "")}

E5 = Dressing("e5", "query: ", "passage: ", is_nfkc=True)
QWEN3 = Dressing(
    "qwen3",
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
    "",
    is_nfkc=False,
    is_nested=True,
)
PLAIN = Dressing("plain", "", "", is_nfkc=False)


def shortened(
    vectors: npt.NDArray[np.float32], n_dimensions: int | None, embedder_id: str
) -> npt.NDArray[np.float32]:
    """Return unit vectors of ``n_dimensions``, cut from longer ones if the model nests them.

    Args:
        vectors: (n, n_embd), of length one.
        n_dimensions: None for all of them.
        embedder_id: ``Embedder.embedder_id``, which ends with the dressing's name.

    Raises:
        EngineError: there are not that many, or this model's vectors mean nothing when cut (code
            ``bad_dimensions``).
    """
    n_embd = vectors.shape[1]
    if n_dimensions is None or n_dimensions == n_embd:
        return vectors
    nests = any(d.is_nested and embedder_id.endswith(":" + d.name) for d in (E5, QWEN3, PLAIN))
    if not nests or not 1 <= n_dimensions <= n_embd:
        allowed = f"1-{n_embd}" if nests else str(n_embd)
        raise EngineError("bad_dimensions", dimensions=n_dimensions, allowed=allowed)
    cut = vectors[:, :n_dimensions]
    norms = np.linalg.norm(cut.astype(np.float64), axis=1, keepdims=True)
    unit: npt.NDArray[np.float64] = cut / np.maximum(norms, np.finfo(np.float64).tiny)
    return unit.astype(np.float32)


def dressing_for(model_name: str, architecture: str) -> Dressing:
    """Return the dressing of a model by its metadata."""
    name = model_name.casefold()
    if "e5" in name.replace("_", "-").split("-"):
        return E5
    if architecture == "qwen3":
        return QWEN3
    return PLAIN


class EmbedJob:
    """One call of ``embed``: filled row by row by the engine thread, awaited by the caller."""

    def __init__(self, texts: Sequence[TokenArray], n_embd: int) -> None:
        self.texts = texts
        self.vectors: npt.NDArray[np.float32] = np.zeros((len(texts), n_embd), dtype=np.float32)
        self.error: ApplianceError | None = None
        self.is_done = threading.Event()
        self._n_left = len(texts)

    def put(self, row: int, vector: npt.NDArray[np.float32]) -> None:
        """Store one result; the last one wakes the caller."""
        self.vectors[row] = vector
        self._n_left -= 1
        if self._n_left == 0:
            self.is_done.set()

    def fail(self, error: ApplianceError) -> None:
        """Give up on the whole call."""
        self.error = error
        self.is_done.set()


class EmbedQueue:
    """Texts of all calls of one priority, calls in order, texts of a call shortest first.

    Sorting by length fills batches well and keeps similar work together.
    """

    def __init__(self) -> None:
        self._items: deque[tuple[EmbedJob, int]] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, job: EmbedJob) -> None:
        """Append a call's texts."""
        rows = sorted(range(len(job.texts)), key=lambda row: len(job.texts[row]))
        self._items.extend((job, row) for row in rows)

    def take(self, n_tokens: int, n_texts: int) -> list[tuple[EmbedJob, int]]:
        """Remove and return the next texts that fit; the first one always does.

        Args:
            n_tokens: tokens wanted in the batch at most, more only for a single longer text.
            n_texts: sequences in the batch at most.
        """
        taken: list[tuple[EmbedJob, int]] = []
        total = 0
        while self._items and len(taken) < n_texts:
            job, row = self._items[0]
            total += len(job.texts[row])
            if taken and total > n_tokens:
                break
            self._items.popleft()
            if job.error is None:
                taken.append((job, row))
            else:
                total -= len(job.texts[row])
        return taken

    def put_back(self, items: Sequence[tuple[EmbedJob, int]]) -> None:
        """Return unfinished texts to the front."""
        self._items.extendleft(reversed(items))

    def fail_all(self, error: ApplianceError) -> None:
        """Empty the queue; every caller gets ``error``."""
        for job, _row in self._items:
            job.fail(error)
        self._items.clear()


def unit_length(vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32] | None:
    """Return the vector at length one; None when it has no direction (zero, NaN, infinite)."""
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(norm) or norm == 0.0:
        return None
    return (vector / np.float32(norm)).astype(np.float32)
