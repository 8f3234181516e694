from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from appliance.engine.base import Finished, GenerationRequest, Message, SavedPrompts
from appliance.engine.llama import LlamaEngine
from appliance.engine.promptcache import PrefixFiles, Saved, model_digest
from appliance.engine.slots import Slot, TokenArray, choose_slot
from tests.engine.conftest import GREEDY, MakeEngine, finished
from tests.tiny_gguf import write_tiny_llama

SYSTEM = "你是一个只根据文档回答的助手。" * 8


def saved(*tokens: int, cells: bytes = b"cells") -> Saved:
    return Saved(np.array(tokens, dtype=np.int32), cells)


def ask(words: str, system: str = SYSTEM) -> GenerationRequest:
    messages = (Message("system", system), Message("user", words))
    return GenerationRequest(messages=messages, max_tokens=12, sampling=GREEDY)


def answer(engine: LlamaEngine, request: GenerationRequest) -> Finished:
    return finished(list(engine.generate(request)))


# --------------------------------------------------------------------------------------------------
# files


def test_saved_beginning_comes_back_whole_and_last_used_first(tmp_path: Path) -> None:
    files = PrefixFiles(tmp_path / "prompts", 10_000, "world")
    assert files.save(saved(1, 2, 3, cells=b"abc"))
    assert files.save(saved(4, 5))
    assert not files.save(saved(4, 5))
    for at, path in enumerate(sorted((tmp_path / "prompts").iterdir())):
        os.utime(path, (at, at))
    files.touch(saved(1, 2, 3).tokens)

    found = files.load(2)

    assert [one.tokens.tolist() for one in found] == [[1, 2, 3], [4, 5]]
    assert found[0].cells == b"abc"
    assert len(files.load(1)) == 1


def test_file_of_another_world_is_left_alone_and_not_used(tmp_path: Path) -> None:
    PrefixFiles(tmp_path, 10_000, "model a").save(saved(1, 2))

    assert PrefixFiles(tmp_path, 10_000, "model b").load(2) == []
    assert len(PrefixFiles(tmp_path, 10_000, "model a").load(2)) == 1


@pytest.mark.parametrize("at", [0, 20, 44, 50, -1], ids=["magic", "world", "count", "body", "sum"])
def test_file_with_a_changed_byte_is_removed(tmp_path: Path, at: int) -> None:
    files = PrefixFiles(tmp_path, 10_000, "world")
    files.save(saved(1, 2, 3, cells=b"x" * 100))
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)

    assert files.load(1) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [0, 5, 31, 60])
def test_file_that_was_cut_is_removed(tmp_path: Path, length: int) -> None:
    files = PrefixFiles(tmp_path, 10_000, "world")
    files.save(saved(1, 2, 3))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:length])

    assert files.load(1) == []
    assert list(tmp_path.iterdir()) == []


def test_cap_in_bytes_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    files = PrefixFiles(tmp_path, 2_500, "world")
    for n in range(3):
        assert files.save(saved(n, cells=bytes(1000)))
        os.utime(files._path(saved(n).tokens), (n, n))

    assert [one.tokens.tolist() for one in files.load(9)] == [[2], [1]]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2_500
    assert not files.save(saved(9, cells=bytes(3000)))
    assert len(files.load(9)) == 2


def test_digest_follows_the_bytes_of_the_model(tmp_path: Path) -> None:
    model, folder = tmp_path / "m.gguf", tmp_path / "cache"
    model.write_bytes(b"one")
    first = model_digest(model, folder)
    assert model_digest(model, folder) == first
    os.utime(model, (1, 1))
    assert model_digest(model, folder) == first

    model.write_bytes(b"two")

    assert model_digest(model, folder) != first


# --------------------------------------------------------------------------------------------------
# which sequence lends


def tokens(*values: int) -> TokenArray:
    return np.array(values, dtype=np.int32)


