"""The official ``openai`` client, unchanged, against a box in this process."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pydantic
import pytest

from appliance.config import HttpConfig
from appliance.engine.base import ToolCall
from appliance.errors import DeviceLostError, EngineError, QueueFullError
from tests.conftest import Inside, MakeInside
from tests.doubles import THINKS, ScriptedEngine

LIBRARY = "图书馆周末几点关门？周末下午五点关门。周一至周五晚上八点关门。\n"
HELLO = [{"role": "user", "content": "你好"}]


@pytest.fixture
def client(inside: Inside) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{inside.box.http.url}/v1", api_key="unused", max_retries=0
    ) as found:
        yield found


def test_chat_not_streamed(inside: Inside, client: openai.OpenAI) -> None:
    inside.engine.answers = ["你好！有什么可以帮您？"]

    reply = client.chat.completions.create(model="scripted", messages=HELLO)  # type: ignore[arg-type]

    assert reply.choices[0].message.content == "你好！有什么可以帮您？"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.object == "chat.completion"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 11
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 11


def test_chat_streamed(inside: Inside, client: openai.OpenAI) -> None:
    inside.engine.answers = ["你好！有什么可以帮您？"]

    chunks = list(
        client.chat.completions.create(
            model="scripted",
            messages=HELLO,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "你好！有什么可以帮您？"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 11
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_passes_every_setting_on(inside: Inside, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="scripted",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        ],
        max_completion_tokens=7,
        temperature=0.5,
        top_p=0.9,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        seed=3,
        stop=["END"],
        user="class-5",
        extra_body={"top_k": 5, "min_p": 0.01, "repeat_penalty": 1.1},
    )

    request = inside.engine.requests[0]
    assert [(m.role, m.content) for m in request.messages] == [
        ("system", "Be brief."),
        ("user", "Hello"),
    ]
    assert (request.max_tokens, request.stop, request.client) == (7, ("END",), "class-5")
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 5)
    assert (sampling.min_p, sampling.repeat_penalty, sampling.seed) == (0.01, 1.1, 3)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.1, 0.2)


def test_chat_cut_at_max_tokens_says_length(inside: Inside, client: openai.OpenAI) -> None:
    inside.engine.answers = ["一二三四五"]

    reply = client.chat.completions.create(model="scripted", messages=HELLO, max_tokens=2)  # type: ignore[arg-type]

    assert reply.choices[0].message.content == "一二"
    assert reply.choices[0].finish_reason == "length"


def test_documents_model_answers_with_citations(inside: Inside, client: openai.OpenAI) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点[1]。"]

    reply = client.chat.completions.create(
        model="documents",
        messages=[{"role": "user", "content": "图书馆周末几点关门？"}],
    )

    assert reply.choices[0].message.content == "下午五点[1]。"
    assert reply.model_extra is not None
    assert reply.model_extra["citations"][0]["path"] == "图书馆.txt"
    assert reply.model_extra["refused"] is False
    assert inside.client.get("/api/conversations") == {"conversations": []}


def test_documents_model_streamed_sends_evidence_first_and_citations_last(
    inside: Inside, client: openai.OpenAI
) -> None:
    inside.put("图书馆.txt", LIBRARY)
    inside.engine.answers = ["下午五点[1]。"]

    chunks = list(
        client.chat.completions.create(
            model="documents",
            messages=[{"role": "user", "content": "图书馆周末几点关门？"}],
            stream=True,
        )
    )

    assert (chunks[0].model_extra or {})["evidence"][0]["path"] == "图书馆.txt"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "下午五点[1]。"
    assert (chunks[-1].model_extra or {})["citations"][0]["n"] == 1


def test_documents_model_uses_the_turns_that_the_client_sends(
    inside: Inside, client: openai.OpenAI
) -> None:
    inside.put("图书馆.txt", LIBRARY)

    client.chat.completions.create(
        model="documents",
        messages=[
            {"role": "user", "content": "图书馆周末几点关门？"},
            {"role": "assistant", "content": "下午五点。"},
            {"role": "user", "content": "那周五呢？"},
        ],
    )

    assert "下午五点。" in inside.engine.prompts[-1]


def test_documents_model_refuses_as_a_complete_answer(
    inside: Inside, client: openai.OpenAI
) -> None:
    chunks = list(
        client.chat.completions.create(
            model="documents",
            messages=[{"role": "user", "content": "图书馆周末几点关门？"}],
            stream=True,
        )
    )

    assert "还没有任何文档" in "".join(c.choices[0].delta.content or "" for c in chunks)
    assert (chunks[-1].model_extra or {})["reason"] == "no_documents"
    assert inside.engine.requests == []


def test_completions_continues_a_prompt(inside: Inside, client: openai.OpenAI) -> None:
    inside.engine.answers = [" world", " world"]

    whole = client.completions.create(model="scripted", prompt="hello")
    streamed = client.completions.create(model="scripted", prompt="hello", stream=True)

    assert whole.choices[0].text == " world"
    assert "".join(chunk.choices[0].text for chunk in streamed) == " world"
    assert inside.engine.requests[0].prompt == "hello"


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_are_unit_vectors_in_order(
    inside: Inside, client: openai.OpenAI, encoding: str
) -> None:
    texts = ["图书馆几点关门", "What is the warranty?"]

    reply = client.embeddings.create(
        model="multilingual-e5-small",
        input=texts,
        encoding_format=encoding,  # type: ignore[arg-type]
    )

    rows = [
        np.frombuffer(base64.b64decode(item.embedding), "<f4")  # type: ignore[arg-type]
        if isinstance(item.embedding, str)
        else np.array(item.embedding, np.float32)
        for item in reply.data
    ]
    expected = inside.box.core.embed(texts, "passage")
    np.testing.assert_allclose(np.stack(rows), expected, atol=1e-6)
    assert reply.usage.prompt_tokens > 0


def test_embeddings_default_of_the_client_is_understood(client: openai.OpenAI) -> None:
    # The client asks for base64 by itself and decodes it.
    reply = client.embeddings.create(model="multilingual-e5-small", input="关门")

    assert len(reply.data[0].embedding) == 384
    assert abs(sum(value * value for value in reply.data[0].embedding) - 1) < 1e-5


def test_models_lists_the_model_documents_and_the_embedder(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]

    assert names[:2] == ["scripted", "qwen2.5-coder-0.5b-instruct"]
    assert "documents" in names
    assert client.models.retrieve("documents").id == "documents"


def test_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="gpt-4o", messages=HELLO)  # type: ignore[arg-type]

    assert refused.value.code == "model_not_found"
    assert "documents" in refused.value.message


def test_prompt_longer_than_the_context_names_both_numbers(
    make_inside: MakeInside,
) -> None:
    inside = make_inside(ScriptedEngine(default="x", n_ctx=100))
    with (
        openai.OpenAI(base_url=f"{inside.box.http.url}/v1", api_key="x", max_retries=0) as client,
        pytest.raises(openai.BadRequestError) as refused,
    ):
        client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": "长" * 200}]
        )

    assert refused.value.code == "context_length_exceeded"
    assert "100" in refused.value.message


def test_full_queue_is_429_with_a_hint(inside: Inside, client: openai.OpenAI) -> None:
    inside.engine.answers = [QueueFullError(n_waiting=32, retry_after_s=40)]

    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model="scripted", messages=HELLO)  # type: ignore[arg-type]

    assert refused.value.response.headers["retry-after"] == "40"
    assert "32" in refused.value.message


def test_failure_in_the_middle_of_a_stream_is_raised_by_the_client(
    inside: Inside, client: openai.OpenAI
) -> None:
    inside.engine.answers = [DeviceLostError(cause="test")]

    with pytest.raises(openai.APIError, match="NPU failed"):
        list(client.chat.completions.create(model="scripted", messages=HELLO, stream=True))  # type: ignore[call-overload]


@pytest.mark.parametrize("state", ["loading", "stopped"])
def test_model_that_is_not_ready_is_503(make_inside: MakeInside, state: str) -> None:
    inside = make_inside(ScriptedEngine(default="x", state=state))  # type: ignore[arg-type]
    with (
        openai.OpenAI(base_url=f"{inside.box.http.url}/v1", api_key="x", max_retries=0) as client,
        pytest.raises(openai.InternalServerError) as refused,
    ):
        client.chat.completions.create(model="scripted", messages=HELLO)  # type: ignore[arg-type]

    assert refused.value.status_code == 503
    assert "retry-after" in refused.value.response.headers


@pytest.mark.parametrize(
    "extra",
    [
        {"tools": [{"type": "function", "function": {"name": "no name"}}]},
        {"tools": [{"type": "web_search"}]},
        {"tool_choice": "required"},
        {"functions": [{"name": "f"}]},
        {"n": 17},
        {"top_logprobs": 2},
        {"logprobs": True, "top_logprobs": 21},
        {"logit_bias": {"x": 1}},
        {"logit_bias": {"5": 101}},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
        {"reasoning_effort": "some"},
        {"temperature": 3},
        {"max_tokens": 0},
        {"stop": [""]},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_what_is_not_offered_or_wrong_is_refused_by_name(
    inside: Inside, client: openai.OpenAI, extra: dict[str, object]
) -> None:
    body = {"model": "scripted", "messages": HELLO, **extra}

    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/chat/completions", body=body, cast_to=object)

    assert next(reversed(extra)) in refused.value.message
    assert inside.engine.requests == []


def test_stream_closed_by_the_client_stops_the_answer(
    inside: Inside, client: openai.OpenAI
) -> None:
    inside.engine.token_delay_s = 0.05
    inside.engine.answers = ["很" * 2000]
    stream = client.chat.completions.create(model="scripted", messages=HELLO, stream=True)  # type: ignore[call-overload]
    next(iter(stream))

    stream.close()

    deadline = time.monotonic() + 2
    while inside.engine.n_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert inside.engine.n_running == 0
    assert inside.engine.tokens_decoded < 100


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "巴黎"}}\n</tool_call>'


def test_tool_call_not_streamed(inside: Inside, client: openai.OpenAI) -> None:
    inside.engine.answers = [CALL]

    reply = client.chat.completions.create(model="scripted", messages=HELLO, tools=[WEATHER])  # type: ignore[call-overload]

    choice = reply.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls[0].function.name == "get_weather"
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "巴黎"}
    assert json.loads(inside.engine.requests[0].tools or "") == [WEATHER]


def test_tool_call_streamed_is_what_the_client_puts_together(
    inside: Inside, client: openai.OpenAI
) -> None:
    inside.engine.answers = [f"I look.\n{CALL}"]

    with client.chat.completions.stream(
        model="scripted",
        messages=HELLO,  # type: ignore[arg-type]
        tools=[WEATHER],  # type: ignore[list-item]
    ) as stream:
        final = stream.get_final_completion()

    choice = final.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.arguments == '{"city": "巴黎"}'


def test_tool_choice_holds_the_model_to_a_call(inside: Inside, client: openai.OpenAI) -> None:
    inside.engine.answers = ['{"name":"get_weather","arguments":{"city":"巴黎"}}']
    named = {"type": "function", "function": {"name": "get_weather"}}

    reply = client.chat.completions.create(
        model="scripted",
        messages=HELLO,  # type: ignore[arg-type]
        tools=[WEATHER],  # type: ignore[list-item]
        tool_choice=named,  # type: ignore[arg-type]
    )

    schema = json.loads(inside.engine.requests[0].json_schema or "")
    assert schema["properties"]["name"] == {"const": "get_weather"}
    assert inside.engine.requests[0].tool_choice == "get_weather"
    assert reply.choices[0].message.tool_calls is not None
    assert reply.choices[0].message.content is None


def test_tool_choice_none_offers_no_tool(inside: Inside, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="scripted",
        messages=HELLO,  # type: ignore[arg-type]
        tools=[WEATHER],  # type: ignore[list-item]
        tool_choice="none",
    )

    assert inside.engine.requests[0].tools is None


def test_answers_of_tools_go_back_to_the_model(inside: Inside, client: openai.OpenAI) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    client.chat.completions.create(
        model="scripted",
        messages=[
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],  # type: ignore[arg-type]
        tools=[WEATHER],  # type: ignore[list-item]
    )

    asked = inside.engine.requests[0].messages
    assert asked[1].tool_calls == (ToolCall("f", '{"a": 1}', "c1"),)
    assert (asked[2].role, asked[2].tool_call_id, asked[2].content) == ("tool", "c1", "42")


def test_schema_is_passed_on_and_parsed_by_the_client(
    inside: Inside, client: openai.OpenAI
) -> None:
    class City(pydantic.BaseModel):
        name: str
        people: int

    inside.engine.answers = ['{"name": "巴黎", "people": 2}', "{}"]

    parsed = client.chat.completions.parse(model="scripted", messages=HELLO, response_format=City)  # type: ignore[arg-type]
    client.chat.completions.create(
        model="scripted",
        messages=HELLO,  # type: ignore[arg-type]
        response_format={"type": "json_object"},
    )

    assert parsed.choices[0].message.parsed == City(name="巴黎", people=2)
    schemas = [json.loads(request.json_schema or "") for request in inside.engine.requests]
    assert schemas[0]["properties"]["people"]["type"] == "integer"
    assert schemas[1] == {"type": "object"}


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
def test_several_answers_with_log_probabilities(
    inside: Inside, client: openai.OpenAI, is_stream: bool
) -> None:
    inside.engine.answers = ["好的"]
    settings = {"model": "scripted", "messages": HELLO, "n": 2, "logprobs": True, "top_logprobs": 1}

    if is_stream:
        with client.chat.completions.stream(**settings) as stream:  # type: ignore[arg-type]
            reply = stream.get_final_completion()
    else:
        reply = client.chat.completions.create(**settings)  # type: ignore[call-overload]

    assert [choice.index for choice in reply.choices] == [0, 1]
    assert [choice.message.content for choice in reply.choices] == ["好的", "好的"]
    rows = reply.choices[1].logprobs.content
    assert [(row.token, row.logprob, row.bytes) for row in rows] == [
        ("好", -0.5, list("好".encode())),
        ("的", -0.5, list("的".encode())),
    ]
    assert [top.token for top in rows[0].top_logprobs] == ["0"]


def test_log_probabilities_of_a_completion(inside: Inside, client: openai.OpenAI) -> None:
    inside.engine.answers = ["好的"]

    reply = client.completions.create(model="scripted", prompt="x", logprobs=1)

    found = reply.choices[0].logprobs
    assert found is not None
    assert (found.tokens, found.token_logprobs, found.text_offset) == (
        ["好", "的"],
        [-0.5, -0.5],
        [0, 1],
    )
    assert found.top_logprobs == [{"0": -1.0}, {"0": -1.0}]


def test_several_answers_count_the_prompt_once(inside: Inside, client: openai.OpenAI) -> None:
    one = client.chat.completions.create(model="scripted", messages=HELLO)  # type: ignore[arg-type]
    two = client.chat.completions.create(model="scripted", messages=HELLO, n=2)  # type: ignore[arg-type]

    assert one.usage is not None
    assert two.usage is not None
    assert two.usage.prompt_tokens == one.usage.prompt_tokens
    assert two.usage.completion_tokens == 2 * one.usage.completion_tokens


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
def test_thoughts_are_kept_apart(inside: Inside, client: openai.OpenAI, is_stream: bool) -> None:
    inside.engine.default = f"hm{THINKS}好的"

    replies = [
        client.chat.completions.create(
            model="scripted",
            messages=HELLO,
            stream=is_stream,
            **asked,  # type: ignore[call-overload]
        )
        for asked in (
            {},
            {"reasoning_effort": "low"},
            {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
        )
    ]

    def fields(reply: object) -> list[str]:
        if is_stream:
            deltas = [c.choices[0].delta for c in reply if c.choices]  # type: ignore[attr-defined]
        else:
            deltas = [reply.choices[0].message]  # type: ignore[attr-defined]
        thought = "".join((d.model_extra or {}).get("reasoning_content") or "" for d in deltas)
        return [thought, "".join(d.content or "" for d in deltas)]

    assert [fields(reply) for reply in replies] == [["", "好的"], ["hm", "好的"], ["hm", "好的"]]


def test_place_in_the_queue_is_a_comment_of_the_stream(inside: Inside) -> None:
    body = json.dumps({"model": "scripted", "messages": HELLO, "stream": True}).encode()
    request = urllib.request.Request(
        f"{inside.box.http.url}/v1/chat/completions", body, {"content-type": "application/json"}
    )

    with urllib.request.urlopen(request) as reply:
        lines = reply.read().decode().split("\n\n")

    assert lines[0] == ": queue position=1 wait_s=0.0"
    assert lines[1].startswith(": prompt ")
    assert lines[-2] == "data: [DONE]"


def test_documents_model_refuses_tools_by_name(inside: Inside, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(model="documents", messages=HELLO, tools=[WEATHER])  # type: ignore[call-overload]


@pytest.mark.parametrize("code", ["bad_sampling", "bad_grammar", "bad_schema", "tools_unsupported"])
def test_what_the_engine_refuses_is_a_bad_request(
    inside: Inside, client: openai.OpenAI, code: str
) -> None:
    inside.engine.answers = [EngineError(code, cause="x", model="m", field="n", value="0")]

    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="scripted", messages=HELLO)  # type: ignore[arg-type]

    assert (refused.value.code, refused.value.type) == (code, "invalid_request_error")


def test_wrong_key_is_an_authentication_error(make_inside: MakeInside, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sesame-open")
    inside = make_inside(
        ScriptedEngine(default="x"), http=HttpConfig(port=0, api_key_file=str(file))
    )

    with (
        openai.OpenAI(base_url=f"{inside.box.http.url}/v1", api_key="x", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        client.models.list()

    assert refused.value.code == "invalid_api_key"


def test_body_too_large_is_413(inside: Inside, client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        client.embeddings.create(model="multilingual-e5-small", input=["x" * (33 << 20)])

    assert refused.value.status_code == 413
