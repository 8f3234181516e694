"""Hybrid search: keywords and vectors, fused, with a bar that says "not in your documents".

**Fusion** is reciprocal rank fusion with a small k (10 beat the customary 60 in the project's
measurements) and weights per query: when few of the query's terms exist in the index, as for an
English question over Chinese documents, the keyword arm has nothing real to say and plain fusion
would hurt.

**The bar** joins two signals. *Coverage* is the share of the query's term weight (idf) that the
best passage holds. *Closeness* is how far the best cosine stands above the index's own background
for this very query, in standard deviations of that background, so that no constant belongs to one
embedder. A code that the query names must stand in the documents.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.config import SearchConfig
from appliance.core.events import RefusalReason
from appliance.engine.base import Embedder, Priority
from appliance.errors import ApplianceError, Fact
from appliance.store import KeywordHits, PassageRow, Store
from appliance.text.cjk import codes, fold, index_terms, query_terms
from appliance.text.lang import is_han

_log = logging.getLogger(__name__)

_ARM_DEPTH = 50
"""Passages taken from each arm before fusion."""

_JUDGED = 5
"""Best passages in which the bar looks for the query's terms."""

_NEIGHBOUR_CHARS = 1200
"""Longest text of a hit grown by its neighbours."""


@dataclass(frozen=True)
class ArmRank:
    """Where one arm had a passage: 1-based rank and its own score (BM25 or cosine)."""

    rank: int
    score: float


@dataclass(frozen=True)
class Hit:
    """A passage, or neighbouring passages joined, with its place and why it was found."""

    rank: int
    passage_id: int
    document: int
    path: str
    title: str
    page: int | None
    heading: str | None
    line_from: int | None
    line_to: int | None
    score: float
    text: str
    arms: dict[str, ArmRank]


