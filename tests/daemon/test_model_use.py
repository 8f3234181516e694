"""``appliance models use`` against a box with real llama.cpp models."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import gguf
import pytest

from appliance import config as configuration
from appliance import daemon
from appliance.cli import run_command
from appliance.client import Client, RemoteError
from appliance.core import switch
from appliance.models import ModelStore
from appliance.system.clock import Clock
from appliance.system.gguf import inspect
from appliance.system.memory import MachineMemory
from tests.tiny_gguf import write_tiny_llama

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder whose box answers with ``first``; ``second`` and ``vectors`` are here too."""
    monkeypatch.setenv("APPLIANCE_MODELS", str(tmp_path / "models"))
    store = ModelStore(tmp_path / "models")
    for seed, name in enumerate(("first", "second")):
        store.import_file(write_tiny_llama(tmp_path / f"{name}.gguf", seed=seed), name)
    mean = gguf.PoolingType.MEAN
    store.import_file(write_tiny_llama(tmp_path / "vectors.gguf", pooling=mean), "vectors")
    folder = tmp_path / "box"
    folder.mkdir()
    write_config(folder, "first")
    return folder


def write_config(data: Path, model: str) -> None:
    lines = (
        f"models: {{generation: {model}, embedding: vectors}}",
        "engine: {n_ctx: 512, n_slots: 2, device: cpu}",
        "http: {port: 0}",
    )
    (data / "appliance.yaml").write_text("\n".join((*lines, "")), encoding="utf-8")


class Running:
    """A box of this process on a data folder."""

    def __init__(self, data: Path) -> None:
        self.context = daemon.open_box(configuration.load(data), Clock(), daemon.make_engine)
        self.data = data

    def __enter__(self) -> Client:
        box = self.context.__enter__()
        daemon.announce(box)
        client = Client(box.http.url)
        deadline = time.monotonic() + 30
        while client.get("/api/status")["models"]["generation"]["state"] == "loading":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return client

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401
        self.context.__exit__(*error)
        (self.data / "run" / "daemon.json").unlink(missing_ok=True)


def use(data: Path, name: str, *more: str) -> int:
    return run_command(["models", "use", name, "--data", str(data), *more], {"LANG": "C"})


def model_of(client: Client) -> tuple[str, str]:
    said = client.get("/api/status")["models"]["generation"]
    return said["name"], said["state"]


def test_use_changes_the_model_and_outlives_a_restart(data: Path, capsys: Capture) -> None:
    with Running(data) as client:
        assert model_of(client) == ("first", "ready")
        assert use(data, "second", "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"model": "second", "is_running": True}
        assert model_of(client) == ("second", "ready")
        names = [model["id"] for model in client.get("/v1/models")["data"]]
        assert "second" in names
        assert "first" not in names
        body = {"model": "second", "messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
        assert client.post("/v1/chat/completions", body)["usage"]["completion_tokens"] == 4
        with pytest.raises(RemoteError, match="404"):
            client.post("/v1/chat/completions", {**body, "model": "first"})

    text = (data / "appliance.yaml").read_text(encoding="utf-8")
    assert "generation: first" in text
    with Running(data) as client:
        assert model_of(client) == ("second", "ready")


def test_choice_ends_when_the_file_names_another_model(data: Path) -> None:
    assert use(data, "second") == 0
    assert configuration.load(data).models.generation == "second"

    write_config(data, "vectors")

    assert configuration.load(data).models.generation == "vectors"


def test_choice_that_cannot_be_read_is_not_used(data: Path) -> None:
    (data / configuration.CHOICE_NAME).write_bytes(b'{"generation": "sec')
    assert configuration.load(data).models.generation == "first"


def test_box_that_does_not_run_takes_the_choice_at_its_start(data: Path, capsys: Capture) -> None:
    assert use(data, "second") == 0
    assert "next start" in capsys.readouterr().out
    with Running(data) as client:
        assert model_of(client) == ("second", "ready")


def test_model_that_cannot_be_used_changes_nothing(data: Path, capsys: Capture) -> None:
    cut = data / "cut.gguf"
    whole = write_tiny_llama(data / "whole.gguf", seed=5).read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    with Running(data) as client:
        for name, words in (
            ("absent", "absent"),
            ("vectors", "makes vectors"),
            (str(cut), "cut.gguf"),
            (str(data / "nowhere.gguf"), "nowhere.gguf"),
        ):
            assert use(data, name) != 0
            assert words in capsys.readouterr().err
            assert model_of(client) == ("first", "ready")
    assert configuration.load(data).models.generation == "first"


def test_model_that_fails_while_loading_is_told_and_not_kept(data: Path, capsys: Capture) -> None:
    # Its header is whole, so only llama.cpp finds that a tensor is missing.
    broken = write_tiny_llama(data / "broken.gguf", seed=5)
    broken.write_bytes(broken.read_bytes().replace(b"blk.1.ffn_up", b"blk.1.ffn_xx"))
    with Running(data) as client:
        assert use(data, str(broken)) == 1
        assert "broken.gguf" in capsys.readouterr().err
        assert model_of(client) == ("first", "ready")
        said = client.get("/api/models")
        assert said["current"] == "first"
        assert said["change"]["error"]["message"]
    assert configuration.load(data).models.generation == "first"


def test_model_that_needs_more_memory_than_there_is(
    data: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "machine_memory", lambda: MachineMemory(2**30, 2**20))
    with Running(data) as client:
        assert use(data, "second") == 1
        assert "MiB" in capsys.readouterr().err
        assert model_of(client) == ("first", "ready")


def test_models_route_lists_what_is_here(data: Path) -> None:
    with Running(data) as client:
        said = client.get("/api/models")
    here = {model["name"]: model["use"] for model in said["models"] if model["is_here"]}
    assert here == {"first": "generation", "second": "generation", "vectors": "embedding"}
    assert said["current"] == "first"
    assert not said["change"]["is_running"]


def test_server_that_answers_decides_its_model_itself(data: Path, capsys: Capture) -> None:
    text = (data / "appliance.yaml").read_text(encoding="utf-8")
    text = text.replace("device: cpu", "device: cpu, kind: openai")
    text += "remote: {url: 'http://127.0.0.1:9', model: other}\n"
    (data / "appliance.yaml").write_text(text, encoding="utf-8")
    with Running(data):
        assert use(data, "second") == 1
    assert "server" in capsys.readouterr().err


def test_keys_and_values_are_counted_as_llama_cpp_does(data: Path) -> None:
    text = (data / "appliance.yaml").read_text(encoding="utf-8")
    # The embedder's would be counted with them.
    (data / "appliance.yaml").write_text(text.replace("vectors", "absent"), encoding="utf-8")
    with Running(data) as client:
        kv = client.get("/api/status")["memory"]["kv"]
    header = inspect(ModelStore(data.parent / "models").path("first"))
    assert switch.kv_bytes(header, n_ctx=512, n_slots=2) == kv > 0
