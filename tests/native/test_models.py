"""Whole models through stock llama_cpp: on the device from end to end, and right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.conftest import F16_CACHE, Npu, Run, agreement
from tests.native.gguf_models import TINY, dequantised
from tests.native.texts import MIXED, SENTENCES
from tests.starters import E5, QWEN, SMOLLM, starter

PROMPT = [5, 99, 17, 200, 3, 42, 8, 131, 77, 250, 12, 64, 31, 9, 180, 55, 2, 101, 33]
# Reads of the token table by token number; the only work that may stay with the CPU, because stock
# llama.cpp keeps the table in host memory.
INPUT_LOOKUP = {"GET_ROWS"}


def assert_stays_on_device(run: Run, n_lookups: int = 1) -> None:
    """Every node of every graph runs on the plugin, but the look-ups in the input embeddings."""
    graphs = run.graphs()
    # llama.cpp first tries flash attention, sees that the chip has none, and plans anew.
    tries = [i for i, graph in enumerate(graphs) if any("FLASH" in n.op for n in graph.nodes)]
    graphs = graphs[tries[-1] + 1 if tries else 0 :]
    assert graphs, "the scheduler printed no graph"
    for graph in graphs:
        elsewhere = [node for node in graph.off_device() if node.op not in INPUT_LOOKUP]
        assert elsewhere == []
        assert sum(split.startswith("CANN") for split in graph.splits) == 1, graph.splits
        assert len(graph.off_device()) <= n_lookups


def forced_job(model: Path, **action: object) -> dict[str, Any]:
    return {
        "model": str(model),
        "actions": [{"do": "load"}, {"do": "forced", **action}, {"do": "close"}],
    }


@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
@pytest.mark.parametrize("arch", sorted(TINY))
@pytest.mark.parametrize("chunk", [1, 7, 19], ids=["decode", "small-batch", "prefill"])
def test_tiny_model_agrees_with_cpu(
    npu: Npu, tiny_models: dict[str, Path], arch: str, dtype: str, chunk: int
) -> None:
    job = forced_job(tiny_models[f"{arch}-{dtype}"], tokens=PROMPT, chunk=chunk)

    on_npu = npu.run(job).must_be_clean()
    on_cpu = npu.run({**job, "threads": 1}, plugin=False).must_be_clean()

    assert_stays_on_device(on_npu)
    top1, kl = agreement(on_npu.array(1), on_cpu.array(1))
    # Random weights have flat tops, so a tie may fall either way; the divergence must not.
    assert kl <= 0.005
    assert top1 >= 0.94


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("file", [QWEN, SMOLLM])
def test_starter_model_agrees_with_cpu_over_256_positions(npu: Npu, file: str) -> None:
    quantised, reference = starter(file), dequantised(starter(file), F16_CACHE)
    action = {"text": MIXED, "n": 256, "chunk": 256}

    on_npu = npu.run(forced_job(quantised, **action)).must_be_clean()
    on_cpu = npu.run({**forced_job(reference, **action), "flash_attn": 0}, plugin=False)

    assert on_npu.array(1).shape[0] == 256
    assert_stays_on_device(on_npu)
    top1, kl = agreement(on_npu.array(1), on_cpu.must_be_clean().array(1))
    print(f"{file}: top-1 {top1:.4f}, mean KL {kl:.6f} nats over 256 positions")
    assert top1 >= 0.98
    assert kl <= 0.005


@pytest.mark.model
@pytest.mark.slow
def test_starter_model_decodes_like_it_prefills(npu: Npu) -> None:
    tokens_at_once = forced_job(starter(SMOLLM), text=MIXED, n=48, chunk=48)
    one_by_one = forced_job(starter(SMOLLM), text=MIXED, n=48, chunk=1)

    prefilled = npu.run(tokens_at_once).must_be_clean().array(1)
    decoded = npu.run(one_by_one).must_be_clean().array(1)

    top1, kl = agreement(decoded, prefilled)
    assert top1 >= 0.95
    assert kl <= 0.005


@pytest.mark.model
@pytest.mark.slow
def test_embedder_agrees_with_cpu(npu: Npu) -> None:
    actions = [{"do": "load"}, {"do": "embed", "texts": SENTENCES}, {"do": "close"}]
    quantised = {"model": str(starter(E5)), "embeddings": True, "actions": actions}
    reference = {**quantised, "model": str(dequantised(starter(E5), F16_CACHE)), "flash_attn": 0}

    on_npu = npu.run(quantised).must_be_clean()
    on_cpu = npu.run(reference, plugin=False).must_be_clean()

    assert_stays_on_device(on_npu, n_lookups=2)  # tokens and token types
    cosines = np.sum(on_npu.array(1) * on_cpu.array(1), axis=1)
    print(f"e5-small: cosine {cosines.min():.6f} at worst over {len(cosines)} sentences")
    assert cosines.min() >= 0.999
