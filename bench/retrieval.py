#!/usr/bin/env python3
"""Recall of the keyword, vector and fused arms on a SQuAD-format question set.

Every paragraph of FILE becomes a document, indexed by the product's own code; a question counts as
found at rank r when a passage of its own paragraph is the r-th distinct document. The last line is
one JSON object.

Example:
    python bench/retrieval.py --squad questions.json --max 500 --db /tmp/bench
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import squad

from appliance.config import Config, SearchConfig, models_dir
from appliance.core.retrieve import Retriever
from appliance.engine.base import Priority
from appliance.engine.llama import LlamaEngine
from appliance.models import ModelStore
from appliance.store import Store
from appliance.units import Tokens

_DEPTH = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Index, ask every question three ways, print the table and the JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--squad", type=Path, required=True, metavar="FILE", help="the question set"
    )
    parser.add_argument("--max", type=int, metavar="N", help="only the first N questions")
    parser.add_argument(
        "--db", type=Path, metavar="DIR", help="keep the index here for the next run"
    )
    args = parser.parse_args(argv)

    config = Config(data=Path())
    embedder_path = ModelStore(models_dir(config, os.environ)).path(config.models.embedding)
    engine = LlamaEngine(None, embedder_path)
    with tempfile.TemporaryDirectory() as temporary:
        store = Store.open((args.db or Path(temporary)) / "appliance.db")
        try:
            paragraphs, items = squad.read(args.squad, args.max)
            started = time.perf_counter()
            # An index kept from another question set must not take part.
            store.forget_files(
                file.path for file in store.files() if file.display not in paragraphs
            )
            squad.index(store, paragraphs, engine)
            print(
                f"{len(paragraphs)} paragraphs, {store.stats()['passages']} passages indexed in "
                f"{time.perf_counter() - started:.1f} s; {len(items)} questions"
            )
            arms = {
                "keyword": dataclasses.replace(config.search, dense_weight=0.0),
                "dense": dataclasses.replace(config.search, keyword_weight=0.0),
                "fused": config.search,
            }
            embedder = RememberedQueries(engine)
            figures = {
                name: measure(store, embedder, search, items) for name, search in arms.items()
            }
        finally:
            store.close()
            engine.close()
    for name, row in figures.items():
        print(f"{name:8}", "  ".join(f"{key} {value:.4f}" for key, value in row.items()))
    print(json.dumps(figures))
    return 0


class RememberedQueries:
    """The real embedder, asked once per text: the three arms look for the same questions."""

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine
        self._rows: dict[tuple[str, str], npt.NDArray[np.float32]] = {}

    @property
    def embedder_id(self) -> str:
        """The real one's."""
        return self._engine.embedder_id

    @property
    def n_embd(self) -> int:
        """The real one's."""
        return self._engine.n_embd

    def count_embed_tokens(self, text: str) -> Tokens:
        """The real one's."""
        return self._engine.count_embed_tokens(text)

    def embed(
        self, texts: Sequence[str], kind: Literal["query", "passage"], priority: Priority
    ) -> npt.NDArray[np.float32]:
        """Return the real vectors, made once."""
        missing = [text for text in dict.fromkeys(texts) if (kind, text) not in self._rows]
        if missing:
            rows = self._engine.embed(missing, kind, priority)
            self._rows.update(((kind, text), row) for text, row in zip(missing, rows, strict=True))
        return np.stack([self._rows[kind, text] for text in texts])


def measure(
    store: Store, engine: RememberedQueries, search: SearchConfig, items: Sequence[squad.Item]
) -> dict[str, float]:
    """Return recall@1, @5, @10 and mrr@10 of one arm."""
    retriever = Retriever(store, engine, search)
    ranks: list[int | None] = []
    for item in items:
        # An arm of weight 0 still lists passages, all at score 0: they were not found by this arm.
        hits = [hit for hit in retriever.search(item.question, k=50).hits if hit.score > 0]
        paths = list(dict.fromkeys(hit.path for hit in hits))[:_DEPTH]
        ranks.append(paths.index(item.path) + 1 if item.path in paths else None)
    n = len(ranks)
    return {
        **{
            f"recall@{top}": round(sum(1 for r in ranks if r is not None and r <= top) / n, 4)
            for top in (1, 5, 10)
        },
        "mrr@10": round(sum(1 / r for r in ranks if r is not None) / n, 4),
    }


if __name__ == "__main__":
    sys.exit(main())
