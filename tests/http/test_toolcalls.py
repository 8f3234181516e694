"""Tool calls in a stream of text, whatever the pieces it comes in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.frontends.http.toolcalls import CallArguments, CallSplitter, CallStart

NAMES = ("get_weather", "add")
WEATHER = '{"name": "get_weather", "arguments": {"city": "巴黎 }\\" {", "days": [1, {"a": 2}]}}'
ARGUMENTS = {"city": '巴黎 }" {', "days": [1, {"a": 2}]}

CASES = {
    "tags": (f"<tool_call>\n{WEATHER}\n</tool_call>", "", [("get_weather", ARGUMENTS)]),
    "text before": (
        f"I look.\n<tool_call>\n{WEATHER}\n</tool_call>",
        "I look.",
        [("get_weather", ARGUMENTS)],
    ),
    "two calls": (
        f"<tool_call>{WEATHER}</tool_call>\n"
        '<tool_call>{"name": "add", "arguments": {}}</tool_call>',
        "",
        [("get_weather", ARGUMENTS), ("add", {})],
    ),
    "keys in another order": (
        '<tool_call>{"arguments": {"x": 1}, "name": "add"}</tool_call>',
        "",
        [("add", {"x": 1})],
    ),
    "no tags": (WEATHER, "", [("get_weather", ARGUMENTS)]),
    "a fence": (f"```json\n{WEATHER}\n```", "", [("get_weather", ARGUMENTS)]),
    "wrong tags": (f"<tools>\n{WEATHER}\n</tools>", "", [("get_weather", ARGUMENTS)]),
    "Llama's word": ('{"name": "add", "parameters": {"x": 1}}', "", [("add", {"x": 1})]),
    "another name without tags": (
        '{"name": "Meridian", "arguments": {}}',
        '{"name": "Meridian", "arguments": {}}',
        [],
    ),
    "some other object": ('{"title": "x", "n": 1}', '{"title": "x", "n": 1}', []),
    "plain text": ("Hello < tool_call> {world}", "Hello < tool_call> {world}", []),
    "a fence of code": ("```python\nprint(1)\n```", "```python\nprint(1)\n```", []),
    "no JSON between the tags": (
        "<tool_call>get_weather(Paris)</tool_call> sorry",
        "<tool_call>get_weather(Paris)</tool_call> sorry",
        [],
    ),
    "an open tag at the end": ("a <tool_", "a <tool_", []),
    "empty": ("", "", []),
}


def split(pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    splitter = CallSplitter(NAMES)
    found = [piece for text in pieces for piece in splitter.feed(text)]
    found += splitter.finish()
    calls: list[tuple[str, str]] = []
    for piece in found:
        if isinstance(piece, CallStart):
            assert piece.index == len(calls)
            calls.append((piece.name, ""))
        elif isinstance(piece, CallArguments):
            calls[piece.index] = (calls[piece.index][0], calls[piece.index][1] + piece.text)
    return "".join(piece for piece in found if isinstance(piece, str)), calls


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_calls_and_text_are_told_apart(
    case: tuple[str, str, list[tuple[str, dict[str, object]]]], step: int
) -> None:
    text, said, expected = case

    rest, calls = split([text[at : at + step] for at in range(0, len(text), step)])

    assert [(name, json.loads(arguments)) for name, arguments in calls] == expected
    assert rest == said


@given(
    st.lists(st.sampled_from(["<tool_call>", "</tool_call>", "{", '"name"', "x", "\n", "}", " "]))
)
def test_text_without_a_call_is_never_lost(pieces: list[str]) -> None:
    rest, calls = split(pieces)

    if not calls:
        assert rest.split() == "".join(pieces).split()


def test_arguments_come_before_the_call_is_whole() -> None:
    splitter = CallSplitter(NAMES)

    found = list(splitter.feed('<tool_call>{"name": "add", "arguments": {"x": "ab'))

    assert isinstance(found[0], CallStart)
    assert found[1] == CallArguments(0, '{"x": "ab')
