"""How soon is the engine free after a client goes away while its long prompt is being read?

    python bench/cancel.py --model FILE [--tokens 6000] [--runs 10] [--threads N] [--json]

Each run: a prompt of the given length starts, is cancelled at a random moment of its prefill, and
a two-token question is asked at once. Reported: seconds from ``cancel`` to the cancelled answer's
last event ("freed") and to the first token of the question ("next token"), median and worst.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

from appliance.engine.base import (
    Finished,
    FinishReason,
    GenerationRequest,
    Prefilled,
    Sampling,
    Token,
)
from appliance.engine.llama import LlamaEngine

_WORDS = ("北京是中国的首都。", "The board has 8 GB of memory. ", "请把文件放进收件文件夹。")


def long_prompt(engine: LlamaEngine, n_tokens: int, rng: random.Random) -> str:
    """Return a text of at least ``n_tokens`` tokens, different every time."""
    parts: list[str] = []
    while engine.count_text_tokens("".join(parts)) < n_tokens:
        parts.extend(f"{rng.randrange(10**6)} {rng.choice(_WORDS)}" for _ in range(20))
    return "".join(parts)


def one_run(engine: LlamaEngine, n_tokens: int, rng: random.Random) -> tuple[float, float, int]:
    """Return seconds until freed, seconds until the next answer's first token, tokens read."""
    request = GenerationRequest(prompt=long_prompt(engine, n_tokens, rng), max_tokens=8)
    pause_s = rng.uniform(0.2, 3.0)
    answer = engine.generate(request)
    n_read = 0
    started = time.monotonic()
    cancelled_at: float | None = None
    for event in answer:
        if isinstance(event, Prefilled):
            n_read = int(event.done)
        if cancelled_at is None and n_read and time.monotonic() - started > pause_s:
            # From another thread in the product; the moment relative to the step is as random.
            time.sleep(rng.uniform(0.0, 0.3))
            cancelled_at = time.monotonic()
            answer.cancel()
        if isinstance(event, Finished):
            assert event.reason is FinishReason.CANCELLED, "the answer ended before the cancel"
    assert cancelled_at is not None
    freed_s = time.monotonic() - cancelled_at
    question = GenerationRequest(prompt="Hello", max_tokens=2, sampling=Sampling(temperature=0))
    for event in engine.generate(question):
        if isinstance(event, Token):
            return freed_s, time.monotonic() - cancelled_at, n_read
    raise AssertionError("the question after the cancel got no token")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = random.Random(args.seed)  # reproducible runs
    engine = LlamaEngine(
        args.model, None, n_ctx=args.tokens + 2048, n_threads=args.threads, device="cpu"
    )
    try:
        while engine.status().state == "loading":
            time.sleep(0.05)
        runs = [one_run(engine, args.tokens, rng) for _ in range(args.runs)]
    finally:
        engine.close()
    freed = [run[0] for run in runs]
    token = [run[1] for run in runs]
    found = {
        "model": args.model.name,
        "prompt_tokens": args.tokens,
        "runs": args.runs,
        "freed_s": {"median": statistics.median(freed), "max": max(freed)},
        "next_token_s": {"median": statistics.median(token), "max": max(token)},
        "tokens_read_before_cancel": [run[2] for run in runs],
    }
    if args.json:
        json.dump(found, sys.stdout)
        print()
        return
    print(f"{found['model']}, prompt of {args.tokens} tokens, {args.runs} runs, seed {args.seed}")
    print(f"freed:      median {statistics.median(freed):.3f} s, worst {max(freed):.3f} s")
    print(f"next token: median {statistics.median(token):.3f} s, worst {max(token):.3f} s")


if __name__ == "__main__":
    main()
