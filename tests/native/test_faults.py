"""Faults on demand: the plugin reports them, the process lives, a later try works."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import Npu, Run

PROMPT = [5, 99, 17, 200, 3, 42, 8]
OUT_OF_MEMORY = 207001


def two_tries(model: Path) -> dict[str, Any]:
    """Load and answer, close, then all of it again in the same process."""
    once = [{"do": "load"}, {"do": "greedy", "tokens": PROMPT, "n": 4}, {"do": "close"}]
    return {"model": str(model), "actions": once + once}


def answered(answer: object) -> bool:
    return isinstance(answer, dict) and answer["status"] == 0 and len(answer["tokens"]) == 4


def assert_alive(run: Run) -> None:
    assert run.status == 0, run.stderr[-3000:]
    assert "acl-sim:" not in run.stderr, run.stderr[-3000:]


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_out_of_memory_at_any_allocation_is_an_error_and_not_a_crash(
    npu: Npu, tiny_models: dict[str, Path], persistent: bool
) -> None:
    job = two_tries(tiny_models["qwen2-f16"])
    good = npu.run(job).must_be_clean().answers
    n_failed = 0
    for nth in itertools.count(1):
        fault = {"call": "aclrtMalloc", "nth": nth, "persistent": persistent, "code": OUT_OF_MEMORY}
        run = npu.run(job, sim={"faults": [fault]})

        assert_alive(run)
        first, second = run.answers[1], run.answers[4]
        if answered(first) and answered(second):
            assert [first["tokens"], second["tokens"]] == [good[1]["tokens"], good[4]["tokens"]]
            if nth > 1 and n_failed:
                break
        else:
            n_failed += 1
            # One failed call spoils one try; the other one, before or after it, works.
            lived = answered(first) or answered(second)
            assert persistent or lived, f"aclrtMalloc {nth}: no recovery: {second}"
        assert nth < 60, "the fault never stopped biting"


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": "device_lost", "after_launches": 150},
        {"fault": "stream_timeout", "after_launches": 150},
        {"call": "aclrtSynchronizeStreamWithTimeout", "nth": 3, "code": 507046},
    ],
    ids=["device-lost", "stream-timeout", "sync-fails"],
)
def test_fault_in_mid_answer_fails_the_step_and_not_the_process(
    npu: Npu, tiny_models: dict[str, Path], fault: dict[str, Any]
) -> None:
    actions = [{"do": "load"}, {"do": "greedy", "tokens": PROMPT, "n": 30}, {"do": "close"}]
    job = {"model": str(tiny_models["qwen2-f16"]), "actions": actions}

    run = npu.run(job, sim={"faults": [fault]})

    assert_alive(run)
    answer = run.answers[1]
    assert answer["status"] != 0
    assert len(answer["tokens"]) < 30


def test_missing_toolkit_leaves_the_cpu(npu: Npu, tiny_models: dict[str, Path]) -> None:
    job = two_tries(tiny_models["qwen2-f16"])

    run = npu.run(job, environment={"ASCEND_TOOLKIT_HOME": "/nowhere"})

    assert run.status == 0, run.stderr[-3000:]
    assert answered(run.answers[1])
    assert not any(node.on.startswith("CANN") for graph in run.graphs() for node in graph.nodes)


@pytest.mark.slow
def test_four_threads_with_random_delays_give_one_answer(
    npu: Npu, tiny_models: dict[str, Path]
) -> None:
    threads, runs = 4, 5
    answers = set()
    for seed in (11, 12, 13):
        print(f"seed {seed}")
        job = {
            "model": str(tiny_models["qwen3-f16"]),
            "actions": [
                {"do": "load"},
                {"do": "threads", "threads": threads, "runs": runs, "tokens": PROMPT, "n": 6},
                {"do": "close"},
            ],
        }
        run = npu.run(job, sim={"seed": seed, "delay_us_max": 200}).must_be_clean()
        assert all(len(thread) == runs for thread in run.answers[1])
        answers |= {tuple(answer) for thread in run.answers[1] for answer in thread}
    assert len(answers) == 1
