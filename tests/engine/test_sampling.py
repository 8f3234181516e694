from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace

import pytest

from appliance.engine.base import (
    Finished,
    FinishReason,
    GenerationRequest,
    Prefilled,
    Sampling,
    Token,
)
from appliance.engine.llama import LlamaEngine
from appliance.errors import EngineError, EngineStoppedError
from tests.engine.conftest import GREEDY, finished, raw, shown
from tests.tiny_gguf import N_SPECIAL

WILD = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=11)


def text_of(engine: LlamaEngine, **more: object) -> str:
    settings = {"prompt": "a", "max_tokens": 40, "sampling": WILD, **more}
    request = GenerationRequest(**settings)  # type: ignore[arg-type]
    return finished(list(engine.generate(request))).text


def refusal(engine: LlamaEngine, **more: object) -> EngineError:
    with pytest.raises(EngineError) as caught:
        list(engine.generate(GenerationRequest(prompt="a", max_tokens=40, **more)))  # type: ignore[arg-type]
    return caught.value


def test_grammar_rules_every_token(tiny: LlamaEngine) -> None:
    text = text_of(tiny, grammar="root ::= [0-9a-f]+")

    assert len(text) == 40
    assert set(text) <= set("0123456789abcdef")


def test_grammar_that_is_complete_ends_the_answer(tiny: LlamaEngine) -> None:
    last = finished(list(tiny.generate(raw("a", 40, grammar='root ::= "中文" [🙂-🙃] "."'))))

    assert last.text in ("中文🙂.", "中文🙃.")
    assert last.reason is FinishReason.STOP


def test_json_schema_gives_json_that_fits_it(tiny: LlamaEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"答": {"enum": ["是", "否"]}, "n": {"type": "integer", "maximum": 9}},
        "required": ["答", "n"],
        "additionalProperties": False,
    }
    request = raw("a", 200, json_schema=json.dumps(schema))

    found = json.loads(finished(list(tiny.generate(request))).text)

    assert set(found) == {"答", "n"}
    assert found["答"] in ("是", "否")
    assert isinstance(found["n"], int)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"grammar": "root ::= ((("}, "bad_grammar"),
        ({"grammar": "top ::= [a]"}, "bad_grammar"),
        ({"grammar": "root ::= root [a]"}, "bad_grammar"),
        ({"grammar": "root ::= [a]", "json_schema": "{}"}, "bad_grammar"),
        ({"json_schema": "[]"}, "bad_schema"),
        ({"json_schema": "{"}, "bad_schema"),
        ({"json_schema": '{"$ref": "#/nowhere"}'}, "bad_schema"),
        ({"n": 0}, "bad_sampling"),
        ({"top_logprobs": 21}, "bad_sampling"),
        ({"thinking_budget": -1}, "bad_sampling"),
        ({"sampling": Sampling(logit_bias=((261, 1.0),))}, "bad_sampling"),
        ({"sampling": Sampling(dry_base=0.5)}, "bad_sampling"),
        ({"sampling": Sampling(typical_p=math.nan)}, "bad_sampling"),
    ],
)
def test_request_that_makes_no_sense_is_refused_by_its_code(
    tiny: LlamaEngine, more: dict[str, object], code: str
) -> None:
    assert refusal(tiny, **more).code == code
    assert tiny.status().n_waiting == tiny.status().n_running == 0


def test_grammar_that_the_biases_make_impossible_fails_this_answer_alone(tiny: LlamaEngine) -> None:
    bans = Sampling(logit_bias=((N_SPECIAL + ord("x"), -100.0),))
    other = tiny.generate(raw("b", 30))

    assert refusal(tiny, grammar='root ::= "x"', sampling=bans).code == "grammar_dead_end"

    assert finished(list(other)).usage.completion_tokens == 30
    assert tiny.status().n_running == 0


def test_bias_bans_and_forces_tokens(tiny: LlamaEngine) -> None:
    plain = text_of(tiny, sampling=GREEDY)
    first = N_SPECIAL + plain.encode()[0]

    banned = text_of(tiny, sampling=replace(GREEDY, logit_bias=((first, -100.0),)))
    forced = text_of(tiny, sampling=replace(GREEDY, logit_bias=((N_SPECIAL + ord("z"), 100.0),)))

    assert plain[0] not in banned
    assert forced == "z" * 40


