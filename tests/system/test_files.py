from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from appliance.system import files


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_whole_replaces_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "状态.json"
    path.write_bytes(b"old")

    files.write_whole(path, b"new")

    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == ["状态.json"]


def test_write_whole_that_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def no_space(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        files.write_whole(path, b"new")

    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.json"]


def test_new_file_is_invisible_until_committed(tmp_path: Path) -> None:
    with files.new_file_beside(tmp_path / "a.txt") as new:
        new.write(b"part")
        seen = names_in(tmp_path)
        path = new.commit()

    assert len(seen) == 1
    assert seen[0].startswith(".")
    assert seen[0].endswith(".part")
    assert path == tmp_path / "a.txt"
    assert names_in(tmp_path) == ["a.txt"]


def test_new_file_not_committed_leaves_nothing(tmp_path: Path) -> None:
    with files.new_file_beside(tmp_path / "a.txt") as new:
        new.write(b"part")

    assert names_in(tmp_path) == []


def test_new_files_of_one_name_each_get_a_name(tmp_path: Path) -> None:
    names: list[str] = []

    def upload(content: bytes) -> None:
        with files.new_file_beside(tmp_path / "教案.tar.gz") as new:
            new.write(content)
            names.append(new.commit().name)

    threads = [threading.Thread(target=upload, args=(bytes([n]),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    expected = {"教案.tar.gz"} | {f"教案.tar ({n}).gz" for n in range(2, 9)}
    assert set(names) == expected == set(names_in(tmp_path))
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {bytes([n]) for n in range(8)}


def test_new_file_without_hard_links_still_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(_source: object, _target: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    (tmp_path / "a.txt").write_bytes(b"first")

    with files.new_file_beside(tmp_path / "a.txt") as new:
        new.write(b"second")
        path = new.commit()

    assert path.name == "a (2).txt"
    assert path.read_bytes() == b"second"
    assert (tmp_path / "a.txt").read_bytes() == b"first"
