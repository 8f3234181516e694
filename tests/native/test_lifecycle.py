"""Init once, reset and finalize once, on every way out of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.conftest import Npu, calls

PROMPT = [5, 99, 17]


def test_model_that_does_not_fit_fails_at_load_and_a_smaller_one_then_loads(
    npu: Npu, tiny_models: dict[str, Path]
) -> None:
    big = {"do": "load", "n_ctx": 4_000_000}  # its KV cache alone is larger than the chip's memory
    small = {"do": "load"}
    greedy = {"do": "greedy", "tokens": PROMPT, "n": 3}
    job = {"model": str(tiny_models["qwen2-f16"]), "actions": [big, small, greedy, {"do": "close"}]}

    run = npu.run(job, sim={"memory_mb": 512, "used_mb": 128}).must_be_clean()

    assert run.answers[0] != "loaded"
    assert run.answers[1] == "loaded"
    assert len(run.answers[2]["tokens"]) == 3


def test_failed_load_still_resets_and_finalizes_once(npu: Npu, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 64)

    run = npu.run({"model": str(broken), "actions": [{"do": "load"}]}, trace=True).must_be_clean()

    count = calls(run.trace())
    assert count["aclInit"] == count["aclFinalize"]
    assert count["aclrtSetDevice"] == 0 or count["aclrtResetDevice"] == 1


def test_exception_in_python_leaves_no_leak(npu: Npu, tiny_models: dict[str, Path]) -> None:
    actions = [{"do": "load"}, {"do": "greedy", "tokens": PROMPT, "n": 2}, {"do": "nonsense"}]

    run = npu.run({"model": str(tiny_models["qwen2-f16"]), "actions": actions}, trace=True)

    assert run.status == 1
    assert "unknown verb" in run.stderr
    assert "acl-sim:" not in run.stderr
    count = calls(run.trace())
    assert count["aclrtMalloc"] == count["aclrtFree"]
    assert (count["aclInit"], count["aclFinalize"], count["aclrtResetDevice"]) == (1, 1, 1)


def test_forked_child_cannot_use_the_device_and_leaves_it_to_its_parent(
    npu: Npu, tiny_models: dict[str, Path]
) -> None:
    greedy = {"do": "greedy", "tokens": PROMPT, "n": 6}
    actions = [
        {"do": "load"},
        greedy,
        {"do": "fork", "tokens": PROMPT},
        greedy,
        {"do": "close"},
    ]
    job = {"model": str(tiny_models["qwen2-f16"]), "actions": actions, "threads": 1}

    run = npu.run(job, trace=True).must_be_clean()

    assert run.answers[2]["status"] != 0
    assert run.answers[3]["tokens"] == run.answers[1]["tokens"]
    count = calls(run.trace())
    assert (count["aclInit"], count["aclFinalize"], count["aclrtResetDevice"]) == (1, 1, 1)


@pytest.mark.parametrize("chip", ["310B4", "310B1"])
@pytest.mark.parametrize("run_mode", ["unified", "separate"])
def test_both_chips_and_both_memory_forms_answer_alike(
    npu: Npu, tiny_models: dict[str, Path], chip: str, run_mode: str
) -> None:
    actions = [{"do": "load"}, {"do": "greedy", "tokens": PROMPT, "n": 6}, {"do": "close"}]
    job = {"model": str(tiny_models["gemma3-f16"]), "actions": actions}

    run = npu.run(job, sim={"chip": chip, "run_mode": run_mode}).must_be_clean()

    assert run.answers[1]["tokens"] == npu.run(job).must_be_clean().answers[1]["tokens"]
