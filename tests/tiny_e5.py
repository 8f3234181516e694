"""Make a small random file in the format that ``appliance.models.e5`` repacks."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

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

    kept = {name: data for name, data in tensors(rng) if name != drop}
    directory_bytes = 4 + sum(2 + len(name) + 1 + 4 + 8 + 8 for name in kept)
    at, directory, body = len(start) + directory_bytes, struct.pack("<i", len(kept)), b""
    for name, (dtype, n_elements, data) in kept.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", dtype, n_elements, at + len(body), len(data))
        body += data
    path.write_bytes(start + directory + body)
    return path


def tensors(rng: np.random.Generator) -> list[tuple[str, tuple[int, int, bytes]]]:
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
