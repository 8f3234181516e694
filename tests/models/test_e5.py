"""The repack on a small random file of the same format, so that it runs without the real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from appliance.engine.base import Priority
from appliance.engine.llama import LlamaEngine
from appliance.errors import ModelRejectedError
from appliance.models.e5 import repack
from appliance.system.gguf import inspect
from tests.engine.conftest import wait_ready
from tests.tiny_e5 import HIDDEN, POSITIONS, tensors, write_e5s1


def test_repacked_file_is_a_sound_bert_that_llama_cpp_embeds_with(tmp_path: Path) -> None:
    target = tmp_path / "out.gguf"
    repack(write_e5s1(tmp_path / "in.bin"), target)

    header = inspect(target)
    engine = wait_ready(LlamaEngine(None, target, device="cpu", embed_batch=128))
    try:
        vectors = engine.embed(["内存 8GB", "8GB 内存", "x"], "passage", Priority.INGEST_EMBED)
    finally:
        engine.close()

    assert (header.architecture, header.embedding_length) == ("bert", HIDDEN)
    assert header.context_length == POSITIONS
    assert header.text("tokenizer.ggml.model") == "t5"
    assert vectors.shape == (3, HIDDEN)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    source = write_e5s1(tmp_path / "in.bin")
    repack(source, tmp_path / "a.gguf")
    repack(source, tmp_path / "b.gguf")

    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_quantised_blocks_are_carried_over_unchanged(tmp_path: Path) -> None:
    source = write_e5s1(tmp_path / "in.bin")
    repack(source, tmp_path / "out.gguf")

    rng = np.random.default_rng(1)
    for name, (dtype, _n, data) in tensors(rng):
        if dtype == 1:
            assert data in (tmp_path / "out.gguf").read_bytes(), name


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    source = write_e5s1(tmp_path / "in.bin", drop="l1.fo.w")

    with pytest.raises(ModelRejectedError) as caught:
        repack(source, tmp_path / "out.gguf")

    assert "l1.fo.w" in str(caught.value.facts["cause"])


def test_damaged_source_is_refused_wherever_it_is_cut_or_flipped(tmp_path: Path) -> None:
    good = write_e5s1(tmp_path / "in.bin").read_bytes()
    bad = tmp_path / "bad.bin"
    rng = np.random.default_rng(3)
    for length in [0, 3, 63, 100, *rng.integers(64, len(good) - 1, 30).tolist()]:
        bad.write_bytes(good[:length])
        with pytest.raises(ModelRejectedError):
            repack(bad, tmp_path / "out.gguf")
    for at in range(4, 72):
        data = bytearray(good)
        data[at] ^= 0x80
        bad.write_bytes(data)
        try:
            repack(bad, tmp_path / "out.gguf")
        except ModelRejectedError:
            continue
