"""Many answers at once: whatever the others do, each one is what it would be alone."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from appliance.engine.base import (
    Finished,
    FinishReason,
    Generation,
    GenerationEvent,
    GenerationRequest,
    QueueUpdate,
    Sampling,
    Token,
)
from appliance.engine.llama import LlamaEngine
from tests.engine.conftest import GREEDY, MakeEngine, finished, raw, shown
from tests.engine.test_llama import cells_match_books

FAMILY = "👨‍👩‍👧‍👦🏳️‍🌈"


class Reader(threading.Thread):
    """Reads an answer to its end and may give up after some events."""

    def __init__(self, answer: Generation, n_events: int | None = None) -> None:
        super().__init__()
        self.answer, self.n_events = answer, n_events
        self.events: list[GenerationEvent] = []
        self.start()

    def run(self) -> None:
        for event in self.answer:
            self.events.append(event)
            if self.n_events is not None and len(self.events) >= self.n_events:
                self.answer.cancel()


def wait_idle(engine: LlamaEngine) -> None:
    deadline = time.monotonic() + 30
    while engine.status().n_running or engine.status().n_waiting:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def is_decided(answer: Finished) -> bool:
    """Whether no token of a greedy answer was a tie within rounding.

    The order of a sum depends on how many rows a step has, and keys and values are kept in 16 bits:
    log-probabilities of this model differ by up to 0.007 between batches of 33 and of 512 tokens.
    """
    return all(one.logprob - one.top[1].logprob > 0.02 for one in answer.logprobs)


def test_two_hundred_random_cancels_leak_no_cell_and_change_no_other_answer(
    make_engine: MakeEngine, tiny_path: Path
) -> None:
    rng = random.Random(5)
    alone = make_engine(tiny_path, n_slots=1)
    prompts, expected = [], []
    for n in range(30):
        answer = finished(list(alone.generate(raw(f"{n} 稳 " * 20, 60, top_logprobs=2))))
        if is_decided(answer):
            prompts.append(f"{n} 稳 " * 20)
            expected.append(answer.text)
    engine = make_engine(tiny_path, n_slots=4, max_queue=400)

    steady: list[Reader] = []
    given_up: list[Reader] = []
    for n in range(200):
        text = "".join(rng.choices("abcdefg字🙂", k=rng.randrange(1, 250)))
        doomed = engine.generate(raw(text, 200))
        given_up.append(Reader(doomed, rng.randrange(1, 30)))
        if n % 17 == 0:
            steady.append(Reader(engine.generate(raw(prompts[n // 17], 60))))
        if rng.random() < 0.3:
            doomed.cancel()
    for reader in (*given_up, *steady):
        reader.join(60)
        assert not reader.is_alive()

    assert [finished(reader.events).text for reader in steady] == expected[: len(steady)]
    assert all(isinstance(reader.events[-1], Finished) for reader in given_up)
    reasons = {finished(reader.events).reason for reader in given_up}
    assert FinishReason.CANCELLED in reasons
    wait_idle(engine)
    assert cells_match_books(engine)
    for slot in engine._answers.slots:  # nothing but what the books say is in the cache
        assert engine._answers.context is not None
        engine._answers.context.remove(slot.seq_id, 0)
        slot.tokens = slot.tokens[:0]
    full = [engine.generate(raw("z" * 900, 100)) for _ in range(4)]
    assert {finished(list(answer)).reason for answer in full} == {FinishReason.LENGTH}


def test_single_request_starts_before_the_third_of_a_greedy_client(
    make_engine: MakeEngine, tiny_path: Path
) -> None:
    engine = make_engine(tiny_path, n_slots=1)
    with engine._lock:  # all are asked before the first one is served
        greedy = [engine.generate(raw(f"{n}" * 50, 8, client="many")) for n in range(20)]
        single = engine.generate(raw("one", 8, client="one"))

    readers = [Reader(answer) for answer in (*greedy, single)]
    for reader in readers:
        reader.join(30)

    started = [answer._works[0].clock.started or 0.0 for answer in (*greedy, single)]
    assert started[-1] < sorted(started[:-1])[2]
    positions = [e.position for e in readers[19].events if isinstance(e, QueueUpdate)]
    assert positions[1:] == sorted(positions[1:], reverse=True)  # one more came after the first
    assert positions[0] > 10


def test_waiting_answer_is_told_its_place_and_a_time(
    make_engine: MakeEngine, tiny_path: Path
) -> None:
    engine = make_engine(tiny_path, n_slots=1)
    list(engine.generate(raw("a", 20)))  # something to estimate from
    with engine._lock:
        answers = [engine.generate(raw(f"{n}", 20)) for n in range(3)]

    first = [next(iter(answer)) for answer in answers]

    assert [event.position for event in first if isinstance(event, QueueUpdate)] == [1, 2, 3]
    waits = [event.wait_s for event in first if isinstance(event, QueueUpdate)]
    assert all(wait is not None and wait > 0 for wait in waits)
    assert waits == sorted(waits)


@pytest.mark.parametrize(
    "sampling",
    [GREEDY, Sampling(temperature=4.0, top_k=0, top_p=1.0, min_p=0.0, seed=9)],
    ids=["greedy", "wild"],
)
def test_every_chunk_is_valid_text_and_they_join_to_the_answer(
    tiny: LlamaEngine, sampling: Sampling
) -> None:
    request = GenerationRequest(prompt="答", max_tokens=900, sampling=sampling)

    events = list(tiny.generate(request))

    for event in events:
        if isinstance(event, Token):
            event.text.encode("utf-8")
    assert shown(events) == finished(events).text


def test_emoji_of_many_code_points_arrive_whole(tiny: LlamaEngine) -> None:
    request = raw("a", 120, grammar=f'root ::= "{FAMILY}" "中文" "\U0001f9d1\u200d\U0001f692"')

    events = list(tiny.generate(request))

    assert shown(events) == finished(events).text == f"{FAMILY}中文🧑‍🚒"
    assert all(len(event.text.encode()) >= 1 for event in events if isinstance(event, Token))


def test_many_short_chats_lose_no_event(make_engine: MakeEngine, tiny_path: Path) -> None:
    rng = random.Random(3)
    engine = make_engine(tiny_path, n_slots=8, max_queue=64)
    n_left, lock, errors = 300, threading.Lock(), []

    def person() -> None:
        nonlocal n_left
        while True:
            with lock:
                if n_left == 0:
                    return
                n_left -= 1
                length, n_out = rng.randrange(1, 200), rng.randrange(1, 30)
            events = list(engine.generate(raw("x" * length, n_out)))
            if shown(events) != finished(events).text or (
                finished(events).usage.completion_tokens != n_out
            ):
                errors.append(events)

    people = [threading.Thread(target=person) for _ in range(16)]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join(60)

    assert (errors, n_left) == ([], 0)
    assert cells_match_books(engine)
