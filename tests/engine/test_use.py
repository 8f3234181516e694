"""Another model while the engine runs, and none while nobody asks."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from appliance.engine.base import Token
from appliance.engine.llama import LlamaEngine
from appliance.errors import ApplianceError, EngineError, EngineStoppedError
from tests.engine.conftest import MakeEngine, finished, raw, shown
from tests.tiny_gguf import write_tiny_llama


@pytest.fixture(scope="module")
def other_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("other") / "other.gguf", seed=7)


@pytest.fixture
def cut_path(tmp_path: Path, other_path: Path) -> Path:
    """A file whose header is whole and whose weights are not."""
    path = tmp_path / "cut.gguf"
    content = other_path.read_bytes()
    path.write_bytes(content[: len(content) * 3 // 4])
    return path


def answer(engine: LlamaEngine, prompt: str = "one two three") -> str:
    return shown(list(engine.generate(raw(prompt))))


def test_other_model_answers_and_the_first_comes_back(
    make_engine: MakeEngine, tiny_path: Path, other_path: Path
) -> None:
    alone = answer(make_engine(other_path))
    engine = make_engine(tiny_path)
    before = answer(engine)

    engine.use(other_path)

    assert engine.status().model == "other"
    assert answer(engine) == alone != before
    engine.use(tiny_path)
    # Nothing of the other model's cache was taken for this one's.
    assert answer(engine) == before


def test_running_and_waiting_answers_end_before_the_change(
    make_engine: MakeEngine, tiny_path: Path, other_path: Path
) -> None:
    engine = make_engine(tiny_path, n_slots=1)
    undisturbed = [shown(list(engine.generate(raw(text, 200)))) for text in ("one", "two")]
    works = [engine.generate(raw(text, 200)) for text in ("one", "two")]
    events = iter(works[0])
    begun = [next(events)]
    while not isinstance(begun[-1], Token):
        begun.append(next(events))

    change = threading.Thread(target=engine.use, args=(other_path,))
    change.start()

    first, second = [*begun, *events], list(works[1])
    change.join(30)
    assert not change.is_alive()
    assert [shown(first), shown(second)] == undisturbed
    assert finished(second).usage.completion_tokens > 0
    assert engine.status().model == "other"


def test_new_requests_are_refused_as_while_loading(
    make_engine: MakeEngine, tiny_path: Path, other_path: Path
) -> None:
    engine = make_engine(tiny_path)
    work = engine.generate(raw("one", 900))
    change = threading.Thread(target=engine.use, args=(other_path,))
    change.start()
    while engine.status().state == "ready":
        pass
    with pytest.raises(EngineStoppedError) as refused:
        engine.generate(raw("two"))
    with pytest.raises(EngineError, match="model_change_running"):
        engine.use(tiny_path)
    work.cancel()
    change.join(30)

    assert refused.value.facts["state"] == "loading"
    assert engine.status().state == "ready"


def test_model_that_fails_brings_the_one_before_back(
    make_engine: MakeEngine, tiny_path: Path, cut_path: Path
) -> None:
    engine = make_engine(tiny_path)
    before = answer(engine)

    with pytest.raises(ApplianceError):
        engine.use(cut_path)

    status = engine.status()
    assert (status.state, status.model, status.error) == ("ready", "tiny", None)
    assert answer(engine) == before


def test_engine_without_a_model_can_get_one(make_engine: MakeEngine, other_path: Path) -> None:
    engine = make_engine(None)
    assert engine.status().state == "failed"

    engine.use(other_path)

    assert engine.status().state == "ready"
    assert answer(engine)


def test_context_follows_the_model(make_engine: MakeEngine, tmp_path: Path) -> None:
    short = write_tiny_llama(tmp_path / "short.gguf", n_ctx=256)
    long = write_tiny_llama(tmp_path / "long.gguf", n_ctx=2048)
    engine = make_engine(short)
    assert engine.n_ctx == 256
    engine.use(long)
    assert engine.n_ctx == 1024
    engine.use(short)
    assert engine.n_ctx == 256


def test_engine_that_closes_ends_a_change(
    make_engine: MakeEngine, tiny_path: Path, other_path: Path
) -> None:
    engine = make_engine(tiny_path)
    engine.generate(raw("one", 900))
    errors: list[BaseException] = []

    def use() -> None:
        try:
            engine.use(other_path)
        except EngineStoppedError as error:
            errors.append(error)

    change = threading.Thread(target=use)
    change.start()
    while engine.status().state == "ready":
        pass
    engine.close()
    change.join(10)

    assert not change.is_alive()
    assert len(errors) == 1


# --------------------------------------------------------------------------------------------------
# unloading


def wait_unloaded(engine: LlamaEngine) -> None:
    deadline = time.monotonic() + 20
    while engine.status().memory["weights"]:
        assert time.monotonic() < deadline, "still loaded"
        time.sleep(0.01)


def test_model_is_unloaded_when_nobody_asks_and_back_for_the_next_question(
    make_engine: MakeEngine, tiny_path: Path
) -> None:
    engine = make_engine(tiny_path, unload_after_s=0.3)
    before = answer(engine)
    loaded = engine.status().memory
    wait_unloaded(engine)
    unloaded = engine.status()

    assert loaded["weights"] > 0
    assert (unloaded.memory["weights"], unloaded.memory["kv"]) == (0, 0)
    # It will answer, so nobody is sent away.
    assert (unloaded.state, unloaded.model) == ("ready", "tiny")
    assert answer(engine) == before
    assert engine.status().memory == loaded
    wait_unloaded(engine)
    assert "chat" in engine.features


def test_long_answer_is_not_unloaded_under_its_reader(
    make_engine: MakeEngine, tiny_path: Path
) -> None:
    undisturbed = shown(list(make_engine(tiny_path).generate(raw("one", 900))))
    engine = make_engine(tiny_path, unload_after_s=0.001)
    assert shown(list(engine.generate(raw("one", 900)))) == undisturbed


def test_many_callers_of_an_unloaded_model_are_all_answered(
    make_engine: MakeEngine, tiny_path: Path
) -> None:
    engine = make_engine(tiny_path, unload_after_s=0.05)
    before = answer(engine)
    found: list[str] = []
    for _ in range(5):
        wait_unloaded(engine)
        threads = [threading.Thread(target=lambda: found.append(answer(engine))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert found == [before] * 30


def test_model_that_is_gone_when_it_is_wanted_again_is_told(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    path = write_tiny_llama(tmp_path / "gone.gguf")
    engine = make_engine(path, unload_after_s=0.05)
    wait_unloaded(engine)
    path.unlink()
    with pytest.raises(ApplianceError, match="model_file_missing"):
        answer(engine)
    assert engine.status().state == "failed"


def test_engine_closes_while_unloaded(make_engine: MakeEngine, tiny_path: Path) -> None:
    engine = make_engine(tiny_path, unload_after_s=0.05)
    wait_unloaded(engine)
    engine.close()
    with pytest.raises(EngineStoppedError):
        answer(engine)


def test_unloaded_model_can_be_changed(
    make_engine: MakeEngine, tiny_path: Path, other_path: Path
) -> None:
    engine = make_engine(tiny_path, unload_after_s=0.05)
    wait_unloaded(engine)
    engine.use(other_path)
    assert engine.status().model == "other"
    assert answer(engine)
