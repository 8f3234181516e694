"""Backups: whole or not there, checked, restored elsewhere; nothing is ever lost on the way."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from appliance.config import Config
from appliance.errors import BackupError, SchemaTooNewError, StoreCorruptError, StoreError
from appliance.ops import backup
from appliance.store import Store
from tests.box import Box


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A data folder with a store, settings and two documents, one of them named in GBK bytes."""
    found = Config(data=tmp_path / "box")
    (found.inbox_dir / "school").mkdir(parents=True)
    (found.inbox_dir / "school" / "faq.txt").write_text("图书馆五点关门。\n", encoding="utf-8")
    (Path(os.fsdecode(os.fsencode(found.inbox_dir) + "/手册.txt".encode("gbk")))).write_text("x")
    (found.data / "appliance.yaml").write_text("http: {port: 0}\n")
    store = Store.open(found.database)
    store.add_turn(store.create_conversation("test"), "几点关门？", {"text": "五点。"})
    store.close()
    return found


def turns(path: Path) -> list[str]:
    with sqlite3.connect(path) as db:
        found = [row[0] for row in db.execute("SELECT question FROM turns")]
    db.close()
    return found


def test_backup_comes_back_on_another_board(config: Config, tmp_path: Path) -> None:
    path, manifest, removed = backup.create(config, tmp_path / "stick")
    assert (manifest.n_files, removed) == (2, [])
    other = Config(data=tmp_path / "other")
    restored, old = backup.restore(path, other)
    assert (restored, old) == (manifest, None)
    assert turns(other.database) == ["几点关门？"]
    assert (other.data / "appliance.yaml").read_text() == "http: {port: 0}\n"
    for original in config.inbox_dir.rglob("*"):
        if original.is_file():
            copy = other.inbox_dir / original.relative_to(config.inbox_dir)
            assert copy.read_bytes() == original.read_bytes()
            assert abs(copy.stat().st_mtime - original.stat().st_mtime) < 0.001


def test_backup_is_taken_while_the_store_is_written(config: Config, tmp_path: Path) -> None:
    store = Store.open(config.database)
    conversation = store.create_conversation("busy")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.add_turn(conversation, "question", {"text": "x" * 2000})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            path, _, _ = backup.create(config, tmp_path / "stick")
            backup.verify(path)
    finally:
        stop.set()
        writer.join()
        store.close()
    other = Config(data=tmp_path / "other")
    backup.restore(path, other)
    with sqlite3.connect(other.database) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()


def test_old_backups_make_room(config: Config, tmp_path: Path) -> None:
    made = [backup.create(config, tmp_path, keep=2)[0] for _ in range(4)]
    assert backup.list_backups(tmp_path) == [made[3], made[2]]


def test_restoring_moves_the_old_content_aside(config: Config, tmp_path: Path) -> None:
    path, _, _ = backup.create(config, tmp_path / "stick")
    store = Store.open(config.database)
    store.add_turn(store.create_conversation("later"), "later", {"text": ""})
    store.close()
    (config.inbox_dir / "new.txt").write_text("new")
    with pytest.raises(BackupError) as refused:
        backup.restore(path, config)
    assert refused.value.code == "backup_would_replace"
    assert "later" in turns(config.database)
    _, old = backup.restore(path, config, replace=True)
    assert old is not None
    assert turns(config.database) == ["几点关门？"]
    assert "later" in turns(old / "appliance.db")
    assert (old / "inbox" / "new.txt").read_text() == "new"
    assert not (config.inbox_dir / "new.txt").exists()


def test_restoring_under_a_running_daemon_is_refused(config: Config, tmp_path: Path) -> None:
    path, _, _ = backup.create(config, tmp_path / "stick")
    store = Store.open(config.database)
    try:
        with pytest.raises(StoreError) as refused:
            backup.restore(path, config, replace=True)
    finally:
        store.close()
    assert refused.value.code == "store_locked"


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_spoilt_byte_is_noticed_and_changes_nothing(
    config: Config, tmp_path: Path, where: float
) -> None:
    path, _, _ = backup.create(config, tmp_path / "stick")
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        entry = archive.getmember("appliance.db")
    content[entry.offset_data + int(entry.size * where)] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(BackupError) as refused:
        backup.verify(path)
    assert refused.value.code == "backup_damaged"
    other = Config(data=tmp_path / "other")
    with pytest.raises(BackupError):
        backup.restore(path, other)
    assert not other.database.exists()
    assert list(other.data.glob("*restore*")) == []


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9])
def test_stick_pulled_out_too_early_is_noticed(config: Config, tmp_path: Path, kept: float) -> None:
    path, _, _ = backup.create(config, tmp_path / "stick")
    with tarfile.open(path) as archive:
        end = archive.getmember("manifest.json").offset_data
    path.write_bytes(path.read_bytes()[: int(end * kept)])
    with pytest.raises(BackupError) as refused:
        backup.verify(path)
    assert refused.value.code == "backup_damaged"


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "inbox/../../evil", "other.txt"])
def test_archive_that_reaches_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(BackupError) as refused:
        backup.restore(path, Config(data=tmp_path / "a" / "b"))
    assert refused.value.code == "backup_damaged"
    assert not (tmp_path / "a" / "evil").exists()


def test_store_of_a_newer_version_is_refused_not_damaged(config: Config, tmp_path: Path) -> None:
    with sqlite3.connect(config.database) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    with pytest.raises(SchemaTooNewError):
        backup.create(config, tmp_path / "stick")
    assert backup.list_backups(tmp_path / "stick") == []


def test_damaged_store_is_not_saved_as_a_good_one(config: Config, tmp_path: Path) -> None:
    content = bytearray(config.database.read_bytes())
    content[4096:12288] = bytes(8192)
    config.database.write_bytes(content)
    with pytest.raises((StoreCorruptError, StoreError)):
        backup.create(config, tmp_path / "stick")
    assert list((tmp_path / "stick").iterdir()) == []


def test_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(BackupError) as refused:
        backup.create(Config(data=tmp_path / "none"), tmp_path)
    assert refused.value.code == "backup_nothing"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_stick_is_told_and_left_clean(config: Config, tmp_path: Path) -> None:
    stick = tmp_path / "stick"
    stick.mkdir()
    (config.inbox_dir / "big.txt").write_bytes(bytes(3 << 20))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(stick)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        with pytest.raises(BackupError) as refused:
            backup.create(config, stick)
        assert refused.value.code == "backup_no_space"
        assert list(stick.iterdir()) == []
    finally:
        subprocess.run(["umount", str(stick)], check=True)


def test_commands(config: Config, tmp_path: Path) -> None:
    box = Box(config.data)
    made = box.json("backup", "create", "--to", str(tmp_path / "stick"))
    listed = box.json("backup", "list", "--from", str(tmp_path / "stick"))
    assert [row["path"] for row in listed["backups"]] == [made["path"]]
    assert box.json("backup", "verify", made["path"])["n_files"] == 2
    refused = box.run("backup", "restore", made["path"])
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    done = box.json("backup", "restore", "--replace", made["path"])
    assert Path(done["old"]).is_dir()
    missing = box.run("backup", "verify", str(tmp_path / "none.tar"), "--json")
    assert json.loads(missing.stdout)["error"]["code"] == "backup_not_found"
