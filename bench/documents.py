#!/usr/bin/env python3
"""Real documents through the product: are they read, how fast, and is the right page found.

Every file below DIR is parsed by the product's own limited child and indexed. Two sentences of each
document are turned into questions by leaving a word or figure out; a question counts as found at
rank r when the r-th hit is that page (or passage) of that document. The table gives pages and
megabytes per second of text extraction by format, and the child's peak memory.

--rate embeds some of the passages twice, by the ingest path and by the bare embedder, and prints
the ratio. The last line is one JSON object.

Examples:
    python bench/documents.py /usr/share/doc --max-files 60
    python bench/documents.py manuals --rate 300
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import squad

from appliance.config import Config, models_dir
from appliance.core.prompt import split_sentences
from appliance.core.retrieve import Retriever
from appliance.engine.base import Priority
from appliance.engine.llama import LlamaEngine
from appliance.errors import IngestError
from appliance.messages import sentence
from appliance.models import ModelStore
from appliance.parsers.base import Limits, ParsedDocument
from appliance.parsers.process import ParserProcess
from appliance.parsers.registry import SUFFIXES
from appliance.store import ParsedMeta, PassageRow, Store
from appliance.text.chunk import chunk
from appliance.text.lang import detect_lang

_BATCH = 16


def main(argv: Sequence[str] | None = None) -> int:
    """Read, index, ask, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--max-files", type=int, default=100, metavar="N")
    parser.add_argument("--rate", type=int, default=0, metavar="N", help="passages to embed twice")
    parser.add_argument("--vectors", action="store_true", help="search with vectors too")
    args = parser.parse_args(argv)
    paths = sorted(p for p in args.folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    paths = [p for p in paths if p.is_file() and not p.is_symlink()]
    rng = random.Random(5)
    rng.shuffle(paths)
    paths = sorted(paths[: args.max_files])
    config = Config(data=Path())
    engine: LlamaEngine | None = None
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "appliance.db")
        try:
            # First of all: a child's peak counts what its parent held when it was started.
            figures = read_all(store, paths, args.folder)
            embedder = ModelStore(models_dir(config, os.environ)).path(config.models.embedding)
            engine = LlamaEngine(None, embedder)
            squad.wait_embedder(engine)
            if args.vectors:
                squad.index(store, {}, engine)
            figures |= ask_all(store, Retriever(store, engine, config.search), rng)
            if args.rate:
                figures |= rates(store, engine, args.rate)
        finally:
            store.close()
            if engine is not None:
                engine.close()
    print(json.dumps(figures, ensure_ascii=False))
    return 0


def read_all(store: Store, paths: Sequence[Path], root: Path) -> dict[str, object]:
    """Parse and store every file; prints what failed and why."""
    child = ParserProcess()
    states: Counter[str] = Counter()
    spent: dict[str, float] = defaultdict(float)
    pages: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for path in paths:
        name = path.relative_to(root).as_posix()
        started = time.perf_counter()
        try:
            document = child.parse(bytes(path), path.name, Limits(ocr="off"))
        except IngestError as error:
            states["failed"] += 1
            print(f"failed  {name}: {sentence(error.code, 'en', error.facts)}")
            continue
        spent[document.format] += time.perf_counter() - started
        pages[document.format] += document.n_pages or 1
        sizes[document.format] += path.stat().st_size
        states["partial" if document.problems else "ready"] += 1
        _keep(store, name, path.read_bytes(), document)
    child.close()
    rows = {
        kind: {
            "pages": pages[kind],
            "pages_per_s": round(pages[kind] / spent[kind], 1),
            "mib_per_s": round(sizes[kind] / 2**20 / spent[kind], 2),
        }
        for kind in sorted(spent)
    }
    for kind, row in rows.items():
        print(f"{kind:6} {row}")
    # ru_maxrss of waited-for children: the worker, which waited for its own.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{len(paths)} files: {dict(states)}; child's peak {peak:.0f} MiB")
    return {"files": len(paths), "states": states, "formats": rows, "child_peak_mib": round(peak)}


