"""The int8 matrix that is scanned for dense search, rebuilt from the store and kept in step.

Truth is the ``vectors`` table; this is a cache of it in memory. A unit vector v is stored as
round(127 v / max|v|): the scale differs per row, and cosine similarity does not see it. Measured in
the project's notes: overlap@10 with float32 is 0.98.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import simsimd

_GROW = 1024
_BACKGROUND_SAMPLE = 20_000
_LEAST_BACKGROUND = 16


@dataclass(frozen=True)
class Background:
    """What a query's cosines are to ``n`` passages that have nothing to do with it."""

    mean: float
    spread: float
    n: int


def quantise(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """Return int8 rows for float rows, shape kept; a zero row stays zero."""
    peak = np.max(np.abs(matrix), axis=1, keepdims=True)
    scaled = np.divide(matrix * 127.0, peak, out=np.zeros_like(matrix), where=peak > 0)
    rows: npt.NDArray[np.int8] = np.rint(scaled).astype(np.int8)
    return rows


class VectorMatrix:
    """Rows of int8 with their passage ids; add, remove and scan from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n = 0
        self._rows: npt.NDArray[np.int8] = np.zeros((0, 0), np.int8)
        self._ids: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        # Row of each id, -1 for none: ids are given in order and never twice, so that 4 bytes an
        # id are less than a dictionary's hundred.
        self._row_of: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    def __len__(self) -> int:
        return self._n

    @property
    def size_bytes(self) -> int:
        """Memory of rows and ids."""
        return self._rows.nbytes + self._ids.nbytes + self._row_of.nbytes

    def replace(self, ids: npt.NDArray[np.int64], rows: npt.NDArray[np.int8]) -> None:
        """Hold exactly these rows."""
        with self._lock:
            self._n = len(ids)
            self._ids = ids
            self._rows = np.ascontiguousarray(rows)
            self._row_of = np.full(int(ids.max()) + 1 if len(ids) else 0, -1, np.int32)
            self._row_of[ids] = np.arange(len(ids), dtype=np.int32)

    def add(self, ids: Iterable[int], rows: npt.NDArray[np.int8]) -> None:
        """Append rows."""
        with self._lock:
            for passage_id, row in zip(ids, rows, strict=True):
                n = self._n
                if n == len(self._ids) or self._rows.shape[1] != len(row):
                    self._grow(n, len(row))
                if passage_id >= len(self._row_of):
                    known = self._row_of
                    self._row_of = np.full(passage_id + passage_id // 4 + _GROW, -1, np.int32)
                    self._row_of[: len(known)] = known
                self._rows[n], self._ids[n] = row, passage_id
                self._row_of[passage_id] = n
                self._n = n + 1

    def _grow(self, n: int, width: int) -> None:
        size = max(_GROW, n + n // 2)
        rows, ids = np.zeros((size, width), np.int8), np.zeros(size, np.int64)
        if n:
            rows[:n], ids[:n] = self._rows[:n], self._ids[:n]
        self._rows, self._ids = rows, ids

    def remove(self, ids: Iterable[int]) -> None:
        """Drop rows; the last row takes the free place, so this costs the same at any size."""
        with self._lock:
            for passage_id in ids:
                n = int(self._row_of[passage_id]) if passage_id < len(self._row_of) else -1
                if n < 0:
                    continue
                self._row_of[passage_id] = -1
                self._n -= 1
                if n != self._n:
                    self._rows[n], self._ids[n] = self._rows[self._n], self._ids[self._n]
                    self._row_of[self._ids[n]] = n

    def scan(
        self,
        vector: npt.NDArray[np.float32],
        k: int,
        allowed: npt.NDArray[np.int64] | None = None,
    ) -> tuple[list[tuple[int, float]], Background | None]:
        """Return the ``k`` nearest passages as (id, cosine), best first, and the background.

        The background is mean and standard deviation of the query's cosines over all rows but the
        nearest few percent, that is over passages that have nothing to do with it; None below
        ``_LEAST_BACKGROUND`` rows, where it would mean nothing.

        Args:
            vector: of the query.
            k: how many.
            allowed: ids to choose from, None for all.
        """
        with self._lock:
            n = self._n
            if n == 0 or self._rows.shape[1] != len(vector):
                return [], None
            rows, ids = self._rows[:n], self._ids[:n]
            if allowed is not None:
                at = self._row_of[allowed[allowed < len(self._row_of)]]
                at = at[at >= 0]
                rows, ids = rows[at], ids[at]
            k = min(k, len(ids))
            if k == 0:
                return [], None
            query = quantise(vector[np.newaxis, :])
            cosines = 1.0 - np.asarray(simsimd.cdist(query, rows, "cosine"))[0]
            background = None
            if len(cosines) >= _LEAST_BACKGROUND:
                some = cosines[:: max(1, len(cosines) // _BACKGROUND_SAMPLE)]
                far = np.sort(some)[: max(_LEAST_BACKGROUND // 2, int(len(some) * 0.95))]
                background = Background(float(far.mean()), float(far.std()), len(cosines))
            top = np.argpartition(-cosines, k - 1)[:k]
            # Ties are broken by id, so that the order never depends on where a row happens to lie.
            top = top[np.lexsort((ids[top], -cosines[top]))]
            return [(int(ids[i]), float(cosines[i])) for i in top], background
