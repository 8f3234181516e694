from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.base import Finished, GenerationEvent, GenerationRequest, Sampling, Token
from appliance.engine.llama import LlamaEngine
from tests.starters import E5, QWEN, starter
from tests.tiny_gguf import write_tiny_llama

GREEDY = Sampling(temperature=0)
MakeEngine = Callable[..., LlamaEngine]


def wait_ready(engine: LlamaEngine, timeout_s: float = 60.0) -> LlamaEngine:
    """Wait until loading has ended, one way or the other."""
    deadline = time.monotonic() + timeout_s
    while engine.status().state == "loading":
        assert time.monotonic() < deadline, "still loading"
        time.sleep(0.002)
    return engine


def finished(events: list[GenerationEvent]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


def shown(events: list[GenerationEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Token))


def raw(prompt: str, n_tokens: int = 16, **more: Any) -> GenerationRequest:  # noqa: ANN401
    return GenerationRequest(prompt=prompt, max_tokens=n_tokens, sampling=GREEDY, **more)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def slow_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random too, but wide enough that a prompt of a thousand tokens takes a good second."""
    return write_tiny_llama(
        tmp_path_factory.mktemp("slow") / "slow.gguf", n_embd=512, n_layer=8, n_ff=2048
    )


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    made: list[LlamaEngine] = []

    def make(model: Path | None, embedder: Path | None = None, **settings: Any) -> LlamaEngine:  # noqa: ANN401
        engine = LlamaEngine(
            model, embedder, **{"n_ctx": 1024, "n_threads": 1, "device": "cpu", **settings}
        )
        made.append(engine)
        return wait_ready(engine)

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def tiny(make_engine: MakeEngine, tiny_path: Path) -> LlamaEngine:
    return make_engine(tiny_path)


@pytest.fixture(scope="session")
def qwen() -> Iterator[LlamaEngine]:
    """The two starters that the product uses together; shared, so tests compare differences."""
    engine = LlamaEngine(starter(QWEN), starter(E5), n_ctx=2048, n_threads=1, device="cpu")
    yield wait_ready(engine, 300)
    engine.close()
