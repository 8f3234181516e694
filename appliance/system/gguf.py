"""Read and check a GGUF header without trusting a byte of it, before llama.cpp opens the file.

llama.cpp maps a file and, on a damaged one, may print and abort or read past the end much later.
This reader answers first: is it GGUF, of a version and an architecture that the pinned llama.cpp
knows, do the tables make sense, and do all tensors lie inside the file. The file is mapped, never
read as a whole; nothing is allocated by a count that the file claims.

Layout (little-endian; https://github.com/ggml-org/ggml/blob/master/docs/gguf.md):

    "GGUF", u32 version, u64 tensors, u64 key-value pairs
    pair     string key, u32 type, value            string = u64 length, bytes
    tensor   string name, u32 dimensions, u64 each, u32 type, u64 offset
    padding to ``general.alignment``, then tensor data; offsets count from here
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import ModelMissingError, ModelRejectedError

Scalar = str | int | float | bool

# Limits far above any real file (Gemma 3 has 262,144 pieces, DeepSeek-V3 about 1,100 tensors).
_MAX_PAIRS = 4096
_MAX_TENSORS = 65536
_MAX_ITEMS = 4_000_000
_MAX_TEXT = 4 << 20
_MAX_DIMENSIONS = 4
_VERSIONS = (2, 3)
_KEPT_TEXT = 1 << 20

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    _BOOL: "?",
    10: "Q",
    11: "q",
    12: "d",
}

# (elements, bytes) of a block, from ggml.c of the llama.cpp inside llama-cpp-python 0.3.36.
_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
    42: (64, 18),
}

# LLM_ARCH_NAMES of the same version, without those that hold no language model of their own.
ARCHITECTURES = frozenset(
    """
    llama llama4 deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bert
    modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom
    stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3next qwen3vl qwen3vlmoe qwen35
    qwen35moe qwen4exp phi2 phi3 phimoe plamo plamo2 plamo3 codeshell orion internlm2 minicpm
    minicpm3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2 mamba mamba2 maple
    jamba falcon-h1 xverse command-r cohere2 cohere2moe dbrx olmo olmo2 olmoe muse-glimmer
    openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 chatglm glm4 glm4moe
    glm-dsa bitnet t5 t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe exaone exaone4
    exaone-moe rwkv6 rwkv6qwen2 rwkv7 arwkv7 granite granitemoe granitehybrid graniteswitch
    granite_swa chameleon plm bailingmoe bailingmoe2 bailingmoe3 dots1 dots3note arcee afmoe
    laguna ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl hy_v3 hy_v4 smollm3
    gpt-oss lfm2 lfm2moe smallthinker seed_oss grovemoe apertus minimax-01 hrm_text minimax-m2
    minimax-m3 cogvlm pangu-embedded mistral3 mistral4 paddleocr mimo2 step35 spark2_5
    llama-embed maincoder kimi-linear kimi-k3 glm5-next talkie mellum nanbeige
    """.split()  # noqa: SIM905 (a hundred quoted lines say no more)
)


@dataclass(frozen=True)
class ArraySpan:
    """Where an array of the metadata lies: item type, number of items, first and last byte."""

    kind: int
    n_items: int
    start: int
    end: int


@dataclass(frozen=True)
class GgufHeader:
    """What a file says about itself; of arrays only where they lie."""

    path: Path
    version: int
    metadata: dict[str, Scalar]
    arrays: dict[str, ArraySpan]
    n_tensors: int
    n_bytes: int

    @property
    def architecture(self) -> str:
        """The name llama.cpp picks its graph by, e.g. ``qwen2``."""
        return self.text("general.architecture")

    @property
    def embedding_length(self) -> int:
        """Width of the model, which for the embedders here is the vector's length."""
        return self.number(f"{self.architecture}.embedding_length")

    @property
    def context_length(self) -> int:
        """Context the model was trained for, in tokens."""
        return self.number(f"{self.architecture}.context_length")

    def text(self, key: str) -> str:
        """Return a text value, empty when it is absent or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """Return a whole number, 0 when it is absent or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) else 0


