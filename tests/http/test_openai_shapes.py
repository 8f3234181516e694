"""One script with the official client, run against the box and against llama-server.

Both answer with the same model, so that what differs is the surface. Compared is what the client's
own types say of a reply: which fields hold what, which error is raised with which status.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from appliance import daemon
from appliance.config import Config, EngineConfig, HttpConfig
from appliance.system.clock import Clock
from tests.peer import LlamaServer
from tests.starters import E5, QWEN, starter

pytestmark = [pytest.mark.model, pytest.mark.slow]

N_CTX = 2048
KEY = "sesame-open"
HELLO = [{"role": "user", "content": "What is the capital of France? One word."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class City(pydantic.BaseModel):
    """What the schema asks for."""

    name: str
    is_capital: bool


def kind(value: object) -> str:
    return type(value).__name__


def usage_of(reply: Any) -> list[str]:  # noqa: ANN401 (chat, completion or chunk)
    usage = reply.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens > 0
    return [kind(usage.prompt_tokens), kind(usage.prompt_tokens_details.cached_tokens)]


def chat(client: openai.OpenAI, model: str) -> object:
    reply = client.chat.completions.create(model=model, messages=HELLO, temperature=0, max_tokens=9)  # type: ignore[arg-type]
    said = reply.choices[0]
    assert "paris" in (said.message.content or "").casefold()
    return [reply.object, said.index, said.finish_reason, said.message.role, usage_of(reply)]


def cut_short(client: openai.OpenAI, model: str) -> object:
    reply = client.chat.completions.create(model=model, messages=HELLO, temperature=0, max_tokens=1)  # type: ignore[arg-type]
    assert reply.usage is not None
    return [reply.choices[0].finish_reason, reply.usage.completion_tokens]


def streamed(client: openai.OpenAI, model: str) -> object:
    chunks = list(
        client.chat.completions.create(
            model=model,
            messages=HELLO,  # type: ignore[arg-type]
            temperature=0,
            max_tokens=9,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(choice.delta.content or "" for choice in told)
    assert "paris" in text.casefold()
    assert len({chunk.id for chunk in chunks}) == 1
    return [
        chunks[0].object,
        told[0].delta.role,
        told[-1].finish_reason,
        [choice.finish_reason for choice in told[:-1]] == [None] * (len(told) - 1),
        chunks[-1].choices,
        usage_of(chunks[-1]),
    ]


def several(client: openai.OpenAI, model: str) -> object:
    reply = client.chat.completions.create(model=model, messages=HELLO, n=2, max_tokens=4)  # type: ignore[arg-type]
    return [sorted(choice.index for choice in reply.choices), usage_of(reply)]


def logprobs(client: openai.OpenAI, model: str) -> object:
    reply = client.chat.completions.create(
        model=model,
        messages=HELLO,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=3,
        logprobs=True,
        top_logprobs=2,
    )
    found = reply.choices[0].logprobs
    assert found is not None
    rows = found.content or []
    assert "".join(row.token for row in rows) == reply.choices[0].message.content
    assert all(row.logprob <= 0 and bytes(row.bytes or ()) == row.token.encode() for row in rows)
    assert all(row.top_logprobs[0].token == row.token for row in rows)
    # llama-server lists the token that ends the answer as well; OpenAI and the box do not.
    return [len(rows[0].top_logprobs), kind(rows[0].logprob)]


def tool_call(client: openai.OpenAI, model: str) -> object:
    reply = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],  # type: ignore[list-item]
        tool_choice="required",
        temperature=0,
        max_tokens=60,
    )
    said = reply.choices[0]
    calls = said.message.tool_calls
    assert calls
    assert calls[0].id
    assert json.loads(calls[0].function.arguments)["city"] == "Paris"  # type: ignore[union-attr]
    return [said.finish_reason, said.message.content or None, calls[0].type]


def tool_call_streamed(client: openai.OpenAI, model: str) -> object:
    with client.chat.completions.stream(
        model=model,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],  # type: ignore[list-item]
        tool_choice="required",
        temperature=0,
        max_tokens=60,
    ) as stream:
        said = stream.get_final_completion().choices[0]
    assert said.message.tool_calls
    arguments = json.loads(said.message.tool_calls[0].function.arguments)
    return [said.finish_reason, said.message.tool_calls[0].function.name, arguments]


def tool_answer(client: openai.OpenAI, model: str) -> object:
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    reply = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "user", "content": "What is the weather in Paris?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": '{"sky": "rain", "celsius": 7}'},
        ],  # type: ignore[arg-type,list-item]
        tools=[WEATHER],  # type: ignore[list-item]
        temperature=0,
        max_tokens=40,
    )
    return kind(reply.choices[0].message.content)


def schema(client: openai.OpenAI, model: str) -> object:
    reply = client.chat.completions.parse(
        model=model,
        messages=[{"role": "user", "content": "Describe Paris as JSON."}],
        response_format=City,
        temperature=0,
        max_tokens=60,
    )
    return [reply.choices[0].finish_reason, kind(reply.choices[0].message.parsed)]


def json_mode(client: openai.OpenAI, model: str) -> object:
    reply = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Give the capital of France as JSON."}],
        response_format={"type": "json_object"},
        temperature=0,
        max_tokens=80,
    )
    return kind(json.loads(reply.choices[0].message.content or ""))


def completion(client: openai.OpenAI, model: str) -> object:
    reply = client.completions.create(
        model=model, prompt="1, 2, 3, 4,", temperature=0, max_tokens=2, stop=["\n"]
    )
    return [
        reply.object,
        reply.choices[0].index,
        reply.choices[0].text.strip()[:1],
        usage_of(reply),
    ]


def banned_token(client: openai.OpenAI, model: str) -> object:
    """The token " Paris" or "Paris" may not be said."""
    rows = client.chat.completions.create(
        model=model,
        messages=HELLO,
        temperature=0,
        max_tokens=1,
        logprobs=True,  # type: ignore[arg-type]
    )
    reply = client.chat.completions.create(
        model=model,
        messages=HELLO,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=1,
        logit_bias={"59604": -100},  # "Paris"
    )
    assert rows.choices[0].message.content == "Paris"
    return reply.choices[0].message.content == "Paris"


def refusal(client: openai.OpenAI, **body: object) -> list[object]:
    with pytest.raises(openai.APIStatusError) as refused:
        client.post("/chat/completions", body=body, cast_to=object)
    return [type(refused.value).__name__, refused.value.status_code, kind(refused.value.message)]


def errors(client: openai.OpenAI, model: str) -> object:
    with openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0) as stranger:
        no_key = refusal(stranger, model=model, messages=HELLO)
    too_long = [{"role": "user", "content": "word " * (N_CTX + 100)}]
    return [
        no_key,
        refusal(client, model=model, messages="hello"),
        refusal(client, model=model, messages=too_long),
        refusal(client, model=model, messages=HELLO, response_format={"type": "xml"}),
    ]


Step = Callable[[openai.OpenAI, str], object]
SCRIPT: tuple[Step, ...] = (
    chat,
    cut_short,
    streamed,
    several,
    logprobs,
    tool_answer,
    schema,
    json_mode,
    completion,
    banned_token,
    errors,
)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    starter(QWEN)
    starter(E5)
    data = tmp_path_factory.mktemp("box")
    (data / "key").write_text(KEY)
    config = Config(
        data=data,
        engine=EngineConfig(n_ctx=N_CTX),
        http=HttpConfig(port=0, api_key_file=str(data / "key")),
    )
    with daemon.open_box(config, Clock(), daemon.make_engine) as found:
        url = f"{found.http.url}/v1"
        deadline = time.monotonic() + 120
        while found.core.engine_status().state == "loading":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=120) as client:
            yield client


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    log: Path = tmp_path_factory.mktemp("peer") / "log"
    server = LlamaServer(
        starter(QWEN), log, "-c", str(2 * N_CTX), "-np", "2", "--jinja", "--api-key", KEY
    )
    server.start()
    with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=120) as client:
        yield client
    server.kill()


@pytest.mark.parametrize("step", SCRIPT, ids=lambda step: step.__name__)
def test_box_and_llama_server_answer_in_the_same_shape(
    box: openai.OpenAI, peer: openai.OpenAI, step: Step
) -> None:
    assert step(box, "qwen2.5-coder-0.5b-instruct") == step(peer, "any")


# With tool_choice "required" this small model gets no call out of llama-server within 60 tokens, so
# there is nothing to compare with; the types of the client are the judge.
def test_box_calls_a_tool_when_it_must(box: openai.OpenAI) -> None:
    model = "qwen2.5-coder-0.5b-instruct"

    assert tool_call(box, model) == ["tool_calls", None, "function"]
    assert tool_call_streamed(box, model) == ["tool_calls", "get_weather", {"city": "Paris"}]
