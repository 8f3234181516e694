from __future__ import annotations

import random
from pathlib import Path

import pytest

from appliance.engine.embedding import E5
from appliance.engine.native import Model
from appliance.engine.unigram import UnigramTokenizer, fits
from appliance.errors import ModelRejectedError
from appliance.models.e5 import repack
from appliance.system.gguf import inspect
from tests.starters import E5 as E5_FILE
from tests.starters import starter
from tests.tiny_e5 import write_e5s1
from tests.tiny_gguf import write_tiny_llama

WRITTEN = [
    "",
    " ",
    "  two   spaces  ",
    "内存 8GB，存储 64GB。",
    "line\nbreak\ttab",
    "▁",
    "[PAD0] <s> </s> <mask>",
    "👩‍👩‍👧‍👦 𠮷野家 ｆｕｌｌ ①",
    "\ud800 lone surrogate",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!\"#$%&'()*+,-./0123456789:;<=>?@",
]


def random_texts(n: int) -> list[str]:
    rng = random.Random(11)
    ranges = [(32, 127), (0x4E00, 0x9FFF), (0x20, 0x3000), (0x1F300, 0x1F700), (32, 33)]
    return [
        "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 80)))
        for _ in range(n)
    ]


def disagreements(path: Path, texts: list[str]) -> list[str]:
    """Texts that this tokenizer and llama.cpp's own one cut differently."""
    ours = UnigramTokenizer(inspect(path))
    model = Model(path, n_gpu_layers=0, progress=lambda _done: True)
    try:
        return [
            text
            for text in texts
            if ours.tokenize(text).tolist()
            != model.tokenize(text, add_special=True, parse_special=False).tolist()
        ]
    finally:
        model.close()


@pytest.fixture
def tiny_e5(tmp_path: Path) -> Path:
    target = tmp_path / "tiny-e5.gguf"
    repack(write_e5s1(tmp_path / "in.bin"), target)
    return target


def test_small_vocabulary_is_cut_as_llama_cpp_cuts_it(tiny_e5: Path) -> None:
    texts = WRITTEN + random_texts(300)

    assert disagreements(tiny_e5, texts) == []


@pytest.mark.model
def test_real_vocabulary_is_cut_as_llama_cpp_cuts_it() -> None:
    texts = WRITTEN + random_texts(600)
    texts += [E5.dress(text, "passage") for text in texts]

    assert disagreements(starter(E5_FILE), texts) == []


def test_begin_and_end_are_added_and_unknowns_merged(tiny_e5: Path) -> None:
    tokens = UnigramTokenizer(inspect(tiny_e5)).tokenize("кириллица").tolist()

    assert (tokens[0], tokens[-1]) == (0, 2)
    assert tokens.count(3) == 1


def test_other_kinds_of_tokenizer_are_left_to_llama_cpp(tmp_path: Path, tiny_e5: Path) -> None:
    assert fits(inspect(tiny_e5))
    assert not fits(inspect(write_tiny_llama(tmp_path / "llama.gguf")))


def test_tokenizer_without_its_arrays_is_refused(tmp_path: Path) -> None:
    header = inspect(write_tiny_llama(tmp_path / "llama.gguf"))
    header.arrays.pop("tokenizer.ggml.scores")

    with pytest.raises(ModelRejectedError):
        UnigramTokenizer(header)


def test_line_breaks_and_invisible_marks_become_spaces() -> None:
    assert E5.dress("第一行\r\n第二行\u200b\ufeff，\x07\u3000终", "passage") == (
        "passage: 第一行  第二行  , 终"
    )