def test_dry_breaks_a_loop_that_the_prompt_began(tiny: LlamaEngine) -> None:
    looped = Sampling(temperature=0, logit_bias=((N_SPECIAL + ord("z"), 60.0),))
    dry = replace(looped, dry_multiplier=100.0, dry_breakers=())

    assert text_of(tiny, sampling=looped) == "z" * 40
    assert "zzz" not in finished(list(tiny.generate(replace(raw("zzzzz"), sampling=dry)))).text


def test_logprobs_are_the_models_own_and_join_to_the_text(tiny: LlamaEngine) -> None:
    events = list(tiny.generate(raw("a", 30, top_logprobs=5)))

    last = finished(events)
    assert [t.bytes for t in last.logprobs] == [bytes([t.token - N_SPECIAL]) for t in last.logprobs]
    assert b"".join(t.bytes for t in last.logprobs).decode("utf-8", "replace") == last.text
    for token in last.logprobs:
        assert token.top[0].token == token.token  # greedy
        assert token.top[0].logprob == token.logprob
        assert [t.logprob for t in token.top] == sorted(
            (t.logprob for t in token.top), reverse=True
        )
        assert sum(math.exp(t.logprob) for t in token.top) <= 1.0 + 1e-5
    streamed = [t for event in events if isinstance(event, Token) for t in event.logprobs]
    assert tuple(streamed) == last.logprobs[: len(streamed)]
    assert len(last.logprobs) == 30


def test_logprobs_of_the_whole_vocabulary_sum_to_one(tiny: LlamaEngine) -> None:
    from appliance.engine.requests import token_logprob

    context, model = tiny._answers.context, tiny._answers.model
    assert context is not None
    assert model is not None
    list(tiny.generate(raw("a", 1)))

    found = token_logprob(model, context.logits(-1), 7, model.n_vocab)

    assert sum(math.exp(t.logprob) for t in found.top) == pytest.approx(1.0, abs=1e-4)


# --------------------------------------------------------------------------------------------------
# several answers


def test_several_answers_share_one_reading_of_the_prompt(tiny: LlamaEngine) -> None:
    alone = finished(list(tiny.generate(raw("长" * 100, 12)))).text
    before = tiny.status().tokens_prefilled

    events = list(tiny.generate(raw("长" * 100 + "!", 12, n=5)))

    n_prompt = finished(events).usage.prompt_tokens
    assert tiny.status().tokens_prefilled - before <= 1 + 1 + 4  # "!", and one for each follower
    lasts = {event.index: event for event in events if isinstance(event, Finished)}
    assert sorted(lasts) == [0, 1, 2, 3, 4]
    assert len({last.text for last in lasts.values()}) == 1
    assert alone
    for index, last in lasts.items():
        assert shown([e for e in events if isinstance(e, Token) and e.index == index]) == last.text
        assert last.usage.prompt_tokens == n_prompt
    assert [e.total for e in events if isinstance(e, Prefilled)] == [n_prompt]


def test_each_answer_has_its_own_seed(tiny: LlamaEngine) -> None:
    request = GenerationRequest(prompt="a", max_tokens=20, sampling=WILD, n=3)
    events = list(tiny.generate(request))
    texts = {e.index: e.text for e in events if isinstance(e, Finished)}

    second = replace(request, n=1, sampling=replace(WILD, seed=12))

    assert len(set(texts.values())) == 3
    assert texts[1] == finished(list(tiny.generate(second))).text


@pytest.mark.parametrize("moment", [Prefilled, Token])
def test_cancel_ends_all_of_them(tiny: LlamaEngine, moment: type) -> None:
    answer = tiny.generate(raw("x" * 300, 600, n=4))
    events = []
    for event in answer:
        events.append(event)
        if isinstance(event, moment):
            answer.cancel()

    lasts = [event for event in events if isinstance(event, Finished)]
    assert sorted(last.index for last in lasts) == [0, 1, 2, 3]
    assert all(last.reason is FinishReason.CANCELLED for last in lasts)
    assert tiny.status().n_running == tiny.status().n_waiting == 0


def test_answers_that_wait_for_the_prompt_end_when_the_engine_stops(tiny: LlamaEngine) -> None:
    answers = [tiny.generate(raw("x" * 900, 100, n=2)) for _ in range(4)]

    tiny.close()

    for answer in answers:
        with suppress(EngineStoppedError):  # one that still waited
            assert sum(isinstance(event, Finished) for event in answer) == 2
