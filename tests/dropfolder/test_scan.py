"""Two pictures in, differences out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.core import FileRow
from appliance.frontends.dropfolder import scan


def row(path: bytes, size: int = 1, mtime: int = 1) -> FileRow:
    return FileRow(path, path.decode(), "", size, mtime, "linked", 1, None, {}, 0)


def picture(**files: tuple[int, int, int]) -> scan.Picture:
    """name=(size, mtime, inode)"""
    return scan.Picture(
        {
            name.encode(): scan.Found(size, mtime, (0, inode))
            for name, (size, mtime, inode) in files.items()
        }
    )


def test_new_changed_and_gone_files_are_told_apart() -> None:
    known = [row(b"same"), row(b"grown"), row(b"touched"), row(b"gone")]

    found = scan.compare(
        known, picture(same=(1, 1, 1), grown=(2, 1, 2), touched=(1, 9, 3), new=(5, 5, 4)), {}
    )

    assert found == scan.Difference(noted=(b"grown", b"new", b"touched"), gone=(b"gone",))


def test_rename_is_seen_by_its_inode() -> None:
    found = scan.compare([row(b"old")], picture(new=(1, 1, 7)), {b"old": (0, 7)})

    assert found == scan.Difference(moved=((b"old", b"new"),))


def test_renamed_and_changed_file_is_read_anew() -> None:
    found = scan.compare([row(b"old")], picture(new=(2, 2, 7)), {b"old": (0, 7)})

    assert found == scan.Difference(noted=(b"new",), gone=(b"old",))


def test_swapped_names_are_two_changes_not_two_moves() -> None:
    known = [row(b"a", 1, 1), row(b"b", 2, 2)]

    found = scan.compare(known, picture(a=(2, 2, 2), b=(1, 1, 1)), {b"a": (0, 1), b"b": (0, 2)})

    assert found == scan.Difference(noted=(b"a", b"b"))


def test_files_below_an_unreadable_folder_are_kept() -> None:
    shot = picture(top=(1, 1, 1))
    shot.unreadable.append(b"locked")

    found = scan.compare([row(b"top"), row(b"locked/a"), row(b"lockedout")], shot, {})

    assert found == scan.Difference(gone=(b"lockedout",))


@pytest.mark.parametrize(
    "name",
    [".x", "~$a.docx", "a.part", "A.TMP", "b.crdownload", "c~", "_STATUS.txt", "_status.json"],
)
def test_names_on_their_way_and_our_own_are_skipped(name: str) -> None:
    assert scan.is_skipped(name.encode())


def test_walk_follows_no_link_out_and_no_circle(tmp_path: Path) -> None:
    inbox, outside = tmp_path / "inbox", tmp_path / "outside"
    inbox.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text("s")
    (inbox / "real.txt").write_text("r")
    (inbox / "sub").mkdir()
    (inbox / "sub" / "deep.txt").write_text("d")
    (inbox / "in.txt").symlink_to("real.txt")
    (inbox / "out.txt").symlink_to(outside / "secret.txt")
    (inbox / "outside").symlink_to(outside)
    (inbox / "sub" / "up").symlink_to(inbox)
    (inbox / "self").symlink_to("self")
    os.mkfifo(inbox / "pipe.txt")

    assert sorted(scan.take(bytes(inbox)).files) == [b"in.txt", b"real.txt", b"sub/deep.txt"]


@pytest.mark.parametrize("is_readable", [True, False])
def test_unreadable_file_is_tried_again_once_it_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_readable: bool
) -> None:
    # The tests may run as root, who may read everything; so the kernel's answer is given here.
    monkeypatch.setattr(os, "access", lambda path, mode: is_readable)
    failed = FileRow(b"a", "a", "", 1, 1, "failed", None, "file_unreadable", {}, 1)
    damaged = FileRow(b"b", "b", "", 1, 1, "failed", None, "damaged", {}, 1)
    shot = picture(a=(1, 1, 1), b=(1, 1, 2))

    assert scan.is_readable_again(failed, bytes(tmp_path), shot) is is_readable
    assert not scan.is_readable_again(damaged, bytes(tmp_path), shot)
    assert not scan.is_readable_again(failed, bytes(tmp_path), picture())
