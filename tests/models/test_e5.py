"""The repack on a small random file of the same format, so that it runs without the real one."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from appliance.engine.base import Priority
from appliance.engine.llama import LlamaEngine
from appliance.errors import ModelRejectedError
from appliance.models.e5 import repack
from appliance.system.gguf import inspect
from tests.engine.conftest import wait_ready

HIDDEN, LAYERS, HEADS, FFN, VOCAB, POSITIONS, TYPES = 64, 2, 4, 96, 300, 128, 2
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁"] + [chr(c) for c in range(33, 127)] + ["内", "存"]


def write_e5s1(path: Path, *, drop: str = "", seed: int = 1) -> Path:
    """Write an ``E5S1`` file with random weights; ``drop`` leaves one tensor out."""
    rng = np.random.default_rng(seed)
    pieces = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, pieces)]).astype("<u4")
    scores = -np.arange(len(pieces), dtype="<f4")
    blob = b"".join(pieces)
    head = b"E5S1" + struct.pack(
        "<I7ifi", 1, HIDDEN, LAYERS, HEADS, FFN, VOCAB, POSITIONS, TYPES, 1e-12, 32
    )
    tokenizer = struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, len(blob))
    normaliser = struct.pack("<iI", 0, 5) + b"skip!"
    start = head + tokenizer + offsets.tobytes() + scores.tobytes() + blob + normaliser

    tensors = {name: data for name, data in _tensors(rng) if name != drop}
    directory_bytes = 4 + sum(2 + len(name) + 1 + 4 + 8 + 8 for name in tensors)
    at, directory, body = len(start) + directory_bytes, struct.pack("<i", len(tensors)), b""
    for name, (dtype, n_elements, data) in tensors.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", dtype, n_elements, at + len(body), len(data))
        body += data
    path.write_bytes(start + directory + body)
    return path


def _tensors(rng: np.random.Generator) -> list[tuple[str, tuple[int, int, bytes]]]:
    def f32(*shape: int) -> tuple[int, int, bytes]:
        data = (rng.standard_normal(shape) * 0.1).astype("<f4")
        return 0, data.size, data.tobytes()

    def ones(n: int) -> tuple[int, int, bytes]:
        return 0, n, np.ones(n, dtype="<f4").tobytes()

    def q4(rows: int, columns: int) -> tuple[int, int, bytes]:
        n_blocks = rows * columns // 32
        blocks = rng.integers(0, 256, (n_blocks, 18)).astype(np.uint8)
        blocks[:, :2] = np.full(n_blocks, 0.02, dtype="<f2").view(np.uint8).reshape(-1, 2)
        return 1, rows * columns, blocks.tobytes()

    found = [
        ("emb.word", q4(VOCAB, HIDDEN)),
        ("emb.pos", f32(POSITIONS, HIDDEN)),
        ("emb.type", f32(TYPES, HIDDEN)),
        ("emb.ln.w", ones(HIDDEN)),
        ("emb.ln.b", f32(HIDDEN)),
    ]
    for layer in range(LAYERS):
        at = f"l{layer}."
        for part in ("q", "k", "v", "ao"):
            found += [(f"{at}{part}.w", q4(HIDDEN, HIDDEN)), (f"{at}{part}.b", f32(HIDDEN))]
        found += [(f"{at}fi.w", q4(FFN, HIDDEN)), (f"{at}fi.b", f32(FFN))]
        found += [(f"{at}fo.w", q4(HIDDEN, FFN)), (f"{at}fo.b", f32(HIDDEN))]
        for part in ("aln", "oln"):
            found += [(f"{at}{part}.w", ones(HIDDEN)), (f"{at}{part}.b", f32(HIDDEN))]
    return found


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
    for name, (dtype, _n, data) in _tensors(rng):
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
