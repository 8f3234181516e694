"""A whole box whose answers and vectors come from real llama-servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import openai
import pytest

from appliance import daemon
from appliance.client import Client
from appliance.config import (
    Config,
    EngineConfig,
    HttpConfig,
    InboxConfig,
    RemoteConfig,
    RemoteEmbeddingConfig,
)
from appliance.system.clock import Clock
from tests.peer import LlamaServer
from tests.starters import E5, SMOLLM, starter

pytestmark = [pytest.mark.model, pytest.mark.slow]

LIBRARY = "The library closes at five on weekends. The warden's name is Meridian.\n"
HELLO = [{"role": "user", "content": "Count from one to twenty in words."}]


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    log = tmp_path_factory.mktemp("answering") / "log"
    server = LlamaServer(starter(SMOLLM), log, "-c", "4096", "-np", "2", "--alias", "smol")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    log = tmp_path_factory.mktemp("embedding") / "log"
    server = LlamaServer(starter(E5), log, "--embedding", "--pooling", "mean", "--alias", "e5")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def box(
    tmp_path_factory: pytest.TempPathFactory, answering: LlamaServer, embedding: LlamaServer
) -> Iterator[daemon.Box]:
    config = Config(
        data=tmp_path_factory.mktemp("box"),
        engine=EngineConfig(kind="openai", embedding_kind="openai"),
        remote=RemoteConfig(url=answering.url, retry_s=60.0),
        remote_embedding=RemoteEmbeddingConfig(
            url=embedding.url, model="e5", query_prefix="query: ", passage_prefix="passage: "
        ),
        http=HttpConfig(port=0),
        inbox=InboxConfig(settle_s=0.0),
    )
    config = replace(config, assistant=replace(config.assistant, max_answer_tokens=48))
    with daemon.open_box(config, Clock(), daemon.make_engine) as found:
        daemon.announce(found)
        until(lambda: found.core.engine_status().state == "ready")
        yield found


@pytest.fixture
def client(box: daemon.Box) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{box.http.url}/v1", api_key="unused", max_retries=0, timeout=120
    ) as found:
        yield found


def until(claim: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_context_and_model_are_the_servers_own(box: daemon.Box) -> None:
    status = Client(box.http.url).get("/api/status")

    assert status["models"]["generation"] == {"name": "smol", "state": "ready", "n_ctx": 2048}
    assert [(s["role"], s["up"]) for s in status["servers"]] == [
        ("generation", True),
        ("embedding", True),
    ]


def test_chat_whole_and_streamed_agree(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model="smol",
        messages=HELLO,
        temperature=0,
        max_tokens=24,  # type: ignore[arg-type]
    )
    chunks = list(
        client.chat.completions.create(
            model="smol",
            messages=HELLO,  # type: ignore[arg-type]
            temperature=0,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == whole.choices[0].message.content
    assert said
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 24
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_vectors_are_the_servers_and_of_unit_length(box: daemon.Box, client: openai.OpenAI) -> None:
    texts = ["The library closes at five.", "Sharks have no bones.", "When does the library close?"]

    reply = client.embeddings.create(model="e5", input=texts)

    rows = np.array([item.embedding for item in reply.data])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert rows[0] @ rows[2] > rows[1] @ rows[2]


def test_question_is_answered_from_the_documents(box: daemon.Box) -> None:
    (box.config.inbox_dir / "library.txt").write_text(LIBRARY)
    web = Client(box.http.url)

    def is_read() -> bool:
        web.post("/api/kb/rescan")
        stats = web.get("/api/kb/stats")
        return bool(stats["vectors"] and stats["vectors"] == stats["passages"])

    until(is_read)
    with web.ask("When does the library close on weekends?") as events:
        seen = list(events)

    kinds = [kind for kind, _ in seen]
    assert kinds.index("evidence") < kinds.index("delta") < kinds.index("answer")
    assert seen[-1][1]["model"] == "smol"
    assert seen[-1][1]["usage"]["completion_tokens"] > 0


def test_client_that_leaves_frees_the_servers_slot(
    answering: LlamaServer, client: openai.OpenAI
) -> None:
    stream = client.chat.completions.create(
        model="smol",
        messages=HELLO,  # type: ignore[arg-type]
        max_tokens=1500,
        stream=True,
        extra_body={"min_p": 0.0, "logit_bias": {"2": -100}},
    )
    next(iter(stream))
    assert answering.n_running() == 1

    stream.close()

    until(lambda: answering.n_running() == 0, 5)


def test_server_killed_in_the_middle_and_back_loses_no_request(
    box: daemon.Box, answering: LlamaServer, client: openai.OpenAI
) -> None:
    stream = client.chat.completions.create(
        model="smol",
        messages=HELLO,  # type: ignore[arg-type]
        max_tokens=1500,
        stream=True,
        extra_body={"logit_bias": {"2": -100}},
    )
    chunks = iter(stream)
    next(chunks)
    next(chunks)

    answering.kill()
    with pytest.raises(openai.APIError, match="broke off"):
        list(chunks)
    until(lambda: Client(box.http.url).get("/api/status")["state"] == "degraded")

    answers: list[str | None] = []

    def ask() -> None:
        reply = client.chat.completions.create(model="smol", messages=HELLO, max_tokens=8)  # type: ignore[arg-type]
        answers.append(reply.choices[0].message.content)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    until(lambda: box.core.engine_status().servers[0].n_lost > 3)
    answering.start()
    for thread in asking:
        thread.join(60)

    assert len(answers) == 3
    assert all(answers)
    until(lambda: Client(box.http.url).get("/api/status")["state"] == "ready")


def test_prompt_beyond_the_servers_context_names_both_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model="smol", messages=[{"role": "user", "content": "word " * 2500}]
        )

    assert refused.value.code == "context_length_exceeded"
    assert "2048" in refused.value.message
