"""Keyword and vector queries to scored passage ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from appliance.store.db import Database
from appliance.store.vectors import Background, VectorMatrix

_MOST_TERMS = 12
"""Rarest terms of a query that are looked up; the project's notes: pruning costs no recall."""

_COMMON = 0.2
"""Share of passages above which a term says little; dropped while rarer ones exist."""

_MOST_POSTINGS = 50_000
"""Entries of the index that one query may walk through, rarest terms first: bounds its time at any
size. Below some 20,000 passages it cuts nothing.
"""


@dataclass(frozen=True)
class Scope:
    """Where to search: nothing set means everywhere.

    Attributes:
        collection: a folder of the inbox and the folders inside it.
        formats: formats as ``documents.format`` has them, e.g. ``pdf``.
        path: a pattern for the shown path, ``*`` and ``?`` as a shell has them; without either, a
            part of the path.
        since, until: seconds since 1970 between which the file was last changed.
    """

    collection: str | None = None
    formats: tuple[str, ...] = ()
    path: str | None = None
    since: float | None = None
    until: float | None = None

    @property
    def is_everywhere(self) -> bool:
        """Whether nothing is left out."""
        return self == Scope()

    def condition(self) -> tuple[str, dict[str, str | float]]:
        """Return a condition on ``files f`` and ``documents d``, and its values."""
        parts: list[str] = []
        values: dict[str, str | float] = {}
        if self.collection is not None:
            parts.append(IN_COLLECTION)
            values["collection"] = self.collection
        if self.formats:
            names = [f"format{n}" for n in range(len(self.formats))]
            parts.append(f"d.format IN ({', '.join(f':{name}' for name in names)})")
            values.update(zip(names, self.formats, strict=True))
        if self.path is not None:
            is_pattern = any(mark in self.path for mark in "*?[")
            parts.append("f.display GLOB :path" if is_pattern else "instr(f.display, :path) > 0")
            values["path"] = self.path
        for name, sign in (("since", ">="), ("until", "<=")):
            limit: float | None = getattr(self, name)
            if limit is not None:
                parts.append(f"f.mtime_ns / 1e9 {sign} :{name}")
                values[name] = limit
        return " AND ".join(parts) or "1", values


EVERYWHERE = Scope()

_SCOPED = (
    "SELECT p.id FROM passages p JOIN documents d ON d.id = p.document_id"
    " JOIN files f ON f.document_id = d.id WHERE "
)

IN_COLLECTION = (
    "(f.collection = :collection"
    " OR substr(f.collection, 1, length(:collection) + 1) = :collection || '/')"
)
"""Condition on ``files f``: in the collection or in a folder inside it."""


@dataclass(frozen=True)
class TermStat:
    """A query term with its document frequency and inverse document frequency."""

    term: str
    df: int
    idf: float


@dataclass(frozen=True)
class KeywordHits:
    """Ids with BM25 scores (higher is better), the statistics of every term, and corpus size."""

    hits: tuple[tuple[int, float], ...]
    terms: tuple[TermStat, ...]
    n_passages: int


def count_passages(db: Database) -> int:
    """Return how many passages there are."""
    with db.read() as connection:
        return int(connection.execute("SELECT count(*) FROM passages").fetchone()[0])


def term_stats(db: Database, terms: Sequence[str]) -> tuple[tuple[TermStat, ...], int]:
    """Return document frequencies of terms, and the number of passages."""
    with db.read() as connection:
        n = count_passages(db)
        stats = []
        for term in terms:
            row = connection.execute(
                "SELECT doc FROM passages_vocab WHERE term = ?", (term,)
            ).fetchone()
            df = int(row[0]) if row else 0
            idf = math.log(1.0 + (n - df + 0.5) / (df + 0.5))
            stats.append(TermStat(term, df, idf))
    return tuple(stats), n


def keyword_search(
    db: Database, terms: Sequence[str], k: int, scope: Scope = EVERYWHERE
) -> KeywordHits:
    """Return the best passages for any of ``terms`` by BM25."""
    stats, n = term_stats(db, terms)
    known = sorted((s for s in stats if s.df), key=lambda s: s.df)
    kept = [s for s in known if s.df <= max(1.0, _COMMON * n)][:_MOST_TERMS] or known[:_MOST_TERMS]
    kept = _affordable(kept)
    if not kept:
        return KeywordHits((), stats, n)
    match = " OR ".join(f'"{s.term}"' for s in kept)
    where = ""
    values: dict[str, str | float] = {}
    if not scope.is_everywhere:
        condition, values = scope.condition()
        where = f" AND rowid IN ({_SCOPED}{condition})"
    values = {**values, "match": match}
    with db.read() as connection:
        rows = connection.execute(
            "SELECT rowid, -bm25(passages_fts) AS score FROM passages_fts"  # noqa: S608
            f" WHERE passages_fts MATCH :match{where}"
            f" ORDER BY bm25(passages_fts), rowid LIMIT {int(k)}",
            values,
        ).fetchall()
    return KeywordHits(tuple((row[0], row[1]) for row in rows), stats, n)


def _affordable(stats: Sequence[TermStat]) -> list[TermStat]:
    """Return the rarest terms whose entries together stay below the limit, one at least."""
    kept: list[TermStat] = []
    n_postings = 0
    for stat in stats:
        n_postings += stat.df
        if kept and n_postings > _MOST_POSTINGS:
            break
        kept.append(stat)
    return kept


def terms_with(db: Database, char: str, limit: int = 64) -> list[str]:
    """Return indexed bigrams that contain a single Chinese character, the most frequent first."""
    with db.read() as connection:
        rows = connection.execute(
            "SELECT term FROM passages_vocab WHERE term LIKE ? AND length(term) <= 2"
            " ORDER BY doc DESC LIMIT ?",
            (f"%{char}%", limit),
        ).fetchall()
    return [row[0] for row in rows]


def dense_search(
    db: Database,
    matrix: VectorMatrix,
    vector: npt.NDArray[np.float32],
    k: int,
    scope: Scope = EVERYWHERE,
) -> tuple[list[tuple[int, float]], Background | None]:
    """Return the nearest passages as (id, cosine), and the query's background."""
    if scope.is_everywhere:
        return matrix.scan(vector, k)
    condition, values = scope.condition()
    with db.read() as connection:
        allowed = np.fromiter(
            (row[0] for row in connection.execute(f"{_SCOPED}{condition}", values)), np.int64
        )
    return matrix.scan(vector, k, np.unique(allowed))


def known_terms(db: Database, terms: Sequence[str]) -> dict[str, int]:
    """Return the document frequency of those ``terms`` that are indexed."""
    found: dict[str, int] = {}
    with db.read() as connection:
        for term in terms:
            row = connection.execute(
                "SELECT doc FROM passages_vocab WHERE term = ?", (term,)
            ).fetchone()
            if row is not None:
                found[term] = int(row[0])
    return found


def vocabulary(db: Database) -> list[tuple[str, int]]:
    """Return every indexed term with its document frequency."""
    with db.read() as connection:
        return [
            (row[0], row[1]) for row in connection.execute("SELECT term, doc FROM passages_vocab")
        ]
