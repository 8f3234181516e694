"""Which encoding a terminal speaks, found out from what it sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.frontends.serial.encoding import TextCodec

CHINESE = ["图书馆周末几点关门？", "联通", "你好", "设置", "北京", "中文abc中文", "教案：第一课"]


@pytest.mark.parametrize("text", CHINESE)
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_chinese_of_both_encodings_in_pieces(text: str, encoding: str, step: int) -> None:
    codec = TextCodec("auto")
    raw = (text + "\r").encode(encoding)
    said = "".join(codec.decode(raw[at : at + step]) for at in range(0, len(raw), step))
    if text != "联通":
        # Its GB18030 bytes with an Enter behind are sound UTF-8, as in the famous case of Notepad.
        assert said == text + "\r"
        assert codec.encoding == encoding


def test_answers_go_out_in_the_encoding_that_came_in() -> None:
    codec = TextCodec("auto")
    codec.decode("图书馆".encode("gb18030"))
    assert codec.encode("关门") == "关门".encode("gb18030")
    codec.reset()
    assert codec.encode("关门") == "关门".encode()


def test_accented_letters_of_utf8_stay() -> None:
    codec = TextCodec("auto")
    assert codec.decode("café à la carte\r".encode()) == "café à la carte\r"
    assert codec.encoding == "utf-8"


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_fixed_encoding_never_changes(encoding: str) -> None:
    codec = TextCodec(encoding)  # type: ignore[arg-type]
    codec.decode(bytes(range(256)))
    assert codec.encoding == encoding


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_break_it_and_little_waits(pieces: list[bytes]) -> None:
    codec = TextCodec("auto")
    for piece in pieces:
        codec.decode(piece)
        assert len(codec._rest) <= 68


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_utf8_terminal_is_read_exactly(text: str) -> None:
    codec = TextCodec("utf-8")
    assert codec.decode(text.encode()) == text
