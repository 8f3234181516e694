"""What the simulator's trace says about memory, copies, waits and launches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import Npu, Run, calls
from tests.native.gguf_models import QWEN25_3B, TINY, tensors, write_hollow

PROMPT = [5, 99, 17, 200, 3, 42, 8]
MAX_MALLOCS_3B = 12
SYNCS = ("aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout", "aclrtSynchronizeDevice")
H2D, D2H = "H2D", "D2H"
COMPUTE = re.compile(r"CANN0 compute buffer size (?:=|is) +([0-9.]+) MiB")


def generate(npu: Npu, model: Path, n: int, **sim: object) -> Run:
    """Action 1 prefills and decodes once (warm-up), 2 decodes ``n`` tokens, 3 closes."""
    actions = [
        {"do": "load"},
        {"do": "greedy", "tokens": PROMPT, "n": 2},
        {"do": "greedy", "tokens": PROMPT, "n": n},
        {"do": "close"},
    ]
    return npu.run({"model": str(model), "actions": actions}, sim=sim, trace=True)


def copies(trace: list[dict[str, Any]], direction: str) -> list[int]:
    """Return the sizes of all copies in one direction, in order."""
    return [int(entry["bytes"]) for entry in trace if entry.get("direction") == direction]


def last_steps(run: Run, action: int, n: int) -> list[list[dict[str, Any]]]:
    """Cut the last ``n`` decode steps out of an action: each ends with the copy of its logits."""
    steps: list[list[dict[str, Any]]] = [[]]
    for entry in run.phase(action):
        steps[-1].append(entry)
        if entry.get("direction") == D2H:
            steps.append([])
    return steps[:-1][-n:]


@pytest.mark.parametrize("arch", sorted(TINY))
def test_decoded_token_copies_inputs_in_and_logits_out_and_waits_once(
    npu: Npu, tiny_models: dict[str, Path], arch: str
) -> None:
    shape = TINY[arch]

    run = generate(npu, tiny_models[f"{arch}-f16"], 6).must_be_clean()

    for step in last_steps(run, 2, 4):
        assert copies(step, D2H) == [shape.n_vocab * 4]
        # token's embedding, position, rows of K and V, mask (these three again for a sliding
        # window) and the frequencies of the rotary tables (Gemma has two).
        assert 3 <= len(copies(step, H2D)) <= 10
        assert sum(copies(step, H2D)) < 64 * 1024
        assert sum(calls(step)[name] for name in SYNCS) <= 1


def test_mallocs_and_frees_balance_and_nothing_leaks(
    npu: Npu, tiny_models: dict[str, Path]
) -> None:
    run = generate(npu, tiny_models["qwen2-f16"], 4).must_be_clean()

    count = calls(run.trace())
    assert count["aclrtMalloc"] > 0
    assert count["aclrtMalloc"] == count["aclrtFree"]
    assert count["aclrtCreateStream"] == count["aclrtDestroyStream"]
    for kind in ("Tensor", "Scalar", "IntArray"):
        assert count[f"aclCreate{kind}"] == count[f"aclDestroy{kind}"]
    assert (count["aclInit"], count["aclFinalize"]) == (1, 1)
    assert count["aclrtResetDevice"] == 1


def test_no_allocation_while_decoding(npu: Npu, tiny_models: dict[str, Path]) -> None:
    run = generate(npu, tiny_models["qwen3-f16"], 8).must_be_clean()

    count = calls(run.phase(2))
    assert count["aclrtMalloc"] == 0
    assert count["aclrtFree"] == 0


@pytest.mark.slow
def test_model_of_3b_shape_loads_with_few_allocations(npu: Npu, tmp_path: Path) -> None:
    model = write_hollow(tmp_path / "3b.gguf", QWEN25_3B)
    actions = [
        {"do": "load"},
        {"do": "call", "function": "ggml_backend_cann_memory_json"},
        {"do": "close"},
    ]

    run = npu.run(
        {"model": str(model), "n_ctx": 1024, "actions": actions},
        trace=True,
        environment={"GGML_CANN310B_LAYOUT": "nd"},
    ).must_be_clean()

    mallocs = [e for e in run.phase(0) if e.get("call") == "aclrtMalloc" and e.get("rc") == 0]
    print(f"3B-shaped model: {len(mallocs)} aclrtMalloc calls")
    assert 0 < len(mallocs) <= MAX_MALLOCS_3B
    assert calls(run.trace())["aclrtMalloc"] == calls(run.trace())["aclrtFree"]
    report = json.loads(run.answers[1])
    # F16 matrices, F32 vectors; FP16 keys and values; what ggml asked for to compute.
    vectors = sum(size[0] for _, size in tensors(QWEN25_3B) if len(size) == 1)
    weights = 2 * QWEN25_3B.n_weights + 4 * vectors
    kv = 2 * 2 * 1024 * QWEN25_3B.n_layer * QWEN25_3B.n_kv * QWEN25_3B.head_dim
    compute = max(float(mib) for mib in COMPUTE.findall(run.log)) * 2**20
    need = weights + kv + compute
    print(f"peak {report['peak']} bytes, arithmetic need {need:.0f}")
    assert report["peak"] <= 1.03 * need
