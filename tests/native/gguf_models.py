"""GGUF files for the native tests: random tiny ones, sparse big ones, and F16 copies of real ones.

No vocabulary (``tokenizer.ggml.model = none``): these tests speak in token numbers.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

F16 = gguf.GGMLQuantizationType.F16
F32 = gguf.GGMLQuantizationType.F32


@dataclass(frozen=True)
class Shape:
    """The numbers that make one model of a family."""

    arch: str
    n_embd: int
    n_layer: int
    n_head: int
    n_kv: int
    head_dim: int
    n_ff: int
    n_vocab: int
    tied: bool = True

    @property
    def n_weights(self) -> int:
        """Weights of all matrices, a tied table once."""
        return sum(int(np.prod(shape)) for _, shape in tensors(self) if len(shape) == 2)


# Published shapes (config.json of each model).
QWEN25_05B = Shape("qwen2", 896, 24, 14, 2, 64, 4864, 151936)
QWEN25_15B = Shape("qwen2", 1536, 28, 12, 2, 128, 8960, 151936)
QWEN25_3B = Shape("qwen2", 2048, 36, 16, 2, 128, 11008, 151936)
QWEN3_06B = Shape("qwen3", 1024, 28, 16, 8, 128, 3072, 151936)

# Small enough for milliseconds, with the families' oddities kept: grouped heads, a head size that
# is not n_embd / n_head, sliding window (Gemma), norms on q and k (Qwen3, Gemma).
TINY_QWEN2 = Shape("qwen2", 64, 3, 4, 2, 16, 128, 256)
TINY_QWEN3 = Shape("qwen3", 64, 3, 4, 2, 32, 128, 256)
TINY_LLAMA = Shape("llama", 64, 3, 4, 2, 16, 128, 256, tied=False)
TINY_GEMMA3 = Shape("gemma3", 64, 7, 4, 2, 32, 128, 256)
TINY = {s.arch: s for s in (TINY_QWEN2, TINY_QWEN3, TINY_LLAMA, TINY_GEMMA3)}


def tensors(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape (rows first, as numpy has it) of every tensor of the model."""
    q, kv = shape.n_head * shape.head_dim, shape.n_kv * shape.head_dim
    embd, ff = shape.n_embd, shape.n_ff
    out: list[tuple[str, tuple[int, ...]]] = [("token_embd", (shape.n_vocab, embd))]
    if not shape.tied:
        out.append(("output", (shape.n_vocab, embd)))
    out.append(("output_norm", (embd,)))
    for layer in range(shape.n_layer):
        rows: list[tuple[str, tuple[int, ...]]] = [
            ("attn_norm", (embd,)),
            ("attn_q", (q, embd)),
            ("attn_k", (kv, embd)),
            ("attn_v", (kv, embd)),
            ("attn_output", (embd, q)),
            ("ffn_norm", (embd,)),
            ("ffn_gate", (ff, embd)),
            ("ffn_up", (ff, embd)),
            ("ffn_down", (embd, ff)),
        ]
        if shape.arch == "qwen2":
            rows += [("attn_q.bias", (q,)), ("attn_k.bias", (kv,)), ("attn_v.bias", (kv,))]
        if shape.arch in ("qwen3", "gemma3"):
            rows += [("attn_q_norm", (shape.head_dim,)), ("attn_k_norm", (shape.head_dim,))]
        if shape.arch == "gemma3":
            rows += [("post_attention_norm", (embd,)), ("post_ffw_norm", (embd,))]
        out += [(f"blk.{layer}.{name}", size) for name, size in rows]
    return [(name if name.endswith(".bias") else name + ".weight", size) for name, size in out]


def _header(path: Path, shape: Shape) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(str(path), shape.arch)
    writer.add_name("random weights")
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_kv)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(10000.0 if shape.arch in ("llama", "gemma3") else 1000000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    if shape.arch == "gemma3":
        writer.add_sliding_window(64)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(shape.n_vocab)
    return writer


def write_random(path: Path, shape: Shape, *, seed: int = 1, dtype: str = "f16") -> Path:
    """Write a model with random weights.

    Args:
        path: the file to make; its folder exists.
        shape: which model.
        seed: of the random numbers.
        dtype: type of the matrices: ``f16``, ``f32`` or ``q8_0``; vectors are always F32.
    """
    rng = np.random.default_rng(seed)
    writer = _header(path, shape)
    for name, size in tensors(shape):
        if len(size) == 1:
            bias = name.endswith(".bias")
            vector = rng.standard_normal(size) * 0.1 + (0.0 if bias else 1.0)
            writer.add_tensor(name, vector.astype(np.float32))
            continue
        # Variance-keeping scale, so that activations stay in the range real ones have. The table is
        # small (Gemma multiplies it up again): else a tied model only ever repeats its last token.
        table = 0.03 if shape.arch == "gemma3" else 0.25
        scale = table if name == "token_embd.weight" else size[1] ** -0.5
        matrix = (rng.standard_normal(size) * scale).astype(np.float32)
        if dtype == "q8_0":
            q8 = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(matrix, q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, matrix.astype(np.float16 if dtype == "f16" else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_hollow(path: Path, shape: Shape, dtype: gguf.GGMLQuantizationType = F16) -> Path:
    """Write a model whose weights are a hole in the file: all zero, next to no disk.

    For what depends on shapes alone: allocations, launches, bytes, predicted time.
    """
    writer = _header(path, shape)
    total = 0
    for name, size in tensors(shape):
        kind = F32 if len(size) == 1 else dtype
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        n_bytes = int(np.prod(size)) // block * block_bytes
        writer.add_tensor_info(name, size, np.dtype(np.float16), n_bytes, raw_dtype=kind)
        total += -(-n_bytes // 32) * 32  # GGUF's default alignment
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    start = -(-path.stat().st_size // 32) * 32
    os.truncate(path, start + total)
    return path


def dequantised(source: Path, cache: Path) -> Path:
    """Return an F16 copy of a GGUF: every matrix as F16, everything else untouched.

    The copy is made once per source (its head and size name it) and kept in ``cache``.
    """
    with source.open("rb") as stream:
        head = hashlib.sha256(stream.read(1 << 20)).hexdigest()[:12]
    target = cache / f"{source.stem}-{head}-{source.stat().st_size}-f16.gguf"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    reader = gguf.GGUFReader(source)
    arch_field = reader.get_field("general.architecture")
    assert arch_field is not None
    writer = gguf.GGUFWriter(str(partial), str(arch_field.contents()))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        element = field.types[1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, element)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, _as_f16(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(target)
    return target


def _as_f16(tensor: gguf.ReaderTensor) -> npt.NDArray[np.float16] | npt.NDArray[np.float32]:
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    size = tuple(int(n) for n in reversed(tensor.shape))
    if tensor.tensor_type == F32:
        return np.asarray(values, dtype=np.float32).reshape(size)
    return np.asarray(values, dtype=np.float16).reshape(size)
