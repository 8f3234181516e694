from __future__ import annotations

import resource
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from appliance.errors import ApplianceError, ModelMissingError, ModelRejectedError
from appliance.system.gguf import inspect
from tests.tiny_gguf import write_tiny_llama


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = write_tiny_llama(tmp_path_factory.mktemp("g") / "tiny.gguf", n_embd=32, n_layer=1)
    return path.read_bytes()


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def head(n_tensors: int, n_pairs: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs)


ARCH = text("general.architecture") + struct.pack("<I", 8) + text("llama")


def code_of(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(ModelRejectedError) as caught:
        inspect(path)
    return caught.value.code


def test_header_of_a_good_file_is_read(tmp_path: Path, good: bytes) -> None:
    path = tmp_path / "good.gguf"
    path.write_bytes(good)

    header = inspect(path)

    assert (header.architecture, header.version) == ("llama", 3)
    assert (header.embedding_length, header.context_length) == (32, 4096)
    assert header.text("general.name") == "tiny-random"
    assert header.n_bytes == len(good)


def test_file_cut_anywhere_is_refused_before_llama_cpp_sees_it(tmp_path: Path, good: bytes) -> None:
    rng = np.random.default_rng(1)
    lengths = {0, 3, 23, 24, 40, len(good) - 1, *rng.integers(24, len(good), 60).tolist()}
    path = tmp_path / "cut.gguf"

    codes = {code_of(path, good[:length]) for length in sorted(lengths)}

    assert codes == {"model_truncated", "model_not_gguf"}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"PK\x03\x04" + bytes(100), "model_not_gguf"),
        (head(0, 0, version=1) + bytes(64), "model_unsupported"),
        (head(0, 0, version=4) + bytes(64), "model_unsupported"),
        (head(0, 0, version=0x03000000) + bytes(64), "model_unsupported"),
        (head(0, 0) + bytes(64), "model_unsupported"),
        (head(2**63, 1) + ARCH, "model_damaged"),
        (head(0, 2**63) + ARCH, "model_damaged"),
        (head(0, 1) + struct.pack("<Q", 2**62) + bytes(64), "model_damaged"),
        (head(0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 2**60), "model_damaged"),
        (head(0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 3_999_999), "model_truncated"),
        (head(0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(64), "model_damaged"),
        (head(0, 1) + text("k") + struct.pack("<I", 77) + bytes(64), "model_damaged"),
        (
            head(1, 1) + ARCH + text("t") + struct.pack("<I4QIQ", 4, 2**60, 2, 2, 2, 0, 0),
            "model_truncated",
        ),
        (
            head(1, 1) + ARCH + text("t") + struct.pack("<IQIQ", 1, 4, 0, 2**63),
            "model_truncated",
        ),
        (head(1, 1) + ARCH + text("t") + struct.pack("<I", 9) + bytes(99), "model_damaged"),
        (head(1, 1) + ARCH + text("t") + struct.pack("<IQIQ", 1, 4, 99, 0), "model_damaged"),
        (head(1, 1) + ARCH + text("t") + struct.pack("<IQIQ", 1, 33, 2, 0), "model_damaged"),
    ],
    ids=[
        "zip",
        "version 1",
        "version 4",
        "big-endian",
        "no architecture",
        "tensor count",
        "pair count",
        "key length",
        "array of 2^60 texts",
        "array longer than the file",
        "nested array",
        "unknown type",
        "huge tensor",
        "offset beyond the end",
        "nine dimensions",
        "unknown tensor type",
        "row not in blocks",
    ],
)
def test_hostile_header_is_refused_with_its_own_code(
    tmp_path: Path, data: bytes, code: str
) -> None:
    assert code_of(tmp_path / "hostile.gguf", data) == code


def test_random_byte_flips_end_in_a_header_or_a_refusal(tmp_path: Path, good: bytes) -> None:
    rng = np.random.default_rng(7)
    path = tmp_path / "flipped.gguf"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_refused = 0
    for _ in range(400):
        data = bytearray(good)
        for at in rng.integers(0, 9000, size=3):
            data[at] = rng.integers(256)
        path.write_bytes(data)
        try:
            inspect(path)
        except ApplianceError:
            n_refused += 1

    assert n_refused > 50
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    split = text("split.count") + struct.pack("<IH", 2, 3)

    assert code_of(tmp_path / "p.gguf", head(0, 2) + ARCH + split + bytes(64)) == (
        "model_unsupported"
    )


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir()], ids=["nothing there", "a folder"]
)
def test_path_that_is_no_file_is_an_error_of_ours(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "x.gguf"
    make(path)

    with pytest.raises((ModelMissingError, ModelRejectedError)):
        inspect(path)
