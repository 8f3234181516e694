from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.base import FinishReason, GenerationRequest, Message, Reasoning
from appliance.engine.llama import LlamaEngine
from appliance.engine.textstream import TextStream
from appliance.engine.thinking import CLOSE, OPEN, ThoughtSplitter
from tests.engine.conftest import GREEDY, MakeEngine, finished, shown
from tests.tiny_gguf import write_tiny_llama

ALWAYS_THINKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n<think>\n"
)
FRAGMENTS = st.sampled_from([OPEN, CLOSE, "<", "</", "think", "nk>", ">", "\n", " ", "想", "a🙂"])


def split(pieces: list[str], *, is_thinking: bool = False) -> tuple[str, str]:
    splitter = ThoughtSplitter(is_thinking=is_thinking)
    parts = [splitter.feed(piece) for piece in pieces] + [splitter.finish()]
    return "".join(said for said, _ in parts), "".join(thought for _, thought in parts)


@pytest.mark.parametrize(
    ("text", "said", "thought"),
    [
        ("<think>\n先想。\n</think>\n\n答案。", "答案。", "先想。"),
        ("plain < text </thin", "plain < text </thin", ""),
        ("<think>never closed", "", "never closed"),
        ("stray</think> mark", "straymark", ""),
        ("<think>a\n\nb</think>c<think>d</think>", "c", "a\n\nbd"),
    ],
    ids=["usual", "almost a tag", "unclosed", "stray", "twice"],
)
def test_thought_and_speech_come_apart(text: str, said: str, thought: str) -> None:
    assert split([text]) == (said, thought)
    assert split(list(text)) == (said, thought)


def test_text_after_an_open_tag_in_the_prompt_is_thought() -> None:
    assert split(["想\n</th", "ink>\n好"], is_thinking=True) == ("好", "想")


@given(st.lists(FRAGMENTS, max_size=30), st.data())
def test_cutting_changes_nothing_and_no_tag_is_ever_shown(
    fragments: list[str], data: st.DataObject
) -> None:
    text = "".join(fragments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    said, thought = split(pieces)

    assert (said, thought) == split([text])
    for tag in (OPEN, CLOSE):
        assert tag not in said
        assert tag not in thought


@given(st.text(alphabet="ab<>中🙂 \n", max_size=40))
def test_text_without_tags_passes_unchanged(text: str) -> None:
    assert split(list(text)) == (text, "")


def test_bytes_of_a_character_and_of_a_tag_may_be_cut_anywhere() -> None:
    stream = TextStream(("。",), ThoughtSplitter())
    said = [stream.feed(bytes([byte])) for byte in "<think>想。</think>好。no".encode()]

    assert ("".join(said), stream.take_thought(), stream.is_stopped) == ("好", "想。", True)


# --------------------------------------------------------------------------------------------------
# in the engine


def ask(**more: object) -> GenerationRequest:
    return GenerationRequest(
        messages=(Message("user", "你好"),),
        max_tokens=60,
        sampling=GREEDY,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def thinker(make_engine: MakeEngine, tmp_path: Path) -> LlamaEngine:
    return make_engine(write_tiny_llama(tmp_path / "thinks.gguf", template=ALWAYS_THINKS))


def test_thinking_is_kept_apart_and_ends_at_its_budget(thinker: LlamaEngine) -> None:
    events = list(thinker.generate(ask(thinking=True, thinking_budget=8)))

    last = finished(events)
    thought = "".join(event.text for event in events if isinstance(event, Reasoning))
    assert last.reasoning == thought != ""
    assert last.text == shown(events) != ""
    assert CLOSE not in last.text + last.reasoning
    # eight of its own, then the nine bytes of the closing tag and the line break before it
    assert last.usage.reasoning_tokens == 8 + 1 + len(CLOSE)
    assert last.usage.completion_tokens == 60


def test_model_that_always_thinks_is_made_to_speak_when_thinking_is_off(
    thinker: LlamaEngine,
) -> None:
    last = finished(list(thinker.generate(ask())))

    assert (last.reasoning, last.usage.reasoning_tokens) == ("", 0)
    assert last.text


def test_without_a_budget_a_thought_may_fill_the_answer(thinker: LlamaEngine) -> None:
    last = finished(list(thinker.generate(ask(thinking=True))))

    assert (last.reason, last.text) == (FinishReason.LENGTH, "")
    assert last.usage.reasoning_tokens == 60
    assert last.reasoning


def test_grammar_rules_what_is_said_and_not_what_is_thought(thinker: LlamaEngine) -> None:
    request = ask(thinking=True, thinking_budget=4, grammar='root ::= "是" | "否"')

    last = finished(list(thinker.generate(request)))

    assert last.text in ("是", "否")
    assert last.reason is FinishReason.STOP
    assert last.reasoning
