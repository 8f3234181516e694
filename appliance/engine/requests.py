"""What of a request can be checked and prepared before it waits, on the caller's thread."""

from __future__ import annotations

import json
import math

import numpy as np
import numpy.typing as npt

from appliance.engine.base import (
    MOST_ANSWERS,
    MOST_TOP_LOGPROBS,
    GenerationRequest,
    Sampling,
    TokenLogprob,
    TopLogprob,
)
from appliance.engine.native import Model
from appliance.errors import EngineError

_MOST_BIASES = 1024
# llama.cpp answers a setting outside of these with an assertion, which ends the process, or with
# an answer that makes no sense.
_LIMITS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "top_k": (0, 1 << 20),
    "repeat_penalty": (0.01, 100.0),
    "presence_penalty": (-1e9, 1e9),
    "frequency_penalty": (-1e9, 1e9),
    "penalty_last_n": (-1, 1 << 20),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (1.0, 100.0),
    "dry_allowed_length": (0, 1 << 20),
    "dry_penalty_last_n": (-1, 1 << 20),
}


def demand_sane(request: GenerationRequest, n_vocab: int) -> None:
    """Refuse what makes no sense.

    Raises:
        EngineError: code ``bad_sampling``; facts name the ``field`` and its bounds.
    """
    for name, (least, most) in _LIMITS.items():
        _demand(name, getattr(request.sampling, name), least, most)
    _demand("n", request.n, 1, MOST_ANSWERS)
    if request.top_logprobs is not None:
        _demand("top_logprobs", request.top_logprobs, 0, MOST_TOP_LOGPROBS)
    if request.thinking_budget is not None:
        _demand("thinking_budget", request.thinking_budget, 0, 1 << 30)
    _demand_biases(request.sampling, n_vocab)
    if request.grammar is not None and request.json_schema is not None:
        raise EngineError("bad_grammar", cause="a grammar and a JSON schema exclude each other")


def _demand_biases(sampling: Sampling, n_vocab: int) -> None:
    _demand("logit_bias", len(sampling.logit_bias), 0, _MOST_BIASES)
    for token, bias in sampling.logit_bias:
        _demand("logit_bias", token, 0, n_vocab - 1)
        _demand("logit_bias", bias, -1e9, 1e9)


def _demand(name: str, value: float, least: float, most: float) -> None:
    if not math.isfinite(value) or not least <= value <= most:
        raise EngineError("bad_sampling", field=name, value=str(value), least=least, most=most)


def grammar_source(request: GenerationRequest) -> str | None:
    """Return the GBNF that the answer must follow, made from the schema if that was given.

    Raises:
        EngineError: the schema cannot be turned into a grammar (code ``bad_schema``).
    """
    if request.json_schema is None:
        return request.grammar
    # Imported late: the module compiles a hundred patterns that few boxes ever need.
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        is_object = isinstance(json.loads(request.json_schema), dict)
        grammar = str(json_schema_to_gbnf(request.json_schema)) if is_object else None
    # The converter has no error of its own: it raises whatever its own code stumbles over.
    except Exception as error:
        cause = str(error) or type(error).__name__
        raise EngineError("bad_schema", cause=cause) from error
    if grammar is None:
        raise EngineError("bad_schema", cause="the schema is not an object")
    return grammar


def token_logprob(
    model: Model, logits: npt.NDArray[np.float32], token: int, n_top: int
) -> TokenLogprob:
    """Return the log-probability of ``token`` and of the ``n_top`` likeliest ones.

    Args:
        model: whose tokens these are.
        logits: (n_vocab,), before any sampler.
        token: the one that was chosen.
        n_top: candidates wanted.
    """
    highest = float(logits.max())
    total = highest + math.log(float(np.exp(logits - highest, dtype=np.float32).sum()))
    best: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
    if n_top:
        best = np.argpartition(logits, -n_top)[-n_top:]
        best = best[np.argsort(logits[best])[::-1]]
    top = tuple(TopLogprob(int(t), _bytes(model, int(t)), float(logits[t]) - total) for t in best)
    return TokenLogprob(token, _bytes(model, token), float(logits[token]) - total, top)


def _bytes(model: Model, token: int) -> bytes:
    return model.piece(token) or model.spelling(token).encode()
