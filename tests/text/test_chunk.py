"""Chunks: nothing is lost, nothing is too long, and every one knows its place."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.parsers.base import Block
from appliance.text.chunk import chunk, document_text, estimate_tokens

TEXT = st.text(alphabet="图书馆周末关门。！？\nabc. de，", max_size=600)


@settings(deadline=None)
@given(st.lists(TEXT, max_size=4), st.integers(8, 64))
def test_offsets_point_at_the_text_and_every_character_is_in_some_passage(
    texts: list[str], most: int
) -> None:
    blocks = [Block(text, page=n) for n, text in enumerate(texts, 1)]
    whole = document_text(blocks)

    passages = chunk(blocks, max_tokens=most, overlap_tokens=most // 4)

    covered = set()
    for passage in passages:
        assert whole[passage.char_from : passage.char_to] == passage.text
        assert estimate_tokens(passage.text) <= most
        covered.update(range(passage.char_from, passage.char_to))
    assert all(whole[n].isspace() for n in range(len(whole)) if n not in covered)
    assert [p.ordinal for p in passages] == list(range(len(passages)))


def test_a_passage_never_crosses_a_page_or_a_heading() -> None:
    blocks = [
        Block("一。", page=1),
        Block("二。", page=2),
        Block("三。", heading=("甲",)),
        Block("四。", heading=("甲", "乙")),
    ]

    passages = chunk(blocks)

    assert [(p.text, p.page, p.heading) for p in passages] == [
        ("一。", 1, None),
        ("二。", 2, None),
        ("三。", None, "甲"),
        ("四。", None, "甲 > 乙"),
    ]


def test_line_numbers_survive_joining_paragraphs() -> None:
    blocks = [
        Block("first", line_from=1, line_to=1),
        Block("second\nthird", line_from=4, line_to=5),
    ]

    (passage,) = chunk(blocks)

    assert (passage.line_from, passage.line_to) == (1, 5)
    assert passage.text.split("\n")[3] == "second"


def test_long_text_is_cut_at_sentence_ends_with_overlap() -> None:
    text = "".join(f"第{n}句话说的是一件小事。" for n in range(60))

    passages = chunk([Block(text)], max_tokens=64, overlap_tokens=16)

    assert len(passages) > 5
    assert all(p.text.endswith("。") for p in passages)
    assert all(b.char_from < a.char_to for a, b in itertools.pairwise(passages))
