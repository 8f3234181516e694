"""``appliance models`` on a folder of its own; pulling itself is tested in tests/models."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import run_command
from appliance.errors import DownloadError
from appliance.models import ModelStore, Progress
from tests.tiny_gguf import write_tiny_llama

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("APPLIANCE_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf", n_embd=32, n_layer=1)


def run(tmp_path: Path, *argv: str) -> int:
    return run_command(["models", *argv, "--data", str(tmp_path / "box")], {"LANG": "C"})


def printed(tmp_path: Path, capsys: Capture, *argv: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(tmp_path, *argv, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_import_list_verify_remove(
    tmp_path: Path, gguf: Path, folder: Path, capsys: Capture
) -> None:
    imported = printed(tmp_path, capsys, "import", str(gguf), "--name", "mine")
    listed = printed(tmp_path, capsys, "list")
    verified = printed(tmp_path, capsys, "verify")
    removed = printed(tmp_path, capsys, "remove", "mine")

    assert imported["path"] == str(folder / "mine.gguf")
    assert listed["folder"] == str(folder)
    assert [m["name"] for m in listed["models"] if m["path"]] == ["mine"]
    assert verified["models"] == [{"name": "mine", "sha256": imported["sha256"]}]
    assert removed == {"removed": ["mine"]}
    assert not (folder / "mine.gguf").exists()


def test_list_says_what_is_here_in_both_languages(
    tmp_path: Path, gguf: Path, capsys: Capture
) -> None:
    run(tmp_path, "import", str(gguf), "--name", "mine")
    capsys.readouterr()

    run(tmp_path, "list")
    english = capsys.readouterr().out
    run(tmp_path, "list", "--lang", "zh")
    chinese = capsys.readouterr().out

    assert any(line.startswith("mine ") and " here " in line for line in english.splitlines())
    assert "can be pulled" in english
    assert "已安装" in chinese
    assert "入门模型" in chinese


def test_damaged_model_is_refused_with_what_to_do(
    tmp_path: Path, gguf: Path, folder: Path, capsys: Capture
) -> None:
    run(tmp_path, "import", str(gguf), "--name", "mine")
    content = bytearray((folder / "mine.gguf").read_bytes())
    content[-1] ^= 1
    (folder / "mine.gguf").write_bytes(content)
    capsys.readouterr()

    assert run(tmp_path, "verify", "mine") == 1
    err = capsys.readouterr().err
    assert "SHA-256" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["pull", "no-such-model"], 1, "appliance models import FILE"),
        (["pull"], 2, "--starter"),
        (["remove", "qwen2.5-coder-0.5b-instruct"], 1, "appliance models pull"),
        (["import", "/nowhere/x.gguf"], 1, "/nowhere/x.gguf"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistake_is_one_sentence_with_the_next_step(
    tmp_path: Path, capsys: Capture, argv: list[str], status: int, said: str
) -> None:
    assert run(tmp_path, *argv) == status
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_ctrl_c_stops_a_pull_and_says_that_it_goes_on_later(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(
        _store: ModelStore,
        name: str,
        progress: Callable[[Progress], None],
        cancel: threading.Event,
        **_only: object,
    ) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        while not cancel.is_set():
            progress(Progress(name, "hub", 10, 100))
        raise DownloadError("download_cancelled", model=name)

    monkeypatch.setattr(ModelStore, "pull", endless)
    handler = signal.getsignal(signal.SIGINT)

    status = run(tmp_path, "pull", "qwen2.5-coder-0.5b-instruct")

    assert status == 1
    assert "run the command again to go on" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is handler
