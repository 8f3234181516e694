"""Marks and quotes: nothing dangles, nothing is invented, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core.citations import QUOTE_CHARS, MarkFilter, best_quote, supporting


def run(text: str, valid: set[int], cuts: int = 1) -> tuple[str, list[int]]:
    marks = MarkFilter(valid)
    shown = "".join(marks.feed(text[i : i + cuts]) for i in range(0, len(text), cuts))
    return shown + marks.close(), marks.used


@pytest.mark.parametrize(
    ("text", "shown", "used"),
    [
        ("Eight [1].", "Eight [1].", [1]),
        ("八点[2]。", "八点[2]。", [2]),
        ("八点【1】。", "八点[1]。", [1]),
        ("both [1, 2]", "both [1][2]", [1, 2]),
        ("both [1，9]", "both [1]", [1]),
        ("none [7].", "none .", []),
        ("资料 [资料1]", "资料 [1]", [1]),
        ("array a[10] stays? no: 10 is no passage", "array a stays? no: 10 is no passage", []),
        ("link [see here] stays", "link [see here] stays", []),
        ("[[1]]", "[[1]]", [1]),
        ("open [", "open ", []),
        ("open [1", "open ", []),
        ("open [note", "open [note", []),
        ("a long [bracket that is text] stays", "a long [bracket that is text] stays", []),
    ],
)
@pytest.mark.parametrize("cuts", [1, 3, 1000])
def test_marks_are_kept_only_when_they_point_at_a_passage(
    text: str, shown: str, used: list[int], cuts: int
) -> None:
    assert run(text, {1, 2}, cuts) == (shown, used)


@given(st.text(alphabet="ab[]［】1239,， \n中", max_size=60), st.integers(1, 7))
def test_streamed_and_whole_text_give_the_same_result_and_no_mark_dangles(
    text: str, cuts: int
) -> None:
    streamed, used = run(text, {1, 2}, cuts)

    assert (streamed, used) == run(text, {1, 2}, 1000)
    assert set(used) <= {1, 2}
    for n in (3, 9, 11):
        assert f"[{n}]" not in streamed


@given(st.text(alphabet="图书馆周末开放。时间九点. one two!\n", max_size=400), st.text(max_size=20))
def test_quote_is_always_verbatim_text_of_the_passage(passage: str, wanted: str) -> None:
    quote = best_quote(passage, wanted)

    assert quote in passage
    assert len(quote) <= QUOTE_CHARS


def test_quote_is_the_sentence_that_answers() -> None:
    passage = "本馆成立于1950年。" * 12 + "周末下午五点闭馆。" + "馆内禁止饮食。" * 12

    assert "周末下午五点闭馆" in best_quote(passage, "图书馆周末几点闭馆？")


def test_forgotten_mark_goes_to_the_passage_that_holds_the_answer() -> None:
    passages = {1: "The fan runs at 12 V.", 2: "The power supply is rated 65 W at 20 V."}

    assert supporting("It is 65 W.", passages, "What is the power supply?") == 2
    assert supporting("完全无关", passages) is None