def _keep(store: Store, name: str, raw: bytes, document: ParsedDocument) -> None:
    path, digest = name.encode(), hashlib.sha256(raw).digest()
    store.note_file(path, len(raw), 1)
    if store.link_existing(path, digest) is not None:
        return
    meta = ParsedMeta(
        document.format,
        document.title,
        document.encoding,
        document.n_pages,
        tuple(asdict(problem) for problem in document.problems),
    )
    store.commit_document(path, digest, len(raw), meta, chunk(document.blocks))


def ask_all(store: Store, retriever: Retriever, rng: random.Random) -> dict[str, object]:
    """Ask two questions of every document; returns recall of the right place."""
    ranks: dict[str, list[int | None]] = defaultdict(list)
    for document in store.documents():
        passages = store.passages(document.id)
        rng.shuffle(passages)
        asked = 0
        for passage in passages:
            question = question_of(passage.text, rng)
            if question is None:
                continue
            hits = retriever.search(question, k=10).hits
            at = [n for n, hit in enumerate(hits, 1) if _is_place(hit.document, hit, passage)]
            ranks[document.format].append(at[0] if at else None)
            asked += 1
            if asked == 2:
                break
    every = [rank for some in ranks.values() for rank in some]
    figures: dict[str, object] = {"questions": len(every)}
    for most in (1, 5, 10):
        share = sum(1 for r in every if r is not None and r <= most) / max(1, len(every))
        figures[f"place_recall@{most}"] = round(share, 4)
    for kind, some in sorted(ranks.items()):
        top = sum(1 for r in some if r is not None and r <= 5) / len(some)
        print(f"{kind:6} {len(some):4} questions, right place in the first five: {top:.1%}")
    return figures


def question_of(text: str, rng: random.Random) -> str | None:
    """Return a sentence of the text as a question, its longest word or figure left out."""
    sentences = [" ".join(s.split()).rstrip("。.;；:： ") for s in split_sentences(text)]
    fitting = [
        s
        for s in sentences
        if (12 <= len(s) <= 60 if detect_lang(s) == "zh" else 45 <= len(s) <= 180) and "|" not in s
    ]
    if not fitting:
        return None
    chosen = rng.choice(fitting)
    if detect_lang(chosen) == "zh":
        at = rng.randrange(2, len(chosen) - 4)
        return f"{chosen[:at]}什么{chosen[at + 2 :]}？"
    words = re.findall(r"[A-Za-z]{4,}|\d+", chosen)
    if len(words) < 4:
        return None
    return chosen.replace(max(words, key=len), "what", 1) + "?"


def _is_place(document: int, hit: object, passage: PassageRow) -> bool:
    if document != passage.document_id:
        return False
    if passage.page is not None:
        return bool(getattr(hit, "page", None) == passage.page)
    wanted = "".join(passage.text.split())
    return wanted[:60] in "".join(getattr(hit, "text", "").split())


def rates(store: Store, engine: LlamaEngine, n: int) -> dict[str, object]:
    """Return passages per second of the ingest path and of the bare embedder, same texts."""
    pending = store.pending_embeddings(n)
    engine.embed([text for _, text in pending[:_BATCH]], "passage", Priority.INGEST_EMBED)
    started = time.perf_counter()
    for at in range(0, len(pending), _BATCH):
        texts = [text for _, text in pending[at : at + _BATCH]]
        engine.embed(texts, "passage", Priority.INGEST_EMBED)
    bare = len(pending) / (time.perf_counter() - started)
    started, done = time.perf_counter(), 0
    while done < len(pending):
        batch = store.pending_embeddings(_BATCH)
        vectors = engine.embed([text for _, text in batch], "passage", Priority.INGEST_EMBED)
        store.add_vectors(engine.embedder_id, [pid for pid, _ in batch], vectors)
        done += len(batch)
    product = done / (time.perf_counter() - started)
    print(f"{product:.1f} passages/s ingested, {bare:.1f} by the bare embedder")
    return {
        "passages_per_s": round(product, 2),
        "bare_passages_per_s": round(bare, 2),
        "ratio": round(product / bare, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
