"""Encodings: the ones Chinese offices use, and no text where there is none."""

from __future__ import annotations

import pytest

from appliance.text.encoding import decode

SIMPLIFIED = "图书馆周末下午五点关门，请大家提前还书。这是学校的通知，不能带食物进来。"
TRADITIONAL = "圖書館週末下午五點關門，請大家提前還書。這是學校的通知，不能帶食物進來。"
ENGLISH = "The library closes at five. Naïve café — 65 W."


@pytest.mark.parametrize("text", [SIMPLIFIED, TRADITIONAL, ENGLISH], ids=["zh", "zh-tw", "en"])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "gb18030"]
)
def test_text_is_read_in_the_encoding_it_was_written_in(text: str, encoding: str) -> None:
    found = decode(text.encode(encoding))

    assert found is not None
    assert found.text == text


def test_big5_is_told_from_gb18030() -> None:
    found = decode(TRADITIONAL.encode("big5"))

    assert found is not None
    assert (found.encoding, found.text) == ("big5", TRADITIONAL)


def test_latin_text_of_an_old_program_is_windows_1252() -> None:
    text = "Le café est fermé. “Déjà vu” costs €5, naïve façade.\n" * 3

    found = decode(text.encode("cp1252"))

    assert found is not None
    assert (found.encoding, found.text) == ("cp1252", text)


@pytest.mark.parametrize("encoding", ["gb18030", "utf-8", "utf-16-le", "utf-16-be"])
def test_a_few_chinese_words_among_english_stay_chinese(encoding: str) -> None:
    text = "Press the 电源 key (see 附录), then choose 中文 in the menu of the RiverBoard.\n" * 2

    found = decode(text.encode(encoding))

    assert found is not None
    assert found.text == text


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "utf-8"])
def test_text_of_another_encoding_is_never_taken_for_utf_16(encoding: str) -> None:
    text = TRADITIONAL if encoding == "big5" else SIMPLIFIED
    for n in range(4, len(text)):
        raw = text[:n].encode(encoding)
        found = decode(raw)
        assert found is not None
        assert not found.encoding.startswith("utf-16")


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
