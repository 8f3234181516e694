"""The store: a document is there everywhere or nowhere, whatever fails in between."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from appliance.errors import SchemaTooNewError, StoreCorruptError, StoreError
from appliance.parsers.base import Block
from appliance.store import ParsedMeta, Scope, Store
from appliance.text.chunk import chunk
from appliance.text.cjk import query_terms

OLD = "旧句子说开放到八点。"
NEW = "新句子说开放到九点。"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "appliance.db")
    yield opened
    opened.close()


def put(store: Store, path: bytes, text: str, *, mtime_ns: int = 1) -> int:
    store.note_file(path, len(text), mtime_ns)
    digest = hashlib.sha256(text.encode()).digest()
    known = store.link_existing(path, digest)
    if known is not None:
        return known
    return store.commit_document(
        path, digest, len(text), ParsedMeta("txt", "t"), chunk([Block(text, page=1)])
    )


def embed(store: Store, embedder: str = "e") -> None:
    while batch := store.pending_embeddings(100):
        rng = np.random.default_rng(len(batch))
        matrix = rng.standard_normal((len(batch), 8)).astype(np.float32)
        store.add_vectors(embedder, [pid for pid, _ in batch], matrix)


def found(store: Store, text: str) -> list[int]:
    return [pid for pid, _ in store.keyword_search(query_terms(text), 10).hits]


def test_changed_file_leaves_no_old_sentence(store: Store) -> None:
    put(store, b"a.txt", OLD)
    embed(store)

    put(store, b"a.txt", NEW, mtime_ns=2)
    embed(store)

    assert found(store, "旧句") == []
    assert len(found(store, "新句")) == 1
    assert store.check() == []
    assert store.stats()["vectors"] == store.stats()["passages"] == 1


def test_deleted_file_leaves_nothing_anywhere(store: Store) -> None:
    put(store, b"a.txt", OLD)
    embed(store)

    store.forget_file(b"a.txt")

    stats = store.stats()
    assert (stats["documents"], stats["passages"], stats["vectors"]) == (0, 0, 0)
    assert store.jobs() == []
    assert store.files() == []
    assert store.dense_search(np.ones(8, np.float32), 5)[0] == []
    assert store.check() == []


def test_same_bytes_twice_are_one_document_with_two_files(store: Store) -> None:
    first, second = put(store, b"a.txt", OLD), put(store, b"b/a.txt", OLD)

    assert first == second
    assert store.document(first).paths == ("a.txt", "b/a.txt")

    store.forget_file(b"a.txt")
    assert len(found(store, "旧句")) == 1
    store.forget_file(b"b/a.txt")
    assert found(store, "旧句") == []


def test_failed_reread_hides_what_the_file_said_before(store: Store) -> None:
    put(store, b"a.txt", OLD)

    store.note_file(b"a.txt", 1, 2)
    store.fail_file(b"a.txt", "encrypted", {})

    assert found(store, "旧句") == []
    assert store.stats()["failed"] == [{"path": "a.txt", "code": "encrypted", "facts": {}}]


def test_unchanged_file_is_not_read_again_and_a_changed_one_is(store: Store) -> None:
    put(store, b"a.txt", OLD)

    assert store.note_file(b"a.txt", len(OLD), 1).state == "linked"
    assert store.note_file(b"a.txt", len(OLD), 7).state == "seen"
    assert len(found(store, "旧句")) == 1, "the old text stays until the new one is read"


def test_ignored_file_stays_ignored_until_its_bytes_change(store: Store) -> None:
    put(store, b"a.txt", OLD)
    store.ignore_file(b"a.txt")

    assert store.note_file(b"a.txt", len(OLD), 1).state == "ignored"
    assert found(store, "旧句") == []
    assert store.note_file(b"a.txt", 5, 9).state == "seen"


def test_rename_keeps_the_document_and_its_vectors(store: Store) -> None:
    document = put(store, b"a.txt", OLD)
    embed(store)

    store.move_file(b"a.txt", b"lessons/b.txt")

    assert store.document(document).paths == ("lessons/b.txt",)
    assert store.files()[0].collection == "lessons"
    assert store.document(document).state == "ready"


def test_name_in_gbk_bytes_is_kept_and_shown(store: Store) -> None:
    path = "教案.txt".encode("gbk")

    put(store, path, OLD)

    assert store.files()[0].path == path
    assert store.files()[0].display == "教案.txt"


def test_vectors_of_another_embedder_are_refused_until_reset(store: Store) -> None:
    put(store, b"a.txt", OLD)
    embed(store, "one")
    put(store, b"b.txt", NEW)

    with pytest.raises(StoreError) as caught:
        embed(store, "two")
    assert caught.value.code == "embedder_changed"

    store.reset_vectors("two")
    embed(store, "two")
    assert store.stats()["vectors"] == 2
    assert store.check() == []


def test_search_finds_words_characters_and_codes(store: Store) -> None:
    put(store, b"a.txt", "论文按照 GB/T 7714-2015 著录。")
    put(store, b"b.txt", "GB 18030 与 T 7714 无关，2015 年。")
    put(store, b"c.txt", "教案")

    assert found(store, "教案") == [store.passages(3)[0].id]
    assert found(store, "GB/T 7714-2015")[0] == store.passages(1)[0].id
    assert store.terms_with("案") == ["教案"]


def test_reopened_store_is_the_same(tmp_path: Path) -> None:
    first = Store.open(tmp_path / "a.db")
    put(first, b"a.txt", OLD)
    embed(first)
    vector = np.arange(8, dtype=np.float32)
    before = first.dense_search(vector, 3)
    first.close()

    again = Store.open(tmp_path / "a.db")
    try:
        assert again.dense_search(vector, 3) == before
        assert len(found(again, "旧句")) == 1
        assert again.check() == []
    finally:
        again.close()


def test_terms_made_another_way_are_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Store.open(tmp_path / "a.db")
    put(first, b"a.txt", OLD)
    first.close()

    monkeypatch.setattr("appliance.store.store.TERMS_VERSION", 99)
    again = Store.open(tmp_path / "a.db")
    try:
        assert again.check() == []
        assert len(found(again, "旧句")) == 1
        assert again.get_meta("terms_version") == "99"
    finally:
        again.close()


def test_second_daemon_on_the_same_file_is_refused(store: Store) -> None:
    with pytest.raises(StoreError) as caught:
        Store.open(store.path)

    assert caught.value.code == "store_locked"


def test_store_of_a_newer_version_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    Store.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    before = path.read_bytes()

    with pytest.raises(SchemaTooNewError):
        Store.open(path)

    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"x" * 9000]
)
def test_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(content)

    with pytest.raises(StoreCorruptError):
        Store.open(path)


def test_check_sees_every_kind_of_orphan(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store.open(path)
    put(store, b"a.txt", OLD)
    embed(store)
    store.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("INSERT INTO passages_fts (rowid, terms) VALUES (77, 'ghost')")
    db.execute("INSERT INTO vectors VALUES (78, zeroblob(8))")
    db.execute("DELETE FROM files")
    db.commit()
    db.close()

    broken = Store.open(path)
    try:
        problems = broken.check()
    finally:
        broken.close()

    assert "keyword row 77 has no passage" in problems
    assert "vector 78 has no passage" in problems
    assert "document 1 has no file" in problems


def test_vectors_of_unequal_length_are_named_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store.open(path)
    put(store, b"a.txt", OLD + NEW)
    embed(store)
    store.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("INSERT INTO vectors VALUES (78, zeroblob(3))")
    db.commit()
    db.close()

    with pytest.raises(StoreCorruptError):
        Store.open(path)


def test_conversations_are_kept_and_forgotten(store: Store) -> None:
    one = store.create_conversation("kiosk")
    store.add_turn(one, "几点？", {"answer": "八点。"})

    assert [t.question for t in store.turns(one)] == ["几点？"]
    assert store.conversations()[0].title == "几点？"

    store.delete_conversation(one)
    store.add_turn(one, "还在吗？", {"answer": "不在。"})
    assert store.conversations() == []


def test_file_removed_by_its_owner_while_it_was_read_stays_removed(store: Store) -> None:
    store.note_file(b"a.txt", 1, 1)

    store.ignore_file(b"a.txt")
    passages = chunk([Block(OLD)])
    store.commit_document(b"a.txt", b"x" * 32, 1, ParsedMeta("txt", "t"), passages)

    assert store.files()[0].state == "ignored"
    assert store.stats()["documents"] == 0
    assert found(store, "旧句") == []
    assert store.check() == []


def test_file_forgotten_while_it_was_read_leaves_nothing(store: Store) -> None:
    store.note_file(b"a.txt", 1, 1)

    store.forget_file(b"a.txt")
    store.commit_document(b"a.txt", b"x" * 32, 1, ParsedMeta("txt", "t"), chunk([Block(OLD)]))

    assert store.stats()["documents"] == 0
    assert store.check() == []


@pytest.mark.parametrize("is_known", [False, True], ids=["new bytes", "known bytes"])
def test_change_seen_while_a_file_was_read_is_read_too(store: Store, is_known: bool) -> None:
    if is_known:
        put(store, b"same.txt", OLD)
    noted = store.note_file(b"a.txt", len(OLD), 1)

    store.note_file(b"a.txt", len(NEW), 2)
    digest = hashlib.sha256(OLD.encode()).digest()
    if store.link_existing(b"a.txt", digest, noted) is None:
        passages = chunk([Block(OLD)])
        store.commit_document(
            b"a.txt", digest, len(OLD), ParsedMeta("txt", "t"), passages, noted=noted
        )

    file = store.file(b"a.txt")
    assert file is not None
    assert (file.state, file.mtime_ns) == ("seen", 2)
    assert len(found(store, "旧句")) == 1, "the text read so far is good until the next"


def test_row_of_pending_work_and_states_never_disagree(store: Store) -> None:
    assert store.jobs() == []

    store.note_file(b"a.txt", 1, 1)
    assert [(job["kind"], job["what"]) for job in store.jobs()] == [("parse", "a.txt")]

    put(store, b"a.txt", OLD)
    assert [job["kind"] for job in store.jobs()] == ["embed"]

    embed(store)
    assert store.jobs() == []


def test_collection_name_with_wildcards_or_other_case_matches_only_itself(store: Store) -> None:
    put(store, b"a_b/one.txt", OLD)
    put(store, b"axb/two.txt", NEW)
    put(store, b"A_B/three.txt", OLD + NEW)

    def collections(name: str) -> set[str]:
        hits = store.keyword_search(query_terms("句子"), 10, Scope(collection=name)).hits
        rows = store.get_passages([pid for pid, _ in hits], name)
        return {row.collection for row in rows.values()}

    assert collections("a_b") == {"a_b"}
    assert collections("a%") == set()
    assert store.has_passages("a_b")
    assert not store.has_passages("a")


def test_common_terms_are_left_out_beside_rare_ones_and_used_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        put(store, b"%d.txt" % n, f"图书馆第{n}号通知")
    put(store, b"rare.txt", "图书馆的火警演习")

    assert [store.get_passages([pid])[pid].path for pid in found(store, "图书馆火警")] == [
        "rare.txt"
    ]
    assert len(found(store, "图书馆")) == 10

    monkeypatch.setattr("appliance.store.search._MOST_POSTINGS", 5)
    assert len(found(store, "图书馆")) == 10, "one term is looked up however common it is"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_that_is_forked_meanwhile_is_not_held_up(store: Store) -> None:
    has_read, may_end = threading.Event(), threading.Event()

    def read() -> None:
        store.files()
        has_read.set()
        may_end.wait()

    reader = threading.Thread(target=read)
    reader.start()
    has_read.wait()
    # As if another thread opened its connection at this very moment.
    with store._db._readers_lock:
        child = os.fork()
        if child == 0:
            os._exit(0)
    may_end.set()
    reader.join()
    deadline = time.monotonic() + 10
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.01)
