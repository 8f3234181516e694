"""Fused operators: asked for once at the start, used only where the board has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.models.e5 import repack
from tests.native.conftest import Npu, Run, agreement, calls
from tests.tiny_e5 import write_e5s1

PROMPT = [5, 99, 17, 200, 3, 42, 8]
ALL = ["aclnnRmsNorm", "aclnnLayerNorm", "aclnnSwiGlu", "aclnnGeGluV3"]


def run_model(npu: Npu, model: Path, accepts: list[str], chunk: int = 1) -> Run:
    actions = [
        {"do": "load"},
        {"do": "forced", "tokens": PROMPT, "chunk": chunk},
        {"do": "call", "function": "ggml_backend_cann_memory_json"},
        {"do": "forced", "tokens": PROMPT, "chunk": chunk},
        {"do": "close"},
    ]
    job = {"model": str(model), "actions": actions}
    return npu.run(job, sim={"accepts": accepts}, trace=True).must_be_clean()


def launches(trace: list[dict[str, Any]]) -> dict[str, int]:
    return dict(calls([entry for entry in trace if "op" in entry and "predicted_us" in entry]))


def test_refused_ones_are_asked_for_once_and_never_launched(
    npu: Npu, tiny_models: dict[str, Path]
) -> None:
    run = run_model(npu, tiny_models["qwen2-f16"], [])

    made = calls(run.trace())
    assert json.loads(run.answers[2])["fused"] == []
    for name in ALL:
        assert made[f"{name}GetWorkspaceSize"] == 1, name
        assert made[name] == 0, name


@pytest.mark.parametrize(
    ("arch", "accepts", "n_in_decode"),
    [
        # a norm before attention, one before the gate, in 3 layers, and one at the end
        ("qwen2", "aclnnRmsNorm", 2 * 3 + 1),
        ("qwen2", "aclnnSwiGlu", 3),
        ("llama", "aclnnSwiGlu", 3),
        ("qwen3", "aclnnRmsNorm", 2 * 3 + 1),
        ("gemma3", "aclnnGeGluV3", 7),
    ],
)
def test_accepted_one_is_used_and_gives_the_same_answers(
    npu: Npu, tiny_models: dict[str, Path], arch: str, accepts: str, n_in_decode: int
) -> None:
    model = tiny_models[f"{arch}-f16"]

    composed, fused = run_model(npu, model, []), run_model(npu, model, [accepts])

    assert json.loads(fused.answers[2])["fused"] == [accepts]
    # Action 3 is the second time through, when everything is in its place.
    assert launches(fused.phase(3))[accepts] >= n_in_decode * len(PROMPT)
    assert sum(launches(fused.phase(3)).values()) < sum(launches(composed.phase(3)).values())
    top1, kl = agreement(fused.array(1), composed.array(1))
    assert kl <= 0.005
    assert top1 >= 0.85  # 7 positions of a random model: one tie may fall the other way


@pytest.mark.parametrize("chunk", [1, 7], ids=["decode", "prefill"])
def test_all_of_them_together_agree_with_the_cpu(
    npu: Npu, tiny_models: dict[str, Path], chunk: int
) -> None:
    model = tiny_models["qwen3-f16"]
    job = {"model": str(model), "threads": 1}
    actions = [
        {"do": "load"},
        {"do": "forced", "tokens": PROMPT, "chunk": chunk},
        {"do": "close"},
    ]

    fused = run_model(npu, model, ALL, chunk)
    on_cpu = npu.run({**job, "actions": actions}, plugin=False).must_be_clean()

    top1, kl = agreement(fused.array(1), on_cpu.array(1))
    assert kl <= 0.005
    assert top1 >= 0.85


def test_layer_norm_of_an_embedder_is_used_and_gives_the_same_vectors(
    npu: Npu, tmp_path: Path
) -> None:
    model = tmp_path / "e5.gguf"
    repack(write_e5s1(tmp_path / "e5.bin"), model)
    actions = [{"do": "load"}, {"do": "embed", "texts": ["query: 8GB", "passage: 内存"]}]
    job = {"model": str(model), "embeddings": True, "n_ctx": 128, "n_batch": 128}

    runs = [
        npu.run({**job, "actions": actions}, sim={"accepts": accepts}, trace=True).must_be_clean()
        for accepts in ([], ["aclnnLayerNorm"])
    ]

    assert launches(runs[0].phase(1)).get("aclnnLayerNorm", 0) == 0
    # The embeddings' norm and two in each of 2 layers, for each of the two texts.
    assert launches(runs[1].phase(1))["aclnnLayerNorm"] == (1 + 2 * 2) * 2
    assert np.sum(runs[0].array(1) * runs[1].array(1), axis=1).min() >= 0.9999
