"""From the folder to the answer: whatever happens to files, the store follows."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.config import InboxConfig, IngestConfig
from appliance.core import Question
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine
from tests.parsers import files


def until(claim: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def states(inside: Inside) -> dict[str, str]:
    return {file.display: file.error_code or file.state for file in inside.box.core.files()}


def finds(inside: Inside, text: str) -> list[str]:
    hits = inside.box.core.search(text).hits
    return sorted({hit.path for hit in hits if text in hit.text})


def inbox(inside: Inside) -> Path:
    return inside.box.config.inbox_dir


def test_dropped_changed_renamed_and_deleted_file_is_followed(inside: Inside) -> None:
    inside.put("a.txt", "旧句子说八点关门。")
    assert finds(inside, "旧句子") == ["a.txt"]
    document = inside.box.core.documents()[0].id

    (inbox(inside) / "a.txt").write_text("新句子说九点关门，不同。", encoding="utf-8")
    until(lambda: finds(inside, "新句子") == ["a.txt"])
    assert finds(inside, "旧句子") == []

    inside.wait()
    (inbox(inside) / "sub").mkdir()
    (inbox(inside) / "a.txt").rename(inbox(inside) / "sub" / "b.txt")
    until(lambda: finds(inside, "新句子") == ["sub/b.txt"])
    assert inside.box.core.collections() == ["sub"]
    assert inside.box.core.documents()[0].id != document

    (inbox(inside) / "sub" / "b.txt").unlink()
    until(lambda: states(inside) == {})
    inside.wait()
    stats = inside.box.core.stats()
    assert (stats["documents"], stats["passages"], stats["vectors"]) == (0, 0, 0)
    assert inside.box.core.check() == []


def test_bad_files_cost_only_themselves(make_inside: MakeInside, engine: ScriptedEngine) -> None:
    limits = IngestConfig(max_file_bytes=1_000_000, max_inflated_bytes=8_000_000, max_seconds=10.0)
    inside = make_inside(engine, ingest=limits, inbox=InboxConfig(settle_s=0.0, rescan_s=1.0))
    folder = inbox(inside)
    (folder / "good.txt").write_text("好文件说五点关门。", encoding="utf-8")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "big.txt").write_text("x" * 1_000_001)
    files.pdf(folder / "locked.pdf", ["secret"], password="1")
    (folder / "half.pdf").write_bytes(files.pdf(folder / "half.pdf", ["t"] * 5).read_bytes()[:600])
    files.docx_bomb(folder / "bomb.docx", 64 * 1024 * 1024)
    (folder / "tool.exe").write_bytes(b"MZ")
    (folder / "loop").symlink_to(folder)
    (folder / "self").symlink_to("self")
    (folder / "outside.txt").symlink_to("/etc/passwd")
    (folder / ".hidden.txt").write_text("no")
    (folder / "copy.txt.part").write_text("no")
    Path(os.fsdecode(os.fsencode(folder) + b"/" + "教案.txt".encode("gbk"))).write_text(
        "GBK 文件名。", encoding="utf-8"
    )

    expected = {
        "good.txt": "linked",
        "empty.txt": "empty_file",
        "big.txt": "file_too_large",
        "locked.pdf": "encrypted",
        "half.pdf": "damaged",
        "bomb.docx": "archive_bomb",
        "tool.exe": "unsupported_format",
        "教案.txt": "linked",
    }
    until(lambda: states(inside) == expected, 40.0)
    inside.wait()

    assert finds(inside, "五点关门") == ["good.txt"]
    assert inside.box.core.check() == []
    assert sorted(f["code"] for f in inside.box.core.stats()["failed"]) == sorted(
        code for code in expected.values() if code != "linked"
    )


def test_failed_file_that_is_repaired_is_read(inside: Inside) -> None:
    path = inbox(inside) / "a.txt"
    path.write_bytes(b"")
    until(lambda: states(inside) == {"a.txt": "empty_file"})

    path.write_text("现在有字了。", encoding="utf-8")

    until(lambda: finds(inside, "现在有字") == ["a.txt"])


def test_file_that_vanishes_before_it_is_read_is_forgotten(
    make_inside: MakeInside, engine: ScriptedEngine
) -> None:
    inside = make_inside(engine, inbox=InboxConfig(settle_s=0.5, rescan_s=1.0))
    path = inbox(inside) / "a.txt"
    path.write_text("马上消失。", encoding="utf-8")
    until(lambda: "a.txt" in states(inside))

    path.unlink()

    until(lambda: states(inside) == {})


def test_changes_made_while_the_box_was_off_are_followed(
    make_inside: MakeInside, tmp_path: Path
) -> None:
    folder = tmp_path / "one" / "inbox"
    folder.mkdir(parents=True)
    (folder / "gone.txt").write_text("删掉的。", encoding="utf-8")
    (folder / "old.txt").write_text("旧内容。", encoding="utf-8")
    from appliance import daemon
    from appliance.config import Config, HttpConfig
    from appliance.system.clock import Clock

    config = Config(data=tmp_path / "one", http=HttpConfig(port=0), inbox=InboxConfig(settle_s=0.0))
    with daemon.open_box(config, Clock(), lambda _: ScriptedEngine()) as first:
        until(lambda: len(first.core.documents()) == 2)

    (folder / "gone.txt").unlink()
    (folder / "old.txt").write_text("新内容，更长了。", encoding="utf-8")
    (folder / "new.txt").write_text("关机时加的。", encoding="utf-8")

    with daemon.open_box(config, Clock(), lambda _: ScriptedEngine()) as again:
        until(
            lambda: sorted(p for d in again.core.documents() for p in d.paths)
            == ["new.txt", "old.txt"]
        )
        until(
            lambda: bool(again.core.search("新内容").hits)
            and "新内容" in again.core.search("新内容").hits[0].text
        )
        until(lambda: again.core.progress().n_files_waiting == 0)
        assert not any("旧内容" in h.text for h in again.core.search("旧内容").hits)
        assert again.core.check() == []


def test_inbox_that_cannot_be_read_is_reported_and_recovers(
    make_inside: MakeInside, engine: ScriptedEngine
) -> None:
    inside = make_inside(engine, inbox=InboxConfig(settle_s=0.0, rescan_s=1.0))
    inside.put("a.txt", "还在的内容。")
    folder = inbox(inside)
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("a file where the folder should be")

    until(lambda: [code for code, _ in inside.box.core.problems()] == ["inbox_unreadable"])
    assert finds(inside, "还在的内容") == ["a.txt"], "nothing is forgotten while nothing is known"

    folder.unlink()
    aside.rename(folder)
    until(lambda: inside.box.core.problems() == [])
    assert finds(inside, "还在的内容") == ["a.txt"]


def test_removed_document_stays_out_until_asked_back(inside: Inside) -> None:
    inside.put("a.txt", "可以移除的内容。")

    inside.box.core.remove("a.txt")
    assert finds(inside, "可以移除") == []
    time.sleep(0.5)
    assert finds(inside, "可以移除") == []
    assert (inbox(inside) / "a.txt").exists(), "originals are never touched"

    inside.box.core.reindex("a.txt")
    until(lambda: finds(inside, "可以移除") == ["a.txt"])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
def test_full_disk_stops_reading_and_space_lets_it_go_on(
    make_inside: MakeInside, tmp_path: Path
) -> None:
    data = tmp_path / "small"
    data.mkdir()
    mounted = os.system(f"mount -t tmpfs -o size=1400k tmpfs {data}")
    if mounted != 0:
        pytest.skip("this root may not mount")
    outside = tmp_path / "documents"
    outside.mkdir()
    try:
        inside = make_inside(
            ScriptedEngine(), "small", inbox=InboxConfig(str(outside), settle_s=0.0, rescan_s=1.0)
        )
        for n in range(12):
            text = "".join(f"第{n}份文件第{i}句各不相同。" for i in range(1500))
            (outside / f"{n}.txt").write_text(text, encoding="utf-8")
        until(lambda: inside.box.core.progress().waiting_for == "store_full", 60.0)
        n_before = len(inside.box.core.documents())
        assert n_before < 12
        assert not any(f.state == "failed" for f in inside.box.core.files())

        assert os.system(f"mount -o remount,size=200m {data}") == 0

        until(lambda: len(inside.box.core.documents()) == 12, 90.0)
        inside.wait()
        assert inside.box.core.check() == []
    finally:
        shutil.rmtree(outside)
        os.system(f"umount -l {data}")


def test_strict_refusal_never_calls_the_model(inside: Inside) -> None:
    inside.put("a.txt", "图书馆周末下午五点关门。")
    before = inside.engine.status()

    (answer,) = list(inside.box.core.ask(Question("What is the capital of Mongolia?")))

    assert answer.refused
    assert answer.reason == "nothing_relevant"
    assert answer.answer.startswith("This is not in your documents.")
    after = inside.engine.status()
    assert (before.tokens_prefilled, before.tokens_decoded) == (
        after.tokens_prefilled,
        after.tokens_decoded,
    )
    (answer,) = list(inside.box.core.ask(Question("今天股票涨了吗？")))
    assert answer.answer.startswith("您的文档中没有这方面的内容。")
