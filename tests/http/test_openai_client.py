"""The official ``openai`` client, unchanged, against a box in this process."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator

import numpy as np
import openai
import pytest

from appliance.errors import DeviceLostError, QueueFullError
from tests.conftest import Inside, MakeInside
from tests.doubles import ScriptedEngine

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
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"n": 2},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
        {"temperature": 3},
        {"max_tokens": 0},
        {"stop": [""]},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
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

    assert next(iter(extra)) in refused.value.message
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
