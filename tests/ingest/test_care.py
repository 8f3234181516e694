"""Care: what people see in the folder, imports, and a store that gives its space back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from appliance.cli import run_command
from appliance.core.importing import import_folder
from appliance.errors import ApplianceError
from appliance.frontends.dropfolder.report import StatusFiles, status_of, text_of
from appliance.system import files
from tests.conftest import Inside
from tests.ingest.test_inbox import finds, inbox, until


def told(inside: Inside) -> dict[str, object]:
    core = inside.box.core
    return status_of(core.files(), core.documents(), core.progress())


def test_status_says_in_both_languages_why_a_file_failed(inside: Inside) -> None:
    (inbox(inside) / "坏.docx").write_bytes(b"broken")
    inside.put("a.txt", "图书馆五点关门。")

    until(
        lambda: json.loads((inbox(inside) / "_status.json").read_bytes())["counts"]["failed"] == 1
    )

    text = (inbox(inside) / "_STATUS.txt").read_text(encoding="utf-8-sig")
    assert "坏.docx" in text
    assert "文件已损坏" in text
    assert "is damaged" in text
    assert told(inside)["counts"] == {
        "ready": 1, "partial": 0, "failed": 1, "waiting": 0, "ignored": 0
    }  # fmt: skip


def test_status_files_are_no_documents_and_wake_nobody(inside: Inside) -> None:
    inside.put("a.txt", "图书馆五点关门。")
    until((inbox(inside) / "_STATUS.txt").exists)
    inside.wait()

    assert [file.display for file in inside.box.core.files()] == ["a.txt"]
    before = (inbox(inside) / "_STATUS.txt").stat().st_mtime_ns
    inside.wait()
    assert (inbox(inside) / "_STATUS.txt").stat().st_mtime_ns == before


def test_status_of_a_folder_that_cannot_be_written_is_left(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(files, "write_whole", refuse)
    core = inside.box.core

    StatusFiles(tmp_path).write(core.files(), core.documents(), core.progress())

    assert list(tmp_path.glob("_*")) == []
    assert "\r\n" in text_of(told(inside))


def stick(tmp_path: Path) -> Path:
    folder = tmp_path / "stick"
    (folder / "课 件").mkdir(parents=True)
    (folder / "课 件" / "a.txt").write_text("图书馆五点关门。", encoding="utf-8")
    (folder / "b.exe").write_bytes(b"MZ")
    (folder / ".hidden").write_bytes(b"x")
    (folder / "link.txt").symlink_to("/etc/passwd")
    (folder / "big.txt").write_bytes(b"x" * 5000)
    return folder


def test_import_copies_documents_and_names_what_it_left(tmp_path: Path) -> None:
    source, target = stick(tmp_path), tmp_path / "inbox"

    report = import_folder(source, target, max_files=10, max_file_bytes=1000)

    assert report.copied == ["课 件/a.txt"]
    assert (target / "import" / "stick" / "课 件" / "a.txt").exists()
    assert {(path, code) for path, code, _ in report.left_out} == {
        ("b.exe", "unsupported_format"), ("link.txt", "import_link"), ("big.txt", "file_too_large")
    }  # fmt: skip


def test_import_again_copies_nothing_twice(tmp_path: Path) -> None:
    source, target = stick(tmp_path), tmp_path / "inbox"
    import_folder(source, target, max_files=10, max_file_bytes=1000)

    report = import_folder(source, target, max_files=10, max_file_bytes=1000)

    assert (report.copied, report.already_there) == ([], ["课 件/a.txt"])
    assert len([path for path in target.rglob("*") if path.is_file()]) == 1


def test_import_of_too_many_documents_copies_none(tmp_path: Path) -> None:
    with pytest.raises(ApplianceError) as caught:
        import_folder(stick(tmp_path), tmp_path / "inbox", max_files=1, max_file_bytes=9000)

    assert caught.value.code == "import_too_many"
    assert not (tmp_path / "inbox").exists()


def test_imported_documents_are_found(inside: Inside, tmp_path: Path) -> None:
    command = ["kb", "import", str(stick(tmp_path)), "--data", str(inside.data)]

    assert run_command(command) == 0
    inside.wait()

    assert "import/stick/课 件/a.txt" in finds(inside, "五点关门")


def test_deleted_documents_leave_no_orphan_and_no_space(inside: Inside) -> None:
    inside.put("keep.txt", "食堂六点开门。")
    inside.client.post("/api/kb/vacuum")
    empty = inside.box.config.database.stat().st_size
    for n in range(40):
        text = "".join(f"第{n}份第{m}条：图书馆的规定内容。\n\n" for m in range(200))
        (inbox(inside) / f"{n}.txt").write_text(text, encoding="utf-8")
    inside.wait()
    full = inside.box.config.database.stat().st_size
    for n in range(40):
        (inbox(inside) / f"{n}.txt").unlink()
    inside.wait()

    assert run_command(["kb", "check", "--data", str(inside.data)]) == 0
    assert run_command(["kb", "vacuum", "--data", str(inside.data)]) == 0

    assert full > 2 * empty
    assert inside.box.config.database.stat().st_size <= 1.05 * empty
    assert finds(inside, "图书馆的规定") == []


def test_reindex_of_all_leaves_removed_documents_removed(inside: Inside) -> None:
    inside.put("a.txt", "图书馆五点关门。")
    inside.put("b.txt", "食堂六点开门。")
    inside.box.core.remove("a.txt")

    assert inside.box.core.reindex_all() == 1
    inside.wait()

    assert [row.paths for row in inside.box.core.documents()] == [("b.txt",)]


def test_new_vectors_are_made_without_reading_again(inside: Inside) -> None:
    inside.put("a.txt", "图书馆五点关门。")
    (before,) = inside.box.core.documents()
    n_embedded = inside.engine.texts_embedded

    command = ["kb", "reindex", "--vectors", "--data", str(inside.data)]
    assert run_command(command) == 0
    assert finds(inside, "五点关门") == ["a.txt"]
    inside.wait()

    (after,) = inside.box.core.documents()
    assert (after.id, after.added_at) == (before.id, before.added_at)
    assert inside.engine.texts_embedded > n_embedded
    assert inside.box.core.check() == []


def test_number_of_a_deleted_document_is_never_given_again(inside: Inside) -> None:
    inside.put("a.txt", "图书馆五点关门。")
    (first,) = inside.box.core.documents()
    (inbox(inside) / "a.txt").unlink()
    inside.wait()

    inside.put("b.txt", "食堂六点开门。")

    (second,) = inside.box.core.documents()
    assert second.id > first.id