class _EndsTooEarlyError(Exception):
    """The header runs past the end of the file."""


class _DamagedError(Exception):
    """A field holds what no writer produces; the message says which."""


class _Cursor:
    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped
        self.at = 0

    def unpack(self, layout: str) -> int:
        return int(self.scalar(layout))

    def scalar(self, layout: str) -> int | float | bool:
        size = struct.calcsize("<" + layout)
        if self.at + size > len(self._mapped):
            raise _EndsTooEarlyError
        (value,) = struct.unpack_from("<" + layout, self._mapped, self.at)
        self.at += size
        found: int | float | bool = value
        return found

    def skip(self, n_bytes: int) -> None:
        if self.at + n_bytes > len(self._mapped):
            raise _EndsTooEarlyError
        self.at += n_bytes

    def text(self, limit: int = _MAX_TEXT) -> str:
        length = self.unpack("Q")
        if length > limit:
            raise _DamagedError(f"a text of {length} bytes")
        start = self.at
        self.skip(length)
        return self._mapped[start : self.at].decode("utf-8", "replace")

    def skip_text(self) -> None:
        length = self.unpack("Q")
        if length > _MAX_TEXT:
            raise _DamagedError(f"a text of {length} bytes")
        self.skip(length)


def inspect(path: Path) -> GgufHeader:
    """Return the header of a GGUF file that llama.cpp can be expected to load.

    Args:
        path: a regular file.

    Raises:
        ModelMissingError: there is no such file.
        ModelRejectedError: with the code ``model_unreadable`` (the system refuses),
            ``model_not_gguf``, ``model_truncated``, ``model_damaged`` or ``model_unsupported``
            (version, architecture, one part of a split model).
    """
    try:
        with path.open("rb") as file:
            n_bytes = path.stat().st_size
            if n_bytes < 24:
                raise ModelRejectedError("model_not_gguf", path=str(path))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                return _read(path, mapped, n_bytes)
    except FileNotFoundError as error:
        raise ModelMissingError("model_file_missing", path=str(path)) from error
    except OSError as error:
        raise ModelRejectedError(
            "model_unreadable", path=str(path), cause=error.strerror or str(error)
        ) from error
    except _EndsTooEarlyError as error:
        raise ModelRejectedError("model_truncated", path=str(path), n_bytes=n_bytes) from error
    except _DamagedError as error:
        raise ModelRejectedError("model_damaged", path=str(path), cause=str(error)) from error


