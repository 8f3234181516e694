"""The bench on a tiny model, its baseline and the plan the next start follows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from appliance import daemon
from appliance.config import Config, EngineConfig, ModelsConfig
from appliance.errors import EXIT_FAILED
from appliance.ops import bench
from appliance.ops.bench import AnswerRow, Bench
from appliance.store import Store
from appliance.system.plan import Plan, read_plan
from tests.box import Box
from tests.tiny_gguf import write_tiny_llama


@pytest.fixture
def config(tmp_path: Path) -> Config:
    model = write_tiny_llama(tmp_path / "tiny.gguf", n_embd=256, n_ff=256)
    data = tmp_path / "box"
    data.mkdir()
    models = ModelsConfig(generation=str(model), embedding="none-here", directory=str(tmp_path))
    return Config(data=data, models=models, engine=EngineConfig(device="cpu"))


def made(**changes: object) -> Bench:
    row = AnswerRow("cpu", "as stored", 2, 1.0, 100.0, 10.0)
    found = Bench("2026-12-01", "0.1.0", "x, 2 cores", "m", (row,), 50.0, 1.0, 900.0, None)
    return replace(found, **changes)  # type: ignore[arg-type]


def test_bench_measures_stored_and_f16_weights_and_leaves_no_file(config: Config) -> None:
    folder = Path(config.models.generation).parent
    before = sorted(folder.iterdir())
    steps: list[str] = []

    found = bench.run(config, steps.append)

    assert {(row.device, row.weights) for row in found.answers} == {
        ("cpu", "as stored"),
        ("cpu", "F16"),
    }
    assert all(
        row.prefill_tok_s > 0 and row.decode_tok_s > 0 and row.kind == "measured"
        for row in found.answers
    )
    assert found.passages_per_s is None
    assert found.search_ms is None
    assert found.pages_per_s is not None
    assert found.plan is not None
    assert found.plan["device"] == "cpu"
    assert len(steps) > 3
    assert sorted(folder.iterdir()) == before


def test_update_that_made_the_box_slower_is_named() -> None:
    slow = replace(made().answers[0], decode_tok_s=8.0)
    found = made(answers=(slow,), passages_per_s=20.0)
    assert bench.slower_than(found, made().as_json()) == [
        ("cpu as stored decode_tok_s", 10.0, 8.0),
        ("passages_per_s", 50.0, 20.0),
    ]
    assert bench.slower_than(made(), made().as_json()) == []
    assert bench.slower_than(found, made(machine="another").as_json()) == []
    assert bench.slower_than(found, made(model="another").as_json()) == []


def test_baseline_survives_and_rubbish_is_none(config: Config) -> None:
    assert bench.read_baseline(config) is None
    bench.keep(config, made())
    assert bench.read_baseline(config) == json.loads(json.dumps(made().as_json()))
    (config.data / "bench.json").write_text("[1")
    assert bench.read_baseline(config) is None


@pytest.mark.parametrize(
    "plan", [None, {}, {"model": "m"}, {"model": "m", "device": "tpu", "n_threads": 2}, "x"]
)
def test_plan_that_makes_no_sense_is_none(tmp_path: Path, plan: object) -> None:
    (tmp_path / "bench.json").write_text(json.dumps({"plan": plan}))
    assert read_plan(tmp_path, "m") is None


def test_plan_of_another_model_is_none(tmp_path: Path) -> None:
    plan = {"model": "m", "device": "cpu", "n_threads": 3}
    (tmp_path / "bench.json").write_text(json.dumps({"plan": plan}))
    assert read_plan(tmp_path, "m") == Plan("m", "cpu", 3)
    assert read_plan(tmp_path, "other") is None


@pytest.mark.parametrize(
    ("device", "n_threads", "wanted"),
    [("auto", 0, ("cpu", 3)), ("cann", 0, ("cann", 3)), ("auto", 1, ("cpu", 1))],
)
def test_plan_decides_only_what_the_owner_left_open(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    n_threads: int,
    wanted: tuple[str, int],
) -> None:
    plan = {"model": config.models.generation, "device": "cpu", "n_threads": 3}
    (config.data / "bench.json").write_text(json.dumps({"plan": plan}))
    engine = EngineConfig(device=device, n_threads=n_threads)  # type: ignore[arg-type]
    given: dict[str, object] = {}
    monkeypatch.setattr(
        "appliance.engine.llama.LlamaEngine", lambda *_args, **kwargs: given.update(kwargs)
    )
    daemon.make_engine(replace(config, engine=engine))
    assert (given["device"], given["n_threads"]) == wanted


def test_bench_beside_a_running_daemon_is_refused(config: Config) -> None:
    box = Box(config.data)
    store = Store.open(config.database)
    try:
        refused = box.run("bench", "--json")
    finally:
        store.close()
    assert refused.returncode == EXIT_FAILED
    assert json.loads(refused.stdout)["error"]["code"] == "store_locked"
