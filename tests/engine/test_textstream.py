from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.textstream import TextStream

FAMILY = "👩‍👩‍👧‍👦 中文，ｆｕｌｌ"


def streamed(pieces: list[bytes], stops: list[str]) -> tuple[list[str], TextStream]:
    stream = TextStream(stops)
    shown = []
    for piece in pieces:
        shown.append(stream.feed(piece))
        if stream.is_stopped:
            break
    shown.append(stream.finish())
    return shown, stream


def cut(data: bytes, at: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(position % (len(data) + 1) for position in at)})
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


@given(text=st.text(), at=st.lists(st.integers(min_value=0)))
def test_text_cut_anywhere_in_its_bytes_comes_out_whole(text: str, at: list[int]) -> None:
    shown, stream = streamed(cut(text.encode(), at), [])

    assert "".join(shown) == text == stream.text
    assert "\ufffd" not in "".join(shown) or "\ufffd" in text


@given(data=st.binary(), at=st.lists(st.integers(min_value=0)))
def test_invalid_bytes_come_out_as_one_shot_decoding_would_show_them(
    data: bytes, at: list[int]
) -> None:
    shown, stream = streamed(cut(data, at), [])

    assert "".join(shown) == data.decode("utf-8", "replace")
    assert stream.text.encode("utf-8").decode("utf-8") == stream.text


def test_half_an_emoji_is_held_back_until_it_is_whole() -> None:
    stream = TextStream()
    family = "👩".encode()

    assert [stream.feed(family[:1]), stream.feed(family[1:3]), stream.feed(family[3:])] == [
        "",
        "",
        "👩",
    ]


def test_truncated_character_at_the_end_becomes_the_replacement_mark() -> None:
    shown, _stream = streamed([FAMILY.encode(), "中".encode()[:2]], [])

    assert "".join(shown) == FAMILY + "\ufffd"


@given(
    text=st.text(alphabet="ab。停\n", max_size=30),
    stops=st.lists(st.text(alphabet="ab。停\n", min_size=1, max_size=5), max_size=3),
    at=st.lists(st.integers(min_value=0), max_size=20),
)
def test_stop_string_cut_anywhere_never_leaks_and_ends_the_text(
    text: str, stops: list[str], at: list[int]
) -> None:
    shown, stream = streamed(cut(text.encode(), at), stops)

    ends = [found for stop in stops if (found := text.find(stop)) >= 0]
    assert stream.is_stopped == bool(ends)
    if ends:
        # Which stop completes first depends on the cuts when stops overlap; none may be shown.
        assert text.startswith("".join(shown))
        assert not any(stop in "".join(shown) for stop in stops)
    else:
        assert "".join(shown) == text


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        (["Answer: 8GB\n", "\nQ", "uestion: next"], "\n\nQuestion:", "Answer: 8GB"),
        (["答案是八", "。结", "束语"], "。结束", "答案是八"),
        (["a<", "|", "im_end", "|>b"], "<|im_end|>", "a"),
    ],
    ids=["english", "chinese", "token spelling"],
)
def test_stop_string_over_three_tokens_is_removed(
    pieces: list[str], stop: str, expected: str
) -> None:
    shown, stream = streamed([piece.encode() for piece in pieces], [stop])

    assert "".join(shown) == expected == stream.text
    assert stream.is_stopped


def test_beginning_of_a_stop_string_that_is_not_completed_is_shown() -> None:
    shown, _stream = streamed([b"x<|im_", b"star"], ["<|im_start|>"])

    assert shown == ["x", "", "<|im_star"]


def test_nothing_is_shown_after_a_stop() -> None:
    stream = TextStream(["END"])

    assert [stream.feed(b"oneENDtwo"), stream.feed(b"three"), stream.finish()] == ["one", "", ""]
