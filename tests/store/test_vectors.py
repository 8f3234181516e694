"""The matrix in memory: exact enough, in step with the file, the same from any order of changes."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.parsers.base import Block
from appliance.store import ParsedMeta, Store
from appliance.store.vectors import VectorMatrix, quantise
from appliance.text.chunk import chunk


def unit_rows(n: int, width: int = 384, seed: int = 0) -> npt.NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_int8_rows_keep_the_cosines_of_the_vectors() -> None:
    rows = unit_rows(500)
    matrix = VectorMatrix()
    matrix.add(range(500), quantise(rows))

    for query in unit_rows(20, seed=1):
        found, _ = matrix.scan(query, 500)
        exact = rows @ query
        assert max(abs(score - exact[pid]) for pid, score in found) < 0.01
        assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)


def test_nearest_ten_of_int8_are_nearly_those_of_float() -> None:
    centres = unit_rows(50, seed=2)
    rows = np.repeat(centres, 40, axis=0) + 0.7 * unit_rows(2000, seed=3)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    matrix = VectorMatrix()
    matrix.add(range(2000), quantise(rows))

    shared = 0
    for query in centres:
        found, _ = matrix.scan(query, 10)
        shared += len({pid for pid, _ in found} & set(np.argsort(-(rows @ query))[:10].tolist()))

    assert shared / 500 >= 0.9


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60))
def test_any_order_of_adding_and_removing_leaves_what_is_there(
    changes: list[tuple[bool, int]],
) -> None:
    rows = quantise(unit_rows(13, width=8))
    matrix, model = VectorMatrix(), set()
    for is_added, pid in changes:
        if is_added and pid not in model:
            matrix.add([pid], rows[pid : pid + 1])
            model.add(pid)
        elif not is_added:
            matrix.remove([pid])
            model.discard(pid)

    assert len(matrix) == len(model)
    for pid in model:
        found, _ = matrix.scan(rows[pid].astype(np.float32), 13)
        assert {i for i, _ in found} == model
        assert found[0][0] == pid


def test_scan_stays_inside_the_allowed_passages() -> None:
    matrix = VectorMatrix()
    matrix.add(range(100), quantise(unit_rows(100)))

    found, background = matrix.scan(unit_rows(1, seed=4)[0], 10, allowed=np.array([3, 5, 999]))

    assert {pid for pid, _ in found} == {3, 5}
    assert background is None, "three rows say nothing about chance"


def test_background_is_that_of_unrelated_rows_whatever_the_index_size() -> None:
    query = unit_rows(1, seed=5)[0]
    near = np.repeat(query[np.newaxis], 10, axis=0)
    spreads = []
    for n in (300, 3_000, 50_000):
        matrix = VectorMatrix()
        matrix.add(range(n), quantise(np.concatenate([near, unit_rows(n - 10, seed=6)])))
        _, background = matrix.scan(query, 10)
        assert background is not None
        assert background.n == n
        assert abs(background.mean) < 0.02
        spreads.append(background.spread)

    assert max(spreads) / min(spreads) < 1.2


def test_vector_of_another_length_finds_nothing() -> None:
    matrix = VectorMatrix()
    matrix.add([1], quantise(unit_rows(1, width=8)))

    assert matrix.scan(unit_rows(1, width=16)[0], 5) == ([], None)


def test_document_forgotten_between_file_and_memory_leaves_no_ghost_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "a.db")
    store.note_file(b"a.txt", 1, 1)
    store.commit_document(
        b"a.txt", b"x" * 32, 1, ParsedMeta("txt", "t"), chunk([Block("图书馆。")])
    )
    forgetting = threading.Thread(target=store.forget_file, args=(b"a.txt",), name="forget")
    add = VectorMatrix.add

    def slow_add(matrix: VectorMatrix, ids: list[int], rows: npt.NDArray[np.int8]) -> None:
        forgetting.start()
        forgetting.join(0.3)
        add(matrix, ids, rows)

    monkeypatch.setattr(VectorMatrix, "add", slow_add)
    ids = [pid for pid, _ in store.pending_embeddings(1)]
    store.add_vectors("e", ids, unit_rows(1, width=8))
    forgetting.join()

    assert store.check() == []
    assert store.stats()["vectors"] == 0
    assert store.dense_search(unit_rows(1, width=8)[0], 5)[0] == []
    store.close()
