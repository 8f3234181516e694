"""The engine behind which another server answers, against one that misbehaves on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.config import RemoteConfig, RemoteEmbeddingConfig
from appliance.engine.base import (
    ANY_TOOL,
    Finished,
    FinishReason,
    GenerationRequest,
    Message,
    Priority,
    QueueUpdate,
    Reasoning,
    Sampling,
    Token,
    ToolCall,
    Usage,
)
from appliance.engine.remote import RemoteAnswers, estimated_tokens
from appliance.engine.remote_embedder import RemoteEmbedder
from appliance.errors import (
    ContextOverflowError,
    EngineError,
    EngineStoppedError,
    QueueFullError,
)
from tests.openai_server import WORDS, OpenAiServer

ASK = GenerationRequest(messages=(Message("user", "你好"),), max_tokens=50)


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    found = OpenAiServer()
    yield found
    found.stop()


MakeAnswers = Callable[..., RemoteAnswers]


@pytest.fixture
def make(server: OpenAiServer) -> Iterator[MakeAnswers]:
    made: list[RemoteAnswers] = []

    def answers(**settings: object) -> RemoteAnswers:
        settings.setdefault("retry_s", 5.0)
        settings.setdefault("url", server.url)
        made.append(RemoteAnswers(RemoteConfig(**settings), n_ctx=4096, max_queue=2))
        return made[-1]

    yield answers
    for found in made:
        found.close()


def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_chat_gives_the_events_of_an_engine(server: OpenAiServer, make: MakeAnswers) -> None:
    events = list(make().generate(ASK))

    assert [event.text for event in events if isinstance(event, Token)] == WORDS
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.text) == (FinishReason.STOP, "".join(WORDS))
    assert last.usage == Usage(9, 6, 4)  # type: ignore[arg-type]
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "你好"}]


def test_request_is_put_into_the_words_of_openai(server: OpenAiServer, make: MakeAnswers) -> None:
    request = GenerationRequest(
        messages=(
            Message("assistant", "", (ToolCall("f", '{"a": 1}', "c1"),)),
            Message("tool", "42", tool_call_id="c1"),
        ),
        max_tokens=5,
        stop=("END",),
        sampling=Sampling(temperature=0, top_p=0.5, seed=3, top_k=7, logit_bias=((5, -100.0),)),
        n=2,
        top_logprobs=2,
        tools='[{"type": "function", "function": {"name": "f"}}]',
        tool_choice=ANY_TOOL,
        json_schema="{}",
    )

    list(make().generate(request))

    body = server.bodies[0]
    assert body["messages"][0]["tool_calls"][0]["function"] == {
        "name": "f",
        "arguments": '{"a": 1}',
    }
    assert body["messages"][1]["tool_call_id"] == "c1"
    expected = {"max_tokens": 5, "stop": ["END"], "temperature": 0, "top_p": 0.5, "seed": 3}
    assert {name: body[name] for name in expected} == expected
    assert (body["n"], body["logprobs"], body["top_logprobs"]) == (2, True, 2)
    assert (body["tool_choice"], body["logit_bias"], body["top_k"]) == ("required", {"5": -100}, 7)
    assert "response_format" not in body
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_extensions_off_sends_only_what_openai_knows(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    answers = make(extensions=False)

    list(answers.generate(ASK))
    with pytest.raises(EngineError, match="remote_no_word"):
        answers.generate(GenerationRequest(messages=ASK.messages, grammar='root ::= "x"'))

    assert "chat_template_kwargs" not in server.bodies[0]


def test_model_and_context_are_what_the_server_lists(make: MakeAnswers) -> None:
    answers = make()

    until(lambda: answers.status().state == "ready")

    assert (answers.status().model, answers.n_ctx) == ("far-model", 2048)
    assert [s.is_up for s in answers.status().servers] == [True]


def test_model_that_the_server_has_not_is_a_problem(make: MakeAnswers) -> None:
    answers = make(model="other")

    until(lambda: answers.status().error == "remote_model_unknown")

    assert "far-model" in str(answers.status().error_facts["known"])


def test_server_that_comes_back_before_the_first_word_loses_no_request(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    answers = make()
    server.stop()
    generation = answers.generate(ASK)
    events = []
    reader = threading.Thread(target=lambda: events.extend(generation))
    reader.start()
    until(lambda: answers.status().servers[0].n_lost > 0)
    assert answers.status().error == "remote_unreachable"

    server.start()
    reader.join(10)

    assert isinstance(events[-1], Finished)
    assert events[-1].text == "".join(WORDS)
    assert any(isinstance(event, QueueUpdate) for event in events)
    assert answers.status().state == "ready"


def test_server_that_stays_away_is_an_error_that_names_it(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    answers = make(retry_s=0.5)
    server.stop()

    with pytest.raises(EngineStoppedError) as refused:
        list(answers.generate(ASK))

    assert (refused.value.code, refused.value.facts["url"]) == ("remote_unreachable", server.url)


def test_stream_cut_off_in_the_middle_is_never_begun_again(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    server.plan = [("cut", 2)]
    answers, said = make(), []

    with pytest.raises(EngineStoppedError, match="remote_broke_off"):
        said.extend(map(said.append, answers.generate(ASK)))

    assert len(server.bodies) == 1
    assert [event.text for event in said if isinstance(event, Token)] == WORDS[:2]
    assert isinstance(list(answers.generate(ASK))[-1], Finished)


def test_stream_cut_off_before_the_first_word_is_tried_again(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    server.plan = [("cut", 0), ("status", 503, {}), ("status", 429, {"retry-after": "1"})]

    events = list(make().generate(ASK))

    assert len(server.bodies) == 4
    assert isinstance(events[-1], Finished)


def test_busy_server_is_429_with_its_own_hint(server: OpenAiServer, make: MakeAnswers) -> None:
    server.plan = [("status", 429, {"retry-after": "77"})]

    with pytest.raises(QueueFullError) as refused:
        list(make().generate(ASK))

    assert (refused.value.code, refused.value.facts["retry_after_s"]) == ("remote_busy", 77)


def test_refusal_is_passed_on_with_the_servers_sentence(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    server.plan = [("status", 400, {}, {"error": {"message": "no such field"}})]

    with pytest.raises(EngineError) as refused:
        list(make().generate(ASK))

    assert refused.value.code == "remote_refused"
    assert refused.value.facts["cause"] == "no such field"


def test_prompt_too_long_for_the_server_names_both_numbers(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    told = {"message": "too long", "n_prompt_tokens": 5000, "n_ctx": 2048}
    server.plan = [("status", 400, {}, {"error": told})]

    with pytest.raises(ContextOverflowError) as refused:
        list(make().generate(ASK))

    assert refused.value.facts == {"n_prompt_tokens": 5000, "n_ctx": 2048}


def test_error_inside_the_stream_is_raised(server: OpenAiServer, make: MakeAnswers) -> None:
    server.plan = [("chunks", [{"error": {"message": "out of memory"}}])]

    with pytest.raises(EngineError, match="out of memory"):
        list(make().generate(ASK))


def test_page_that_is_no_api_is_nonsense_not_a_crash(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    server.plan = [("chunks", [{"choices": [{"index": 7, "delta": {"content": "x"}}]}])]

    with pytest.raises(EngineError, match="remote_nonsense"):
        list(make().generate(ASK))


def test_key_from_the_file_is_sent_and_a_wrong_one_named(make: MakeAnswers, tmp_path: Path) -> None:
    guarded = OpenAiServer(key="sesame-open")
    try:
        file = tmp_path / "key"
        file.write_text("sesame-open\n")
        list(make(url=guarded.url, api_key_file=str(file)).generate(ASK))
        file.write_text("wrong")
        with pytest.raises(EngineError, match="remote_key_refused"):
            list(make(url=guarded.url, api_key_file=str(file)).generate(ASK))
    finally:
        guarded.stop()


def test_cancel_closes_the_connection(server: OpenAiServer, make: MakeAnswers) -> None:
    server.plan = [("silent",)]
    generation = make().generate(ASK)
    events = []
    reader = threading.Thread(target=lambda: events.extend(generation))
    reader.start()
    until(lambda: server.n_running == 1)

    generation.cancel()
    reader.join(5)

    assert not reader.is_alive()
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.CANCELLED
    until(lambda: server.n_running == 0)


def test_cancel_while_the_server_is_away_ends_at_once(
    server: OpenAiServer, make: MakeAnswers
) -> None:
    answers = make(retry_s=60.0)
    server.stop()
    generation = answers.generate(ASK)
    events = []
    reader = threading.Thread(target=lambda: events.extend(generation))
    reader.start()
    until(lambda: answers.status().servers[0].n_lost > 0)

    generation.cancel()
    reader.join(5)

    assert not reader.is_alive()
    assert answers.status().n_running == 0


def test_turns_are_fair_and_the_queue_is_bounded(server: OpenAiServer, make: MakeAnswers) -> None:
    answers = make(n_parallel=1)
    first = answers.generate(GenerationRequest(messages=ASK.messages, client="a"))
    second = answers.generate(GenerationRequest(messages=ASK.messages, client="a"))
    third = answers.generate(GenerationRequest(messages=ASK.messages, client="b"))
    with pytest.raises(QueueFullError):
        answers.generate(ASK)
    assert (answers.status().n_running, answers.status().n_waiting) == (1, 2)

    list(first)
    single = list(third)
    double = list(second)

    assert not any(isinstance(event, QueueUpdate) for event in single)
    assert isinstance(double[-1], Finished)


def test_thoughts_and_tool_calls_become_ours(server: OpenAiServer, make: MakeAnswers) -> None:
    def delta(**fields: object) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}

    def call(index: int, **function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "id": "x", "function": function}])

    server.plan = [
        (
            "chunks",
            [
                delta(reasoning_content="hm"),
                call(0, name="f", arguments=""),
                call(0, arguments='{"a":'),
                call(0, arguments=" 1}"),
                call(1, name="g", arguments="{}"),
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
            ],
        )
    ]

    events = list(make().generate(ASK))

    assert [event.text for event in events if isinstance(event, Reasoning)] == ["hm"]
    assert isinstance(events[-1], Finished)
    assert events[-1].text == (
        '\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
        '\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
    )


def test_close_ends_a_running_answer(server: OpenAiServer, make: MakeAnswers) -> None:
    server.plan = [("silent",)]
    answers = make()
    generation = answers.generate(ASK)
    reader = threading.Thread(target=lambda: list(generation))
    reader.start()
    until(lambda: server.n_running == 1)

    answers.close()
    reader.join(5)

    assert not reader.is_alive()
    with pytest.raises(EngineStoppedError):
        answers.generate(ASK)


def test_estimate_is_on_the_high_side_for_plain_text() -> None:
    assert estimated_tokens("图书馆几点关门") == 7
    assert estimated_tokens("When does the library close?") == 10


# --------------------------------------------------------------------------------------------------
# embeddings


def embedder(server: OpenAiServer, **settings: object) -> RemoteEmbedder:
    return RemoteEmbedder(
        RemoteEmbeddingConfig(**{"url": server.url, "model": "far", "batch": 2, **settings})
    )


def test_vectors_are_unit_length_and_in_the_order_of_the_texts(server: OpenAiServer) -> None:
    found = embedder(server, passage_prefix="passage: ")

    vectors = found.embed(["a", "bbb", "cc"], "passage", Priority.INGEST_EMBED)

    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    assert vectors[1][0] > vectors[2][0] > vectors[0][0]
    assert [body["input"] for body in server.bodies] == [
        ["passage: a", "passage: bbb"],
        ["passage: cc"],
    ]
    assert (found.n_embd, found.n_embedded) == (3, 3)


def test_embedding_is_tried_again_while_the_server_is_away(server: OpenAiServer) -> None:
    server.plan = [("status", 503, {}), ("status", 502, {})]

    vectors = embedder(server).embed(["a"], "query", Priority.QUERY_EMBED)

    assert vectors.shape == (1, 3)


def test_embedder_away_for_good_is_an_error_and_shown(server: OpenAiServer) -> None:
    found = embedder(server, retry_s=0.3)
    server.stop()

    with pytest.raises(EngineStoppedError, match="remote_unreachable"):
        found.embed(["a"], "query", Priority.QUERY_EMBED)

    assert found.server_status().is_up is False


def test_embedder_of_another_model_or_prefix_has_another_identity(server: OpenAiServer) -> None:
    ids = {
        embedder(server).embedder_id,
        embedder(server, model="near").embedder_id,
        embedder(server, query_prefix="query: ").embedder_id,
    }

    assert len(ids) == 3


def test_text_too_long_to_embed_names_both_lengths(server: OpenAiServer) -> None:
    with pytest.raises(ContextOverflowError) as refused:
        embedder(server, max_tokens=64).embed(["x" * 5000], "passage", Priority.INGEST_EMBED)

    assert refused.value.facts == {"n_prompt_tokens": 625, "n_ctx": 64}