def _read(path: Path, mapped: mmap.mmap, n_bytes: int) -> GgufHeader:
    cursor = _Cursor(mapped)
    if mapped[:4] != b"GGUF":
        raise ModelRejectedError("model_not_gguf", path=str(path))
    cursor.skip(4)
    version = cursor.unpack("I")
    if version not in _VERSIONS:
        raise ModelRejectedError(
            "model_unsupported", path=str(path), what="GGUF version", found=str(version)
        )
    n_tensors, n_pairs = cursor.unpack("Q"), cursor.unpack("Q")
    if n_tensors > _MAX_TENSORS or n_pairs > _MAX_PAIRS:
        raise _DamagedError(f"{n_tensors} tensors and {n_pairs} metadata entries")
    metadata, arrays = _metadata(cursor, n_pairs)
    header = GgufHeader(path, version, metadata, arrays, n_tensors, n_bytes)
    _demand_supported(header)
    ends_at = _tensors_end(cursor, n_tensors)
    alignment = header.number("general.alignment") or 32
    if alignment < 8 or alignment > 1 << 20 or alignment & (alignment - 1):
        raise _DamagedError(f"alignment {alignment}")
    data_at = -(-cursor.at // alignment) * alignment
    if data_at + ends_at > n_bytes:
        raise ModelRejectedError(
            "model_truncated", path=str(path), n_bytes=n_bytes, n_wanted=data_at + ends_at
        )
    return header


def _demand_supported(header: GgufHeader) -> None:
    if header.architecture not in ARCHITECTURES:
        found = header.architecture or "none"
        raise ModelRejectedError(
            "model_unsupported", path=str(header.path), what="architecture", found=found[:64]
        )
    if header.number("split.count") > 1:
        found = f"1 of {header.number('split.count')}"
        raise ModelRejectedError(
            "model_unsupported", path=str(header.path), what="part of a split model", found=found
        )


def _metadata(cursor: _Cursor, n_pairs: int) -> tuple[dict[str, Scalar], dict[str, ArraySpan]]:
    found: dict[str, Scalar] = {}
    arrays: dict[str, ArraySpan] = {}
    for _ in range(n_pairs):
        key = cursor.text(limit=65535)
        kind = cursor.unpack("I")
        if kind == _ARRAY:
            arrays[key] = _skip_array(cursor)
        elif kind == _STRING:
            found[key] = cursor.text()[:_KEPT_TEXT]
        elif kind in _SCALARS:
            found[key] = cursor.scalar(_SCALARS[kind])
        else:
            raise _DamagedError(f"metadata type {kind} of {key[:64]}")
    return found, arrays


def _skip_array(cursor: _Cursor) -> ArraySpan:
    kind, n_items = cursor.unpack("I"), cursor.unpack("Q")
    start = cursor.at
    if n_items > _MAX_ITEMS:
        raise _DamagedError(f"an array of {n_items} items")
    if kind == _STRING:
        for _ in range(n_items):
            cursor.skip_text()
    elif kind in _SCALARS:
        cursor.skip(n_items * struct.calcsize("<" + _SCALARS[kind]))
    else:
        raise _DamagedError(f"an array of type {kind}")
    return ArraySpan(kind, n_items, start, cursor.at)


def read_raw(header: GgufHeader, key: str) -> bytes:
    """Return the little-endian items of an array of numbers, empty when there is none."""
    span = header.arrays.get(key)
    if span is None or span.kind == _STRING:
        return b""
    with header.path.open("rb") as file:
        file.seek(span.start)
        return file.read(span.end - span.start)


def read_texts(header: GgufHeader, key: str) -> Iterator[str]:
    """Yield the items of an array of texts; nothing when there is none."""
    span = header.arrays.get(key)
    if span is None or span.kind != _STRING:
        return
    with header.path.open("rb") as file:
        file.seek(span.start)
        data = file.read(span.end - span.start)
    at = 0
    for _ in range(span.n_items):
        (length,) = struct.unpack_from("<Q", data, at)
        at += 8 + length
        yield data[at - length : at].decode("utf-8", "replace")


def _tensors_end(cursor: _Cursor, n_tensors: int) -> int:
    """Return where the last tensor ends, in bytes from the start of the tensor data."""
    ends_at = 0
    for _ in range(n_tensors):
        name = cursor.text(limit=1024)
        n_dimensions = cursor.unpack("I")
        if n_dimensions > _MAX_DIMENSIONS:
            raise _DamagedError(f"tensor {name[:64]} with {n_dimensions} dimensions")
        row = n_elements = 1
        for dimension in range(n_dimensions):
            length = cursor.unpack("Q")
            n_elements *= length
            if dimension == 0:
                row = length
        kind, offset = cursor.unpack("I"), cursor.unpack("Q")
        if kind not in _BLOCKS:
            raise _DamagedError(f"tensor {name[:64]} of type {kind}")
        block, block_bytes = _BLOCKS[kind]
        if row % block:
            raise _DamagedError(f"tensor {name[:64]} with rows of {row}")
        ends_at = max(ends_at, offset + n_elements // block * block_bytes)
    return ends_at