@dataclass(frozen=True)
class Relevance:
    """The signals of the bar, for ``/why``; ``closeness`` is None without vectors."""

    coverage: float
    closeness: float | None
    score: float
    missing_codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchResult:
    """Hits best first; ``outcome`` is None when the best clears the bar, else why it does not."""

    query: str
    hits: tuple[Hit, ...]
    outcome: RefusalReason | None
    relevance: Relevance
    facts: dict[str, Fact] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the shape of ``kb search --json``."""
        return {
            "query": self.query,
            "outcome": self.outcome,
            "relevance": {
                "coverage": round(self.relevance.coverage, 4),
                "closeness": None
                if self.relevance.closeness is None
                else round(self.relevance.closeness, 4),
                "score": round(self.relevance.score, 4),
                "bar": BAR,
            },
            "hits": [
                {
                    "rank": hit.rank,
                    "document": hit.document,
                    "path": hit.path,
                    "page": hit.page,
                    "heading": hit.heading,
                    "line_from": hit.line_from,
                    "line_to": hit.line_to,
                    "score": round(hit.score, 6),
                    "text": hit.text,
                    "arms": {
                        name: {"rank": arm.rank, "score": round(arm.score, 6)}
                        for name, arm in hit.arms.items()
                    },
                }
                for hit in self.hits
            ],
        }


BAR = 0.5
"""Relevance below which nothing found counts as an answer; see ``_relevance``."""


class Retriever:
    """Searches one store; safe to call from any thread."""

    def __init__(self, store: Store, embedder: Embedder, config: SearchConfig) -> None:
        self._store = store
        self._embedder = embedder
        self._config = config

    def search(self, query: str, *, k: int = 8, collection: str | None = None) -> SearchResult:
        """Return up to ``k`` hits and whether they clear the bar.

        Without an embedder (still loading, failed, or the index made by another one) the keyword
        arm answers alone.
        """
        terms = self._lookup_terms(query)
        keyword = self._store.keyword_search(terms, _ARM_DEPTH, collection)
        dense, background = self._dense(query, collection)

        arms = {
            "keyword": {pid: ArmRank(n, s) for n, (pid, s) in enumerate(keyword.hits, 1)},
            "dense": {pid: ArmRank(n, s) for n, (pid, s) in enumerate(dense, 1)},
        }
        passages = self._store.get_passages(list(arms["keyword"] | arms["dense"]))
        weights = {
            "keyword": self._config.keyword_weight * _evidence(keyword),
            "dense": self._config.dense_weight,
        }
        wanted_codes = codes(fold(query))
        scores = {
            pid: sum(
                weights[name] / (self._config.rrf_k + ranks[pid].rank)
                for name, ranks in arms.items()
                if pid in ranks
            )
            # An exact code is what the person typed: it goes before everything else.
            + (1.0 if wanted_codes and _holds_code(passages[pid], wanted_codes) else 0.0)
            for pid in passages
        }
        order = sorted(passages, key=lambda pid: (-scores[pid], pid))
        relevance = self._relevance(
            query,
            keyword,
            [passages[pid] for pid in order[:_JUDGED]],
            dense,
            background,
            wanted_codes,
        )
        hits = self._hits(order, passages, scores, arms, k)
        outcome, facts = self._outcome(hits, relevance, collection)
        return SearchResult(query, hits, outcome, relevance, facts)

    def _lookup_terms(self, query: str) -> list[str]:
        """Single Chinese characters are looked up as the bigrams that contain them."""
        terms: list[str] = []
        for term in query_terms(query):
            terms.append(term)
            if len(term) == 1 and is_han(term):
                terms.extend(self._store.terms_with(term))
        return list(dict.fromkeys(terms))

    def _dense(
        self, query: str, collection: str | None
    ) -> tuple[list[tuple[int, float]], tuple[float, float] | None]:
        indexed_with = self._store.embedder_id()
        if indexed_with is None:
            return [], None
        try:
            if indexed_with != self._embedder.embedder_id:
                return [], None
            vector = self._embedder.embed([query], "query", Priority.QUERY_EMBED)[0]
        except ApplianceError as error:
            # Expected while the model loads; keywords answer meanwhile, and status says why.
            _log.info("search without vectors: %s", error)
            return [], None
        return self._store.dense_search(vector, _ARM_DEPTH, collection)

    def _relevance(
        self,
        query: str,
        keyword: KeywordHits,
        best: Sequence[PassageRow],
        dense: Sequence[tuple[int, float]],
        background: tuple[float, float] | None,
        wanted_codes: Sequence[str],
    ) -> Relevance:
        weight = {stat.term: stat.idf for stat in keyword.terms}
        asked = [term for term in query_terms(query) if term in weight]
        total = sum(weight[term] for term in asked)
        coverage = 0.0
        for passage in best:
            held = set(index_terms(f"{passage.heading or ''}\n{passage.text}"))
            share = sum(weight[t] for t in asked if t in held) / total if total else 0.0
            coverage = max(coverage, share)
        closeness = None
        if background is not None and dense:
            mean, spread = background
            closeness = (dense[0][1] - mean) / spread if spread > 0 else 0.0
        missing = tuple(
            code
            for code in wanted_codes
            if not any(stat.term == code and stat.df for stat in keyword.terms)
        )
        score = bar_score(coverage, closeness)
        return Relevance(coverage, closeness, 0.0 if missing else score, missing)

    def _hits(
        self,
        order: Sequence[int],
        passages: dict[int, PassageRow],
        scores: dict[int, float],
        arms: dict[str, dict[int, ArmRank]],
        k: int,
    ) -> tuple[Hit, ...]:
        """Merge neighbours of a better hit into it, drop repeats of the same text, keep ``k``."""
        hits: list[Hit] = []
        taken: set[int] = set()
        texts: set[str] = set()
        by_place = {(p.document_id, p.ordinal): p for p in passages.values()}
        for pid in order:
            first = last = passages[pid]
            if pid in taken or first.text in texts:
                continue
            run = [first]
            taken.add(pid)
            while True:
                before = by_place.get((first.document_id, first.ordinal - 1))
                after = by_place.get((last.document_id, last.ordinal + 1))
                grown = False
                for neighbour in (before, after):
                    if (
                        neighbour is not None
                        and neighbour.id not in taken
                        and (neighbour.page, neighbour.heading) == (first.page, first.heading)
                        and run[-1].char_to - run[0].char_from + len(neighbour.text)
                        <= _NEIGHBOUR_CHARS
                    ):
                        taken.add(neighbour.id)
                        run = [neighbour, *run] if neighbour is before else [*run, neighbour]
                        grown = True
                first, last = run[0], run[-1]
                if not grown:
                    break
            texts.update(passage.text for passage in run)
            best = passages[pid]
            hits.append(
                Hit(
                    rank=len(hits) + 1,
                    passage_id=pid,
                    document=best.document_id,
                    path=best.path,
                    title=best.title,
                    page=best.page,
                    heading=best.heading,
                    line_from=run[0].line_from,
                    line_to=run[-1].line_to,
                    score=scores[pid],
                    text=_joined(run),
                    arms={name: ranks[pid] for name, ranks in arms.items() if pid in ranks},
                )
            )
            if len(hits) == k:
                break
        return tuple(hits)

    def _outcome(
        self, hits: Sequence[Hit], relevance: Relevance, collection: str | None
    ) -> tuple[RefusalReason | None, dict[str, Fact]]:
        if hits and relevance.score >= BAR:
            return None, {}
        n_pending = self._store.count_pending_work()
        if n_pending:
            return "indexing", {"n_pending": n_pending}
        if not self._store.has_passages(collection):
            return "no_documents", {}
        indexed_with = self._store.embedder_id()
        try:
            embedder_id: str | None = self._embedder.embedder_id
        except ApplianceError:
            embedder_id = None
        if indexed_with is not None and embedder_id is not None and indexed_with != embedder_id:
            return "embedder_changed", {"indexed_with": indexed_with}
        return "nothing_relevant", {}


def bar_score(coverage: float, closeness: float | None) -> float:
    """Return relevance from 0 to 1 of the two signals; ``BAR`` is the border.

    A logistic of their weighted sum. The weights were set on questions whose passage is in the
    index against the same questions with the passage taken out; bench/answers.py prints the curve.
    """
    if closeness is None:
        x = 10.0 * (coverage - 0.45)
    else:
        x = 6.0 * (coverage - 0.40) + 0.9 * (closeness - 3.0)
    return 1.0 / (1.0 + math.exp(-x))


def _evidence(keyword: KeywordHits) -> float:
    """Return from 0 to 1 how much of the query's term weight exists anywhere in the index."""
    total = sum(stat.idf for stat in keyword.terms)
    known = sum(stat.idf for stat in keyword.terms if stat.df)
    return known / total if total else 0.0


def _holds_code(passage: PassageRow, wanted: Sequence[str]) -> bool:
    return bool(set(wanted) & set(codes(fold(passage.text))))


def _joined(run: Sequence[PassageRow]) -> str:
    """Join neighbouring passages, writing their shared sentences once."""
    text, end = run[0].text, run[0].char_to
    for passage in run[1:]:
        shared = max(0, end - passage.char_from)
        separator = "" if shared else "\n"
        text += separator + passage.text[shared:]
        end = passage.char_to
    return text
