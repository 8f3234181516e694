"""Encodings: the ones Chinese offices use, and no text where there is none."""

from __future__ import annotations

import pytest

from appliance.text.encoding import decode

SIMPLIFIED = "图书馆周末下午五点关门，请大家提前还书。这是学校的通知，不能带食物进来。"
TRADITIONAL = "圖書館週末下午五點關門，請大家提前還書。這是學校的通知，不能帶食物進來。"
ENGLISH = "The library closes at five. Naïve café — 65 W."


@pytest.mark.parametrize("text", [SIMPLIFIED, TRADITIONAL, ENGLISH], ids=["zh", "zh-tw", "en"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030"])
def test_text_is_read_in_the_encoding_it_was_written_in(text: str, encoding: str) -> None:
    if encoding == "utf-16-le" and text is not ENGLISH:
        pytest.skip("Chinese UTF-16 without a mark cannot be told from other text")

    found = decode(text.encode(encoding))

    assert found is not None
    assert found.text == text


def test_big5_is_told_from_gb18030() -> None:
    found = decode(TRADITIONAL.encode("big5"))

    assert found is not None
    assert (found.encoding, found.text) == ("big5", TRADITIONAL)


def test_a_cut_last_character_is_replaced_and_counted() -> None:
    found = decode(SIMPLIFIED.encode("gb18030")[:-1])

    assert found is not None
    assert found.text == SIMPLIFIED[:-1] + "\ufffd"
    assert found.n_replaced == 1


@pytest.mark.parametrize(
    "raw", [bytes(range(256)) * 4, b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 20, b"\x00" * 100]
)
def test_binary_is_no_text(raw: bytes) -> None:
    assert decode(raw) is None
