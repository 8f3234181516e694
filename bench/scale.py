#!/usr/bin/env python3
"""Search time, index size, memory and recall at 100,000 passages and more.

Passages are real ones (a SQuAD-format set) made many by perturbation: sentences of several are
mixed and numbers changed; their vectors are the real ones plus noise. Searches run the product's
own code. Recall compares the passages found with an exact search: float32 vectors, and keyword
scores over every posting. The last line is one JSON object.

Example:
    python bench/scale.py --squad questions.json --passages 1000000 --db /tmp/scale
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import hashlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import squad
from retrieval import RememberedQueries

from appliance.config import Config, models_dir
from appliance.core.retrieve import Retriever
from appliance.engine.base import Priority
from appliance.engine.llama import LlamaEngine
from appliance.models import ModelStore
from appliance.store import ParsedMeta, Store, search
from appliance.text.chunk import NewPassage, sentences

_PER_DOCUMENT = 50
_NOISE = 0.6
"""Length of the noise added to a unit vector; cosine to the original about 0.86."""

Rows = npt.NDArray[np.float32]


def main(argv: Sequence[str] | None = None) -> int:
    """Fill a store, search it, add and delete, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--squad", type=Path, required=True, metavar="FILE")
    parser.add_argument("--passages", type=int, default=100_000, metavar="N")
    parser.add_argument("--queries", type=int, default=200, metavar="N")
    parser.add_argument("--db", type=Path, required=True, metavar="DIR", help="kept for next time")
    args = parser.parse_args(argv)

    config = Config(data=Path())
    engine = LlamaEngine(
        None, ModelStore(models_dir(config, os.environ)).path(config.models.embedding)
    )
    paragraphs, items = squad.read(args.squad)
    squad.wait_embedder(engine)
    base = np.concatenate(
        [
            engine.embed(part, "passage", Priority.INGEST_EMBED)
            for part in _parts([text[:400] for text in paragraphs.values()], 32)
        ]
    )
    args.db.mkdir(parents=True, exist_ok=True)
    exact_path = args.db / "exact.f32"
    before = _rss_mib()
    store = Store.open(args.db / "appliance.db")
    try:
        if store.stats()["passages"] < args.passages:
            seconds = fill(store, list(paragraphs.values()), base, args.passages, exact_path)
            print(f"filled with {args.passages} passages in {seconds:.0f} s")
            store.close()
            store = Store.open(args.db / "appliance.db")
        gc.collect()
        figures: dict[str, object] = {"passages": args.passages}
        figures["database_mib"] = round((args.db / "appliance.db").stat().st_size / 2**20, 1)
        figures["rss_of_store_mib"] = round(_rss_mib() - before, 1)
        step = max(1, len(items) // args.queries)
        asked = [item.question for item in items[::step]][: args.queries]
        embedder = RememberedQueries(engine)
        for question in asked:
            embedder.embed([question], "query", Priority.QUERY_EMBED)
        figures |= search_times(store, embedder, config, asked)
        figures |= recall(store, embedder, config, asked, exact_path)
        figures |= changes(store, base)
    finally:
        store.close()
        engine.close()
    for name, value in figures.items():
        print(f"{name:28} {value}")
    print(json.dumps(figures))
    return 0


def fill(store: Store, texts: list[str], base: Rows, n_passages: int, exact_path: Path) -> float:
    """Write ``n_passages`` perturbed passages in documents of fifty, and their float vectors.

    Goes on where an earlier run was stopped.
    """
    started = time.perf_counter()
    cut = [[text[a:b] for a, b in sentences(text)] for text in texts]
    done = store.stats()["vectors"] // _PER_DOCUMENT
    with exact_path.open("ab") as exact:
        exact.truncate(done * _PER_DOCUMENT * base.shape[1] * 4)
        for n_document in range(done, n_passages // _PER_DOCUMENT):
            rng, np_rng = random.Random(n_document), np.random.default_rng(n_document)
            passages, vectors = [], []
            at = 0
            for ordinal in range(_PER_DOCUMENT):
                source = rng.randrange(len(texts))
                text = _perturbed(cut, source, rng)
                passages.append(
                    NewPassage(
                        ordinal=ordinal,
                        text=text,
                        page=ordinal + 1,
                        heading=None,
                        line_from=None,
                        line_to=None,
                        char_from=at,
                        char_to=at + len(text),
                    )
                )
                at += len(text) + 1
                vectors.append(_noisy(base[source], np_rng))
            ids = add(store, f"made/{n_document:06d}.txt", passages)
            rows = np.stack(vectors)
            # In order of the ids, which grow with every document; before the vectors, so that
            # a stop between the two leaves nothing that the next run would not write again.
            exact.write(rows.tobytes())
            exact.flush()
            store.add_vectors(store.embedder_id() or "e5", ids, rows)
            if n_document % 200 == 199:
                rate = (n_document + 1 - done) * _PER_DOCUMENT / (time.perf_counter() - started)
                print(f"{(n_document + 1) * _PER_DOCUMENT} passages, {rate:.0f}/s", flush=True)
    return time.perf_counter() - started


def add(store: Store, name: str, passages: Sequence[NewPassage]) -> list[int]:
    """Store one document; returns its passages' ids in order."""
    path = name.encode()
    if (there := store.file(path)) is not None and there.document_id is not None:
        return [row.id for row in store.passages(there.document_id)]
    digest = hashlib.sha256(name.encode()).digest()
    store.note_file(path, 1, 1)
    document = store.commit_document(path, digest, 1, ParsedMeta("txt", name), passages)
    return [row.id for row in store.passages(document)]


def _perturbed(cut: list[list[str]], source: int, rng: random.Random) -> str:
    """Mix the sentences of one text with some of another, and change its numbers."""
    mine, other = cut[source], cut[rng.randrange(len(cut))]
    n = rng.randint(1, min(6, len(mine)))
    begin = rng.randrange(len(mine) - n + 1)
    picked = mine[begin : begin + n] + rng.sample(other, min(2, len(other)))
    rng.shuffle(picked)
    text = "".join(picked)
    return "".join(str(rng.randrange(10)) if c.isdigit() else c for c in text)[:600]


def _noisy(vector: Rows, rng: np.random.Generator) -> Rows:
    noise = rng.standard_normal(len(vector), dtype=np.float32)
    noise *= _NOISE / np.linalg.norm(noise)
    found = vector + noise
    return (found / np.linalg.norm(found)).astype(np.float32)


def search_times(
    store: Store, embedder: RememberedQueries, config: Config, asked: Sequence[str]
) -> dict[str, object]:
    """Return p50 and p95 of the whole search, of each arm, and without the query's embedding."""
    # The ids of the made vectors are another embedder's in name only.
    retriever = Retriever(store, _Named(embedder, store.embedder_id() or ""), config.search)
    for question in asked[:5]:
        retriever.search(question)
    whole, keyword, dense = [], [], []
    for question in asked:
        started = time.perf_counter()
        retriever.search(question)
        whole.append(time.perf_counter() - started)
        started = time.perf_counter()
        store.keyword_search(retriever.lookup_terms(question), 50)
        keyword.append(time.perf_counter() - started)
        vector = embedder.embed([question], "query", Priority.QUERY_EMBED)[0]
        started = time.perf_counter()
        store.dense_search(vector, 50)
        dense.append(time.perf_counter() - started)
    figures: dict[str, object] = {}
    for name, seconds in (("search", whole), ("keyword", keyword), ("dense", dense)):
        figures[f"{name}_p50_ms"] = round(statistics.median(seconds) * 1e3, 2)
        figures[f"{name}_p95_ms"] = round(sorted(seconds)[int(len(seconds) * 0.95)] * 1e3, 2)
    return figures


def recall(
    store: Store,
    embedder: RememberedQueries,
    config: Config,
    asked: Sequence[str],
    exact_path: Path,
) -> dict[str, object]:
    """Return how much of an exact search's first ten the product finds, per arm and fused."""
    rows: Rows = np.memmap(exact_path, np.float32, "r").reshape(-1, embedder.n_embd)
    retriever = Retriever(store, _Named(embedder, store.embedder_id() or ""), config.search)
    shares: dict[str, list[float]] = {"keyword": [], "dense": [], "fused": []}
    for question in asked:
        vector = embedder.embed([question], "query", Priority.QUERY_EMBED)[0]
        cosines = np.concatenate([part @ vector for part in np.array_split(rows, 64)])
        top = np.argsort(-cosines)[:50]
        exact_dense = [(int(n) + 1, float(cosines[n])) for n in top]
        found_dense, _ = store.dense_search(vector, 50)
        terms = retriever.lookup_terms(question)
        found_keyword = store.keyword_search(terms, 50)
        exact_keyword = exact_bm25(store, terms)
        shares["dense"].append(_shared(found_dense, exact_dense))
        shares["keyword"].append(_shared(found_keyword.hits, exact_keyword.hits))
        shares["fused"].append(
            _shared(
                retriever.fused(question, found_keyword, found_dense),
                retriever.fused(question, exact_keyword, exact_dense),
            )
        )
    return {f"{name}_recall@10": round(statistics.fmean(v), 4) for name, v in shares.items()}


def exact_bm25(store: Store, terms: Sequence[str]) -> search.KeywordHits:
    """Return the same search without a limit on postings and terms."""
    kept = search._MOST_POSTINGS, search._MOST_TERMS  # noqa: SLF001 - the limits are what is judged
    search._MOST_POSTINGS, search._MOST_TERMS = 1 << 60, 1 << 30  # noqa: SLF001
    try:
        return store.keyword_search(terms, 50)
    finally:
        search._MOST_POSTINGS, search._MOST_TERMS = kept  # noqa: SLF001


def _shared(found: Sequence[tuple[int, float]], exact: Sequence[tuple[int, float]]) -> float:
    wanted = {pid for pid, _ in exact[:10]}
    return len(wanted & {pid for pid, _ in found[:10]}) / len(wanted) if wanted else 1.0


def changes(store: Store, base: Rows) -> dict[str, object]:
    """Return milliseconds to add and to delete one document of fifty passages."""
    rng, np_rng = random.Random(11), np.random.default_rng(11)
    texts = [
        f"新增文件的第{n}段，编号{rng.randrange(10**6)}，关于教室和图书馆的安排。"
        for n in range(50)
    ]
    adding, deleting = [], []
    for turn in range(20):
        passages = [
            NewPassage(n, f"{text}{turn}", n + 1, None, None, None, n * 100, n * 100 + len(text))
            for n, text in enumerate(texts)
        ]
        rows = np.stack([_noisy(base[n % len(base)], np_rng) for n in range(len(texts))])
        started = time.perf_counter()
        ids = add(store, f"added/{turn}.txt", passages)
        store.add_vectors(store.embedder_id() or "e5", ids, rows)
        adding.append(time.perf_counter() - started)
    for turn in range(20):
        started = time.perf_counter()
        store.forget_file(f"added/{turn}.txt".encode())
        deleting.append(time.perf_counter() - started)
    return {
        "add_document_ms": round(statistics.median(adding) * 1e3, 1),
        "delete_document_p50_ms": round(statistics.median(deleting) * 1e3, 1),
        "delete_document_max_ms": round(max(deleting) * 1e3, 1),
    }


@dataclasses.dataclass(frozen=True)
class _Named:
    """The embedder under the name that the made vectors are stored with."""

    inner: RememberedQueries
    embedder_id: str

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def _parts(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    sys.exit(main())
