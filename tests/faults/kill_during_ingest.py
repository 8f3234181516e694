#!/usr/bin/env python3
"""Kill the daemon at random instants while it reads 40 documents; nothing may be lost or doubled.

The real daemon with the real embedder runs on a folder of generated documents. It is killed with
SIGKILL after a random time, SQLite's own integrity check runs on the file, twelve documents change,
and it is started again, as often as asked. At last all documents are as they were at first. What
the store holds then must equal what an undisturbed run holds: documents, passages, keyword index,
and vectors (up to the rounding that neighbours in a batch cause).

    python tests/faults/kill_during_ingest.py --kills 50 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.box import Box
from tests.parsers import files

N_DOCUMENTS = 40
# The smallest model answers, so that a start costs little; ingestion uses only the embedder.
# One thread: on a busy machine two spend their time waiting for each other.
CONFIG = (
    "models: {generation: smollm2-135m-instruct}\n"
    "inbox: {settle_s: 0.0, rescan_s: 2.0}\n"
    "engine: {n_threads: 1}\n"
)
EMBEDDING_S = 3.0
"""A late kill comes at most this long after the first vectors of its round were stored."""

TABLES = {
    "documents": "SELECT hex(sha256), format, title, n_pages, problems, state FROM documents"
    " ORDER BY sha256",
    "files": "SELECT hex(path), state, error_code FROM files ORDER BY path",
    "passages": "SELECT hex(d.sha256), p.ordinal, p.text, p.page, p.heading, p.line_from, p.line_to"
    " FROM passages p JOIN documents d ON d.id = p.document_id ORDER BY d.sha256, p.ordinal",
    "vectors": "SELECT hex(d.sha256), p.ordinal, length(v.vector) FROM vectors v JOIN passages p"
    " ON p.id = v.passage_id JOIN documents d ON d.id = p.document_id ORDER BY d.sha256, p.ordinal",
    "keyword index": "SELECT hex(d.sha256), p.ordinal FROM passages_fts f JOIN passages p"
    " ON p.id = f.rowid JOIN documents d ON d.id = p.document_id ORDER BY d.sha256, p.ordinal",
    "terms": "SELECT term, doc, cnt FROM passages_vocab ORDER BY term",
    "pending": "SELECT kind, what FROM jobs ORDER BY kind, what",
}


def make_documents(folder: Path, seed: str, numbers: Iterable[int] = range(N_DOCUMENTS)) -> None:
    """Write documents of four formats, the same for the same seed."""
    rng = random.Random(seed)
    words = "图书馆 周末 关门 学校 实验 通知 电源 手册 光合 作用 教案 论文 引用".split()  # noqa: SIM905
    for n in numbers:
        lines = [
            f"第{n}份文件第{i}行：" + "".join(rng.choice(words) for _ in range(12)) + "。"
            for i in range(rng.randint(5, 60))
        ]
        kind = n % 4
        if kind == 0:
            (folder / f"{n:02}.txt").write_bytes("\n".join(lines).encode("gb18030"))
        elif kind == 1:
            text = "\n".join(f"## 第{i}节\n\n{line}\n" for i, line in enumerate(lines))
            (folder / f"{n:02}.md").write_text(f"# 文件{n}\n\n{text}", encoding="utf-8")
        elif kind == 2:
            files.docx(folder / f"{n:02}.docx", [(line, None) for line in lines])
        else:
            pages = [f"Document {n}, page {i}. " + "Rated 65 W. " * 9 for i in range(1, 6)]
            files.pdf(folder / f"{n:02}.pdf", pages)


def content(data: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything the store says, free of ids and times."""
    with contextlib.closing(sqlite3.connect(data / "appliance.db")) as db:
        return {name: db.execute(query).fetchall() for name, query in TABLES.items()}


