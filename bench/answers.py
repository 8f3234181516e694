#!/usr/bin/env python3
"""Answers judged on a SQuAD-format question set, through the product's own path.

Prints exact match and F1 (by characters for Chinese, by words otherwise), how often the cited
document is the right one, and how often the question was refused. With --unanswerable every
question is asked while its own paragraph is removed: refusing is then right. With --curve no model
is called: the share of refusals for every height of the bar is printed, with and without the
paragraph. The last line is JSON.

Examples:
    python bench/answers.py --squad questions.json --max 50
    python bench/answers.py --squad questions.json --max 100 --unanswerable
    python bench/answers.py --squad questions.json --curve
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import squad

from appliance.config import Config, models_dir
from appliance.core.chat import Assistant, Question
from appliance.core.conversations import Conversations
from appliance.core.events import Answer
from appliance.core.pages import Pages
from appliance.core.retrieve import DEFAULT_BAR, Retriever
from appliance.core.selftest import calibrated_bar, probes
from appliance.engine.llama import LlamaEngine
from appliance.models import ModelStore
from appliance.parsers.base import Limits
from appliance.store import Store
from appliance.system.clock import Clock
from appliance.text.lang import detect_lang


def main(argv: Sequence[str] | None = None) -> int:
    """Index, ask, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--squad", type=Path, required=True, metavar="FILE", help="the question set"
    )
    parser.add_argument(
        "--max", type=int, metavar="N", help="only N questions, spread over the set"
    )
    parser.add_argument(
        "--db", type=Path, metavar="DIR", help="keep the index here for the next run"
    )
    parser.add_argument(
        "--unanswerable", action="store_true", help="remove each own paragraph first"
    )
    parser.add_argument(
        "--curve", action="store_true", help="refusals by height of the bar, no model"
    )
    args = parser.parse_args(argv)

    config = Config(data=Path())
    models = ModelStore(models_dir(config, os.environ))
    model = None if args.curve else models.path(config.models.generation)
    engine = LlamaEngine(model, models.path(config.models.embedding), n_ctx=config.engine.n_ctx)
    with tempfile.TemporaryDirectory() as temporary:
        store = Store.open((args.db or Path(temporary)) / "appliance.db")
        try:
            paragraphs, items = squad.read(args.squad)
            squad.index(store, paragraphs, engine)
            step = max(1, len(items) // args.max) if args.max else 1
            items = items[::step][: args.max]
            retriever = Retriever(store, engine, config.search)
            if args.curve:
                figures = curve(store, engine, retriever, paragraphs, items)
            else:
                squad.wait_model(engine)
                assistant = Assistant(
                    engine,
                    retriever,
                    Conversations(store, keep=False),
                    config.assistant,
                    Clock(),
                )
                asked = (
                    without_own(store, engine, paragraphs, items) if args.unanswerable else items
                )
                figures = judge(assistant, asked, store)
                figures["unanswerable"] = args.unanswerable
        finally:
            store.close()
            engine.close()
    print(json.dumps(figures))
    return 0


def without_own(
    store: Store, engine: LlamaEngine, paragraphs: dict[str, str], items: Sequence[squad.Item]
) -> Iterator[squad.Item]:
    """Yield each question while its paragraph is not in the store."""
    for path, group in itertools.groupby(items, key=lambda item: item.path):
        store.forget_file(path.encode())
        yield from group
        squad.index(store, {path: paragraphs[path]}, engine)


def curve(
    store: Store,
    engine: LlamaEngine,
    retriever: Retriever,
    paragraphs: dict[str, str],
    items: Sequence[squad.Item],
) -> dict[str, object]:
    """Return the share of refusals for every height of the bar."""
    present = [retriever.search(item.question).relevance.score for item in items]
    absent = [
        retriever.search(item.question).relevance.score
        for item in without_own(store, engine, paragraphs, items)
    ]
    own = probes(store, 200)
    calibrated = calibrated_bar(retriever, own)
    print(f"calibrated on {len(own)} questions made from the index itself: {calibrated:.2f}")
    rows = []
    print("bar    refused with paragraph   refused without")
    for bar in sorted({*(n / 20 for n in range(1, 20)), DEFAULT_BAR, calibrated}):
        false = sum(score < bar for score in present) / len(present)
        right = sum(score < bar for score in absent) / len(absent)
        rows.append(
            {
                "bar": bar,
                "refused_answerable": round(false, 4),
                "refused_unanswerable": round(right, 4),
            }
        )
        marks = {DEFAULT_BAR: "default", calibrated: "calibrated"}
        mark = f"   <- {marks[bar]}" if bar in marks else ""
        print(f"{bar:.2f}   {false:22.1%}   {right:15.1%}{mark}")
    return {"questions": len(items), "bar": DEFAULT_BAR, "calibrated": calibrated, "curve": rows}


def judge(
    assistant: Assistant, items: Iterator[squad.Item] | Sequence[squad.Item], store: Store
) -> dict[str, object]:
    """Ask every question and return the figures.

    Every citation is followed: its quote must stand in the page it names, and every mark in the
    answer must have a citation.
    """
    n_citations = n_located = n_dangling = 0
    exact: list[bool] = []
    f1: list[float] = []
    cited: list[bool] = []
    reasons: Counter[str] = Counter()
    ttft: list[float] = []
    n = 0
    started = time.perf_counter()
    for item in items:
        n += 1
        *_, answer = assistant.ask(Question(item.question, remember=False))
        assert isinstance(answer, Answer)
        if answer.refused:
            reasons[answer.reason or "?"] += 1
            exact.append(False)
            f1.append(0.0)
            continue
        ttft.append(answer.timings.ttft_s)
        numbers = {citation.n for citation in answer.citations}
        n_dangling += sum(int(n) not in numbers for n in re.findall(r"\[(\d+)\]", answer.answer))
        pages = Pages(store, b"/", Limits())
        for citation in answer.citations:
            n_citations += 1
            number = citation.page or citation.passage or 1
            page = pages.page(citation.document, number, citation.quote, as_text=True)
            n_located += page.is_located
        said = re.sub(r"\[\d+\]", "", answer.answer)
        exact.append(any(tokens(said) == tokens(a) for a in item.answers))
        f1.append(max(overlap(said, a) for a in item.answers))
        cited.append(item.path in {citation.path for citation in answer.citations})
    seconds = time.perf_counter() - started
    figures: dict[str, object] = {
        "questions": n,
        "exact_match": round(statistics.fmean(exact), 4),
        "f1": round(statistics.fmean(f1), 4),
        "citation_accuracy": round(statistics.fmean(cited), 4) if cited else None,
        "citations": n_citations,
        "quotes_located": n_located,
        "dangling_marks": n_dangling,
        "refused": round(sum(reasons.values()) / n, 4),
        "refusal_reasons": dict(reasons),
        "ttft_median_s": round(statistics.median(ttft), 3) if ttft else None,
        "seconds": round(seconds, 1),
    }
    for name, value in figures.items():
        print(f"{name:18} {value}")
    return figures


def tokens(text: str) -> list[str]:
    """Return what is compared: characters of Chinese, words of other text; no punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    if detect_lang(text) == "zh":
        return [char for char in folded if char.isalnum()]
    return re.findall(r"\w+", re.sub(r"\b(a|an|the)\b", " ", folded))


def overlap(said: str, wanted: str) -> float:
    """Return F1 of the multisets of tokens."""
    a, b = Counter(tokens(said)), Counter(tokens(wanted))
    shared = sum((a & b).values())
    return 2 * shared / (sum(a.values()) + sum(b.values())) if shared else 0.0


if __name__ == "__main__":
    sys.exit(main())
