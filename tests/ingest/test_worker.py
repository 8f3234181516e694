"""The worker alone with its troubles: what goes wrong around a file never costs another one."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from appliance import daemon
from appliance.config import Config, HttpConfig, InboxConfig, IngestConfig
from appliance.core import Core, ingest
from appliance.core.ingest import is_cured
from appliance.errors import ParseFailedError, StoreFullError
from appliance.parsers.base import Limits, ParsedDocument
from appliance.parsers.process import ParserProcess
from appliance.store import FileRow, Store
from appliance.system.clock import Clock
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine
from tests.ingest.test_inbox import finds, inbox, states, until

SYMBOLS = "∑∫√∂∇≈≠≤≥±" * 120
"""One passage by estimate, more than 512 tokens when counted."""


def config_of(data: Path, **sections: object) -> Config:
    sections.setdefault("inbox", InboxConfig(settle_s=0.0, rescan_s=1.0))
    return Config(data=data, http=HttpConfig(port=0), **sections)  # type: ignore[arg-type]


def before_parse(monkeypatch: pytest.MonkeyPatch, act: Callable[[int, bytes], None]) -> None:
    """Have ``act(n, path)`` run before the n-th parse, once its bytes were hashed."""
    parse, n = ParserProcess.parse, [0]

    def spoiled(self: ParserProcess, path: bytes, name: str, limits: Limits) -> ParsedDocument:
        n[0] += 1
        act(n[0], path)
        return parse(self, path, name, limits)

    monkeypatch.setattr(ParserProcess, "parse", spoiled)


def test_passage_too_long_for_the_embedder_stops_no_other(inside: Inside) -> None:
    (inbox(inside) / "symbols.txt").write_text(SYMBOLS, encoding="utf-8")
    inside.put("a.txt", "图书馆五点关门。")

    stats = inside.box.core.stats()

    assert stats["by_state"] == {"ready": 2}
    assert stats["vectors"] == stats["passages"]
    assert finds(inside, "五点关门") == ["a.txt"]


def test_vector_of_an_overlong_passage_is_the_mean_of_its_parts(
    make_inside: MakeInside, engine: ScriptedEngine
) -> None:
    worker = ingest.IngestWorker(
        Config(data=Path("/nowhere")), object.__new__(Store), engine, Clock()
    )

    (short, long) = worker._vectors(["短的。", SYMBOLS])

    assert np.linalg.norm(long) == pytest.approx(1.0, abs=1e-5)
    assert np.linalg.norm(short) == pytest.approx(1.0, abs=1e-5)
    assert "".join(text for _, text in engine.embedded) == "短的。" + SYMBOLS


def test_reindex_makes_the_document_and_its_vectors_anew(inside: Inside) -> None:
    inside.put("a.txt", "图书馆五点关门。")
    (before,) = inside.box.core.documents()
    n_embedded = inside.engine.texts_embedded

    inside.box.core.reindex("a.txt")
    inside.wait()

    (after,) = inside.box.core.documents()
    assert after.added_at > before.added_at
    assert inside.engine.texts_embedded == n_embedded + 1
    assert finds(inside, "五点关门") == ["a.txt"]
    assert inside.box.core.check() == []


def test_reindex_of_twins_ends_with_one_document(inside: Inside) -> None:
    inside.put("a.txt", "两份一样。")
    inside.put("b.txt", "两份一样。")

    assert inside.box.core.reindex_all() == 2
    inside.wait()

    (document,) = inside.box.core.documents()
    assert sorted(document.paths) == ["a.txt", "b.txt"]
    assert inside.box.core.check() == []


def test_touched_file_is_not_embedded_again(inside: Inside) -> None:
    inside.put("a.txt", "图书馆五点关门。")
    n_embedded = inside.engine.texts_embedded

    os.utime(inbox(inside) / "a.txt", (1, 1))
    until(lambda: inside.box.core.files()[0].mtime_ns == 10**9)
    inside.wait()

    assert inside.engine.texts_embedded == n_embedded


def test_other_embedder_is_refused_until_the_owner_asks_for_a_rebuild(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "inbox").mkdir()
    for name in ("a", "b"):
        (tmp_path / "inbox" / f"{name}.txt").write_text(f"文件{name}说五点。", encoding="utf-8")
    with daemon.open_box(config, Clock(), lambda _: ScriptedEngine(embedder_id="one")) as box:
        until(lambda: box.core.stats()["by_state"] == {"ready": 2})

    engine = ScriptedEngine(embedder_id="two")
    (tmp_path / "inbox" / "c.txt").write_text("文件c说六点。", encoding="utf-8")
    with daemon.open_box(config, Clock(), lambda _: engine) as box:
        until(lambda: box.core.progress().waiting_for == "embedder_changed")
        assert len(box.core.search("五点").hits) == 2, "keywords go on meanwhile"
        assert not [kind for kind, _ in engine.embedded if kind == "passage"]

        box.core.reindex_all()
        until(lambda: box.core.stats()["by_state"] == {"ready": 3})

        assert all("dense" in hit.arms for hit in box.core.search("五点").hits)
        assert box.core.stats()["vectors"] == 3
        assert box.core.check() == []


def test_file_changed_while_it_is_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch, inside: Inside
) -> None:
    def change(n: int, path: bytes) -> None:
        if n == 1:
            file = Path(os.fsdecode(path))
            stat = file.stat()
            file.write_text("新的一句话。", encoding="utf-8")
            # Same size, same time: only its bytes can tell.
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    before_parse(monkeypatch, change)

    inside.put("a.txt", "旧的一句话。")

    assert finds(inside, "新的一句") == ["a.txt"]
    assert finds(inside, "旧的一句") == []


def test_file_that_vanishes_while_it_is_read_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, inside: Inside
) -> None:
    def vanish(n: int, path: bytes) -> None:
        if path.endswith(b"gone.txt"):
            Path(os.fsdecode(path)).unlink()

    before_parse(monkeypatch, vanish)
    (inbox(inside) / "gone.txt").write_text("马上消失。", encoding="utf-8")

    inside.put("stays.txt", "还在这里。")

    assert states(inside) == {"stays.txt": "linked"}
    assert inside.box.core.check() == []


def test_pipe_in_the_place_of_a_file_holds_nobody(
    make_inside: MakeInside, engine: ScriptedEngine
) -> None:
    inside = make_inside(engine, inbox=InboxConfig(settle_s=0.3, rescan_s=60.0))
    path = inbox(inside) / "a.txt"
    path.write_text("一句话。", encoding="utf-8")
    until(lambda: "a.txt" in states(inside))
    path.unlink()
    os.mkfifo(path)

    inside.put("b.txt", "另一句话。")

    assert states(inside)["b.txt"] == "linked"


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.ENOSPC])
def test_shortage_of_the_system_is_waited_out(
    monkeypatch: pytest.MonkeyPatch, inside: Inside, number: int
) -> None:
    seen: list[str | None] = []
    shown: list[str] = []

    def short(n: int, path: bytes) -> None:
        seen.append(inside.box.core.progress().waiting_for)
        shown.extend(code for code, _ in inside.box.core.problems())
        if n <= 5:  # more often than a file may be tried
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ingest, "_RETRY_S", 0.02)
    before_parse(monkeypatch, short)

    inside.put("a.txt", "最后读到了。")

    assert finds(inside, "最后读到") == ["a.txt"]
    assert set(seen[1:]) == {"store_full" if number == errno.ENOSPC else "ingest_short"}
    assert shown == seen[1:], "status says so as well"
    until(lambda: inside.box.core.progress().waiting_for is None)
    assert inside.box.core.problems() == []


def test_clean_stops_never_count_against_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = config_of(tmp_path)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.txt").write_text("很长的文件。", encoding="utf-8")
    with monkeypatch.context() as slow:
        for _ in range(5):
            began: list[bytes] = []

            def stopped(
                self: ParserProcess, path: bytes, name: str, limits: Limits, began: list[bytes]
            ) -> ParsedDocument:
                began.append(path)
                until(lambda: self._is_closed)
                raise ParseFailedError("parse_crashed", signal="SIGKILL")

            slow.setattr(
                ParserProcess,
                "parse",
                lambda self, path, name, limits, began=began: stopped(
                    self, path, name, limits, began
                ),
            )
            with daemon.open_box(config, Clock(), lambda _: ScriptedEngine()):
                until(lambda began=began: bool(began))  # type: ignore[misc]

    with daemon.open_box(config, Clock(), lambda _: ScriptedEngine()) as box:
        until(lambda: [file.state for file in box.core.files()] == ["linked"])


def test_file_that_ended_the_daemon_three_times_is_given_up(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "inbox").mkdir()
    path = tmp_path / "inbox" / "a.txt"
    path.write_text("一句话。", encoding="utf-8")
    with contextlib.closing(Store.open(tmp_path / "appliance.db")) as store:
        store.note_file(b"a.txt", path.stat().st_size, path.stat().st_mtime_ns)
        for _ in range(3):
            store.begin_attempt(b"a.txt")

    with daemon.open_box(config, Clock(), lambda _: ScriptedEngine()) as box:
        until(lambda: [file.error_code for file in box.core.files()] == ["parse_gave_up"])

        box.core.reindex("a.txt")

        until(lambda: [file.state for file in box.core.files()] == ["linked"])


def test_raised_limit_lets_a_failed_file_in_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.txt").write_text("一句话。" * 200, encoding="utf-8")
    low = config_of(tmp_path, ingest=IngestConfig(max_file_bytes=1024))
    with daemon.open_box(low, Clock(), lambda _: ScriptedEngine()) as box:
        until(lambda: [file.error_code for file in box.core.files()] == ["file_too_large"])

    high = config_of(tmp_path, ingest=IngestConfig(max_file_bytes=1024 * 1024))
    with daemon.open_box(high, Clock(), lambda _: ScriptedEngine()) as box:
        until(lambda: [file.state for file in box.core.files()] == ["linked"])


@pytest.mark.parametrize(
    ("code", "facts", "name", "cured"),
    [
        ("file_too_large", {"size": 9, "limit": 8}, "a.txt", True),
        ("file_too_large", {"size": 9, "limit": 200 << 20}, "a.txt", False),
        ("parse_timeout", {"seconds": 10.0}, "a.pdf", True),
        ("parse_memory", {"limit_mib": 1024}, "a.pdf", False),
        ("unsupported_format", {"suffix": ".md"}, "A.MD", True),
        ("unsupported_format", {"suffix": ".exe"}, "a.exe", False),
        ("damaged", {"format": "PDF"}, "a.pdf", False),
        ("too_many_pages", {}, "a.pdf", False),
    ],
)
def test_only_a_reason_that_is_gone_is_tried_again(
    code: str, facts: dict[str, object], name: str, cured: bool
) -> None:
    file = FileRow(name.encode(), name, "", 9, 1, "failed", None, code, facts, 1)  # type: ignore[arg-type]

    assert is_cured(file, Limits()) is cured


def test_new_file_on_a_full_disk_is_reported_and_taken_later(
    monkeypatch: pytest.MonkeyPatch, make_inside: MakeInside, engine: ScriptedEngine
) -> None:
    inside = make_inside(engine, inbox=InboxConfig(settle_s=0.0, rescan_s=0.5))
    apply = Core.apply

    def full(*_args: object) -> None:
        raise StoreFullError(path="appliance.db")

    monkeypatch.setattr(Core, "apply", full)
    (inbox(inside) / "a.txt").write_text("一句话。", encoding="utf-8")
    until(lambda: [code for code, _ in inside.box.core.problems()] == ["store_full"])

    monkeypatch.setattr(Core, "apply", apply)

    until(lambda: finds(inside, "一句话") == ["a.txt"])
    assert inside.box.core.problems() == []