def test_pinned_beginning_is_lent_only_when_it_is_longer_than_a_slots() -> None:
    slots: list[Slot[str]] = [Slot(0, tokens(1, 2, 3, 4)), Slot(1)]
    pin: Slot[str] = Slot(2, tokens(1, 2, 9, 9, 9))

    pinned = choose_slot(slots, tokens(1, 2, 9, 9, 9, 7), can_share=True, pinned=[pin])
    own = choose_slot(slots, tokens(1, 2, 3, 4, 5), can_share=True, pinned=[pin])

    assert (pinned.slot.seq_id, pinned.source.seq_id, pinned.n_common) == (1, 2, 5)
    assert (own.slot.seq_id, own.source.seq_id, own.n_common) == (0, 0, 4)


# --------------------------------------------------------------------------------------------------
# in the engine


def test_system_message_is_kept_for_other_chats_after_its_slot_was_taken(
    make_engine: MakeEngine, tiny_path: Path
) -> None:
    engine = make_engine(tiny_path, n_slots=1)
    cold = make_engine(tiny_path, n_slots=1)
    answer(engine, ask("第一个问题"))
    for n in range(3):
        answer(engine, GenerationRequest(prompt=f"{n} other" * 40, max_tokens=4))

    warm, alone = answer(engine, ask("第二个问题")), answer(cold, ask("第二个问题"))

    assert warm.usage.cached_tokens >= len(SYSTEM.encode())
    assert warm.text == alone.text


def test_system_message_need_not_be_read_again_after_a_restart(
    make_engine: MakeEngine, tiny_path: Path, tmp_path: Path
) -> None:
    saves = SavedPrompts(tmp_path / "prompts", 1 << 20)
    before = make_engine(tiny_path, saved_prompts=saves)
    answer(before, ask("第一个问题"))
    before.close()

    after = make_engine(tiny_path, saved_prompts=saves)
    warm, alone = answer(after, ask("问")), answer(make_engine(tiny_path), ask("问"))

    assert alone.usage.cached_tokens == 0
    assert warm.usage.cached_tokens >= len(SYSTEM.encode())
    assert warm.text == alone.text


def test_what_another_model_saved_is_not_used(
    make_engine: MakeEngine, tiny_path: Path, tmp_path: Path
) -> None:
    saves = SavedPrompts(tmp_path / "prompts", 1 << 20)
    before = make_engine(tiny_path, saved_prompts=saves)
    answer(before, ask("a"))
    before.close()
    other = write_tiny_llama(tmp_path / "other.gguf", seed=2)

    after = make_engine(other, saved_prompts=saves)

    assert answer(after, ask("a")).usage.cached_tokens == 0


def test_equal_text_in_other_tokens_shares_nothing_beyond_what_is_equal(tiny: LlamaEngine) -> None:
    """A control token and its spelling in a message read alike and are different tokens."""
    real = GenerationRequest(prompt="x" * 50 + "<|im_start|>" + "y" * 50, max_tokens=8)
    model = tiny._answers.model
    assert model is not None
    spelt = model.tokenize(
        "x" * 50 + "<|im_start|>" + "y" * 50, add_special=True, parse_special=False
    )
    read = model.prompt_tokens(str(real.prompt))
    assert b"".join(model.piece(int(t)) or b"<|im_start|>" for t in read[1:]) == b"".join(
        model.piece(int(t)) for t in spelt[1:]
    )

    answer(tiny, replace(real, sampling=GREEDY))
    works = tiny._answers.accept(replace(real, prompt="a", sampling=GREEDY))
    works[0].prompt, works[0].n_prompt = spelt, len(spelt)
    with tiny._lock:
        tiny._answers.enqueue(works[0])
    while not isinstance(last := works[0].events.get(), Finished):
        pass

    assert last.usage.cached_tokens == 51  # BOS and the x
    assert last.usage.prompt_tokens == 51 + len("<|im_start|>") + 50


def test_pins_leave_when_the_cache_is_full(make_engine: MakeEngine, tiny_path: Path) -> None:
    engine = make_engine(tiny_path, n_slots=1, n_ctx=1024)
    answer(engine, ask("a"))

    full = GenerationRequest(prompt="z" * 1000, max_tokens=20, sampling=GREEDY)
    last = answer(engine, full)

    assert last.usage.completion_tokens == 20
    assert last.text == answer(make_engine(tiny_path), full).text