def vectors(data: Path) -> dict[tuple[str, int], bytes]:
    """Vectors by document and passage."""
    with contextlib.closing(sqlite3.connect(data / "appliance.db")) as db:
        return {
            (row[0], row[1]): row[2]
            for row in db.execute(
                "SELECT hex(d.sha256), p.ordinal, v.vector FROM vectors v JOIN passages p"
                " ON p.id = v.passage_id JOIN documents d ON d.id = p.document_id"
            )
        }


def integrity(data: Path) -> str:
    """SQLite's verdict on the file as the kill left it."""
    path = data / "appliance.db"
    if not path.exists():
        return "ok"
    with contextlib.closing(sqlite3.connect(path)) as db:
        return str(db.execute("PRAGMA integrity_check").fetchone()[0])


def wait_for_embedding(box: Box) -> None:
    """Return when this start of the daemon has stored a batch of vectors, or has none to make."""
    deadline = time.monotonic() + 120.0
    before = None
    while time.monotonic() < deadline:
        status = box.client.get("/api/status")
        n_vectors = status["documents"]["vectors"]
        if before is not None and n_vectors > before:
            return
        before = n_vectors
        work = status["work"]
        if not work["n_files_waiting"] and not work["n_passages_waiting"]:
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing was embedded in 120 s:\n{box.log()}")


def cosine(one: bytes, other: bytes) -> float:
    """Cosine of two int8 vectors."""
    a, b = memoryview(one).cast("b"), memoryview(other).cast("b")
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return float(dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5)


def main() -> int:
    """Run it; exit 0 when nothing was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as temporary:
        calm, rough = Path(temporary) / "calm", Path(temporary) / "rough"
        originals = Path(temporary) / "originals"
        originals.mkdir()
        make_documents(originals, str(args.seed))
        for data in (calm, rough):
            shutil.copytree(originals, data / "inbox")
        started = time.monotonic()
        with Box(calm, config=CONFIG) as box:
            box.wait()
        calm_s = time.monotonic() - started
        print(f"undisturbed run: {calm_s:.1f} s", flush=True)

        box = Box(rough, config=CONFIG)
        n_bad = 0
        for n in range(args.kills):
            if n:
                # New work for every round: some files change, so that each kill interrupts reading.
                changed = rng.sample(range(N_DOCUMENTS), 12)
                make_documents(rough / "inbox", f"{args.seed}-{n}", changed)
            box.start()
            # Every other kill comes early, while files are parsed; the rest while embedding,
            # whenever that begins: the clock would miss it on a busy machine.
            started = time.monotonic()
            if n % 2:
                time.sleep(rng.uniform(0.0, 2.0))
            else:
                wait_for_embedding(box)
                time.sleep(rng.uniform(0.0, EMBEDDING_S))
            after_s = time.monotonic() - started
            box.kill()
            verdict = integrity(rough)
            n_bad += verdict != "ok"
            found = content(rough)
            done = sum(row[-1] == "ready" for row in found["documents"])
            print(
                f"kill {n + 1}: after {after_s:.2f} s, {done} documents ready,"
                f" {len(found['vectors'])} vectors, integrity {verdict}",
                flush=True,
            )
        # In the end every document is as the undisturbed run had it.
        shutil.copytree(originals, rough / "inbox", dirs_exist_ok=True)
        with box:
            box.wait()
        want, have = content(calm), content(rough)
        differing = [name for name in TABLES if want[name] != have[name]]
        ours, theirs = vectors(rough), vectors(calm)
        # Passages share batches with others after a kill, which moves sums by a rounding.
        worst = min((cosine(ours[key], theirs[key]) for key in theirs if key in ours), default=0.0)
        same = sum(ours.get(key) == theirs[key] for key in theirs)
    print(
        f"seed {args.seed}: {args.kills} kills, {n_bad} failed integrity checks, differing tables:"
        f" {differing or 'none'}; {same} of {len(theirs)} vectors byte-equal,"
        f" worst cosine {worst:.5f}"
    )
    return 1 if n_bad or differing or worst < 0.999 else 0


if __name__ == "__main__":
    sys.exit(main())
