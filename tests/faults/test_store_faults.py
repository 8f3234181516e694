"""Every write of the store fails once, in turn: what it holds is the old or the new, never both."""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from appliance.errors import StoreCorruptError, StoreError, StoreFullError
from appliance.parsers.base import Block
from appliance.store import ParsedMeta, Store
from appliance.text.chunk import chunk
from tests.faults.disk import Faults, faults

__all__ = ["faults"]

OLD = "图书馆周末开放到八点。" * 30
NEW = "图书馆周末开放到九点。" * 30
OTHER = "食堂十一点开门。"

both = pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])


@pytest.fixture
def store(tmp_path: Path, faults: Faults) -> Iterator[Store]:
    opened = Store.open(tmp_path / "a.db")
    yield opened
    opened.close()


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def put(store: Store, path: bytes, text: str) -> None:
    store.note_file(path, len(text), hash(text) & 0xFFFF)
    if store.link_existing(path, digest(text)) is None:
        passages = chunk([Block(text)], max_tokens=64, overlap_tokens=8)
        store.commit_document(path, digest(text), len(text), ParsedMeta("txt", "t"), passages)


def embed(store: Store) -> None:
    while pending := store.pending_embeddings(4):
        matrix = np.random.default_rng(1).standard_normal((len(pending), 8)).astype(np.float32)
        store.add_vectors("e", [pid for pid, _ in pending], matrix)


def text_of(store: Store, path: bytes) -> str | None:
    file = store.file(path)
    if file is None or file.document_id is None:
        return None
    parts, end = [], 0
    for passage in store.passages(file.document_id):
        parts.append(passage.text[max(0, end - passage.char_from) :])
        end = passage.char_to
    return "".join(parts)


def replace(store: Store) -> None:
    put(store, b"manual.txt", NEW)
    embed(store)


def forget(store: Store) -> None:
    store.forget_file(b"manual.txt")


def fail(store: Store) -> None:
    store.fail_file(b"manual.txt", "encrypted", {})


def ignore(store: Store) -> None:
    store.ignore_file(b"manual.txt")


def follow_folder(store: Store) -> None:
    store.apply_listing([(b"other.txt", b"moved.txt")], [b"manual.txt"], [(b"third.txt", 1, 1)])


def reembed(store: Store) -> None:
    store.reset_vectors("e")
    embed(store)


CHANGES: list[tuple[Callable[[Store], None], set[str | None]]] = [
    (replace, {OLD, NEW}),
    (forget, {OLD, None}),
    (fail, {OLD, None}),
    (ignore, {OLD, None}),
    (follow_folder, {OLD, None}),
    (reembed, {OLD}),
]


@both
@pytest.mark.parametrize(
    ("change", "allowed"), CHANGES, ids=[change.__name__ for change, _ in CHANGES]
)
def test_change_survives_any_failed_write(
    store: Store,
    faults: Faults,
    change: Callable[[Store], None],
    allowed: set[str | None],
    persistent: bool,
) -> None:
    for n in itertools.count(1):
        for path in [file.path for file in store.files()]:
            store.forget_file(path)
        put(store, b"manual.txt", OLD)
        put(store, b"other.txt", OTHER)
        embed(store)

        with faults.failing_call(n, persistent=persistent) as injected, suppress(StoreFullError):
            change(store)

        assert store.check() == []
        assert text_of(store, b"manual.txt") in allowed
        if injected.hits == 0:
            break
        change(store)
        assert store.check() == []
        assert text_of(store, b"manual.txt") in allowed - {OLD} or change is reembed
    assert n > 3, "the sweep reached no write"


@both
def test_new_file_survives_any_failed_write_of_its_schema(
    tmp_path: Path, faults: Faults, persistent: bool
) -> None:
    for n in itertools.count(1):
        path = tmp_path / f"{n}.db"
        with faults.failing_call(n, persistent=persistent) as injected, suppress(StoreFullError):
            Store.open(path).close()

        again = Store.open(path)
        put(again, b"manual.txt", OLD)
        assert again.check() == []
        again.close()
        if injected.hits == 0:
            break
    assert n > 10, "the sweep reached no statement of the schema"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("database or disk is full", StoreFullError),
        ("database disk image is malformed", StoreCorruptError),
        ("disk I/O error", StoreError),
        ("attempt to write a readonly database", StoreError),
    ],
)
def test_sqlite_failure_is_told_in_the_stores_words(
    store: Store, faults: Faults, words: str, error: type[StoreError]
) -> None:
    with (
        faults.failing_call(2, persistent=False, text=words),
        pytest.raises(error) as caught,
    ):
        put(store, b"manual.txt", OLD)

    assert type(caught.value) is error
    assert str(store.path) in str(caught.value.facts["path"])
    assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_really_full_disk_changes_nothing_and_ends_with_the_shortage(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a.db")
    put(store, b"manual.txt", OLD)
    embed(store)
    writer = store._db._writer
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages}")
    long = "".join(f"第{n}章讲的是别的事。" for n in range(20_000))

    with pytest.raises(StoreFullError):
        put(store, b"long.txt", long)
    assert store.check() == []
    assert text_of(store, b"manual.txt") == OLD

    writer.execute("PRAGMA max_page_count = 1073741823")
    put(store, b"long.txt", long)
    embed(store)
    assert store.check() == []
    assert text_of(store, b"long.txt") == long
    store.close()
