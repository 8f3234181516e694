"""A SQuAD-format question set as documents of a real store, through the product's own code."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.engine.base import Embedder, Engine, Priority
from appliance.errors import EngineStoppedError
from appliance.parsers.base import Block
from appliance.store import ParsedMeta, Store
from appliance.text.chunk import chunk

_BATCH = 32


@dataclass(frozen=True)
class Item:
    """One question, its accepted answers and the file that holds its paragraph."""

    question: str
    answers: tuple[str, ...]
    path: str


def read(file: Path, most: int | None = None) -> tuple[dict[str, str], list[Item]]:
    """Return paragraphs by path, and the first ``most`` questions.

    Reads SQuAD's nesting (data > paragraphs > qas) and CMRC's flat one (list of contexts). A
    paragraph that stands twice is one document, as it would be in the product.
    """
    tree = json.loads(file.read_text(encoding="utf-8"))
    paragraphs: dict[str, str] = {}
    path_of: dict[str, str] = {}
    items: list[Item] = []
    for n, (context, qas) in enumerate(_paragraphs(tree)):
        path = path_of.setdefault(context, f"paragraph-{n:05d}.txt")
        paragraphs[path] = context
        for qa in qas:
            answers = tuple(a if isinstance(a, str) else a["text"] for a in qa["answers"])
            items.append(Item(qa["question"], answers, path))
    return paragraphs, items[:most]


def _paragraphs(tree: object) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    entries = tree["data"] if isinstance(tree, dict) else tree
    for entry in entries:
        for part in entry.get("paragraphs", [entry]):
            yield part.get("context") or part["context_text"], part["qas"]


def index(store: Store, paragraphs: dict[str, str], embedder: Embedder) -> None:
    """Store every paragraph as a document of its own, with vectors; skips what is there."""
    there = {path: row.sha256 for row in store.documents() for path in row.paths}
    for path, text in paragraphs.items():
        name, raw = path.encode(), text.encode()
        digest = hashlib.sha256(raw).digest()
        if there.get(path) == digest:
            continue
        store.note_file(name, len(raw), 0)
        if store.link_existing(name, digest) is None:
            passages = chunk([Block(text, line_from=1, line_to=1 + text.count("\n"))])
            store.commit_document(name, digest, len(raw), ParsedMeta("txt", path), passages)
    wait_embedder(embedder)
    while pending := store.pending_embeddings(_BATCH):
        vectors = embedder.embed([text for _, text in pending], "passage", Priority.INGEST_EMBED)
        store.add_vectors(embedder.embedder_id, [pid for pid, _ in pending], vectors)


def wait_model(engine: Engine, most_s: float = 300.0) -> None:
    """Wait until the model that answers is loaded."""
    deadline = time.monotonic() + most_s
    while engine.status().state == "loading":
        assert time.monotonic() < deadline, "the model did not load"
        time.sleep(0.05)


def wait_embedder(embedder: Embedder, most_s: float = 120.0) -> None:
    """Wait until the embedder is loaded."""
    deadline = time.monotonic() + most_s
    while True:
        try:
            embedder.count_embed_tokens("ready?")
        except EngineStoppedError:  # noqa: PERF203 - polling
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
