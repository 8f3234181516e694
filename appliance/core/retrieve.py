"""Hybrid search: keywords and vectors, fused, with a bar that says "not in your documents".

**Fusion** is reciprocal rank fusion with a small k (10 beat the customary 60 in the project's
measurements) and weights per query: when few of the query's terms exist in the index, as for an
English question over Chinese documents, the keyword arm has nothing real to say and plain fusion
would hurt.

**The bar** joins three signals. *Coverage* is the share of the query's term weight (idf) that the
best passage holds; *loose coverage* the same over single characters and word beginnings, without
weights. *Closeness* is how far the best cosine stands above what chance would give: its distance
from the index's own background for this very query, in standard deviations of that background, less
the sqrt(2 ln n) that the largest of n chance values reaches. So no constant belongs to one embedder
or one size of index. A code that the query names must stand in the documents.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from appliance.config import SearchConfig
from appliance.core.events import RefusalReason
from appliance.core.spelling import Speller
from appliance.engine.base import Embedder, Priority
from appliance.errors import ApplianceError, Fact
from appliance.store import (
    EVERYWHERE,
    Background,
    KeywordHits,
    PassageRow,
    Scope,
    Store,
    TermStat,
)
from appliance.text.cjk import Code, code_term, codes, index_terms, is_code_term, query_terms
from appliance.text.lang import is_han

_log = logging.getLogger(__name__)

_ARM_DEPTH = 50
"""Passages taken from each arm before fusion."""

_JUDGED = 5
"""Best passages in which the bar looks for the query's terms."""

_ACROSS_WORDS = 0.4
"""Weight of a Chinese query bigram that stands nowhere in the index."""

_EVIDENCE_POWER = 2
"""How fast the keyword arm loses weight when the query's terms are unknown to the index."""

_EMPTY_CHARS = frozenset("的了吗呢是在有和与或谁什么几多少怎哪为何个些被把其这那里请问")
"""Characters of questions that no passage needs to hold."""

_SAME = 0.85
"""Share of common terms from which two passages are one hit."""

_NEIGHBOUR_CHARS = 1200
"""Longest text of a hit grown by its neighbours."""


DEFAULT_BAR = 0.4
"""Relevance below which nothing found counts as an answer, until the index's own questions say
better (``selftest.calibrated_bar``); see ``bar_score`` for how it was found.
"""

_BAR_META = "bar"


@dataclass(frozen=True)
class ArmRank:
    """Where one arm had a passage: 1-based rank and its own score (BM25 or cosine)."""

    rank: int
    score: float


@dataclass(frozen=True)
class Hit:
    """A passage, or neighbouring passages joined, with its place and why it was found.

    ``also`` are paths of other documents that say nearly the same. ``passage`` is its number in the
    document, from 1, by which it is opened where there are no pages.
    """

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
    place: str | None = None
    also: tuple[str, ...] = ()
    passage: int | None = None


@dataclass(frozen=True)
class Relevance:
    """The signals of the bar, for ``/why``; ``closeness`` is None without vectors."""

    coverage: float
    loose: float
    closeness: float | None
    score: float
    missing_codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """How a query was understood, for ``/why`` and ``kb search --explain``.

    Attributes:
        read_as: the query after pinyin was read; the query itself when there was none.
        terms: what was looked up, with document frequency and weight (idf).
        weights: of the arms in the fusion, after the evidence for each was judged.
        rrf_k: constant of the fusion.
        n_passages: in the index.
        seconds: that the search took.
    """

    read_as: str
    terms: tuple[TermStat, ...]
    weights: dict[str, float]
    rrf_k: int
    n_passages: int
    seconds: float


@dataclass(frozen=True)
class SearchResult:
    """Hits best first; ``outcome`` is None when the best clears the bar, else why it does not."""

    query: str
    hits: tuple[Hit, ...]
    outcome: RefusalReason | None
    relevance: Relevance
    facts: dict[str, Fact] = field(default_factory=dict)
    explanation: Explanation | None = None
    bar: float = DEFAULT_BAR

    def as_json(self) -> dict[str, Any]:
        """Return the shape of ``kb search --json``."""
        return {
            "query": self.query,
            "outcome": self.outcome,
            "relevance": {
                "coverage": round(self.relevance.coverage, 4),
                "loose": round(self.relevance.loose, 4),
                "closeness": None
                if self.relevance.closeness is None
                else round(self.relevance.closeness, 4),
                "score": round(self.relevance.score, 4),
                "bar": self.bar,
                "missing_codes": list(self.relevance.missing_codes),
            },
            "explain": None if self.explanation is None else asdict(self.explanation),
            "hits": [
                {
                    "rank": hit.rank,
                    "document": hit.document,
                    "path": hit.path,
                    "page": hit.page,
                    "heading": hit.heading,
                    "line_from": hit.line_from,
                    "line_to": hit.line_to,
                    "place": hit.place,
                    "score": round(hit.score, 6),
                    "text": hit.text,
                    "also": list(hit.also),
                    "passage": hit.passage,
                    "arms": {
                        name: {"rank": arm.rank, "score": round(arm.score, 6)}
                        for name, arm in hit.arms.items()
                    },
                }
                for hit in self.hits
            ],
        }


class Retriever:
    """Searches one store; safe to call from any thread."""

    def __init__(self, store: Store, embedder: Embedder, config: SearchConfig) -> None:
        self._store = store
        self._embedder = embedder
        self._config = config
        self._speller = Speller(store)
        self._bar = float(store.get_meta(_BAR_META) or DEFAULT_BAR)

    @property
    def bar(self) -> float:
        """Relevance that an answer needs."""
        return self._bar

    def set_bar(self, bar: float) -> None:
        """Set the bar, durably."""
        self._store.set_meta(_BAR_META, f"{bar:.2f}")
        self._bar = bar

    def search(
        self,
        query: str,
        *,
        k: int = 8,
        collection: str | None = None,
        scope: Scope = EVERYWHERE,
        without: int | None = None,
    ) -> SearchResult:
        """Return up to ``k`` hits and whether they clear the bar.

        Without an embedder (still loading, failed, or the index made by another one) the keyword
        arm answers alone.

        Args:
            query: words, codes, pinyin or a question.
            k: most hits.
            collection: short for a scope of one collection.
            scope: where to search.
            without: a document to treat as absent; the self-test asks what it alone could answer.
        """
        started = time.perf_counter()
        if collection is not None:
            scope = dataclasses.replace(scope, collection=collection)
        collection = scope.collection
        asked, query = query, self._speller.read(query)
        terms = self.lookup_terms(query)
        keyword = self._store.keyword_search(terms, _ARM_DEPTH, scope)
        dense, background = self._dense(query, scope)
        if without is not None:
            keyword, dense = self._leave_out(without, keyword, dense)
        term_weights = _term_weights(query, keyword)

        arms = {
            "keyword": {pid: ArmRank(n, s) for n, (pid, s) in enumerate(keyword.hits, 1)},
            "dense": {pid: ArmRank(n, s) for n, (pid, s) in enumerate(dense, 1)},
        }
        passages = self._store.get_passages(list(arms["keyword"] | arms["dense"]), collection)
        wanted_codes = codes(query)
        weights = self._weights(query, keyword)
        scores = self._scores(weights, keyword, dense)
        if wanted_codes:
            # An exact code is what the person typed: it goes before everything else.
            for pid, passage in passages.items():
                scores[pid] += _holds_code(passage, wanted_codes)
        order = sorted(passages, key=lambda pid: (-scores[pid], pid))
        relevance = _relevance(
            term_weights,
            keyword,
            [passages[pid] for pid in order[:_JUDGED]],
            dense,
            background,
            wanted_codes,
        )
        hits = self._hits(order, passages, scores, arms, k)
        outcome, facts = self._outcome(hits, relevance, collection)
        explanation = Explanation(
            query,
            keyword.terms,
            weights,
            self._config.rrf_k,
            keyword.n_passages,
            time.perf_counter() - started,
        )
        return SearchResult(asked, hits, outcome, relevance, facts, explanation, self._bar)

    def _leave_out(
        self, document: int, keyword: KeywordHits, dense: Sequence[tuple[int, float]]
    ) -> tuple[KeywordHits, list[tuple[int, float]]]:
        own = {passage.id for passage in self._store.passages(document)}
        hits = tuple(hit for hit in keyword.hits if hit[0] not in own)
        left = [hit for hit in dense if hit[0] not in own]
        return dataclasses.replace(keyword, hits=hits), left

    def fused(
        self, query: str, keyword: KeywordHits, dense: Sequence[tuple[int, float]]
    ) -> list[tuple[int, float]]:
        """Return the passages of both arms with their fused scores, best first."""
        scores = self._scores(self._weights(query, keyword), keyword, dense)
        return sorted(scores.items(), key=lambda item: (-item[1], item[0]))

    def _weights(self, query: str, keyword: KeywordHits) -> dict[str, float]:
        evidence = _evidence(_term_weights(query, keyword), keyword)
        return {
            "keyword": self._config.keyword_weight * evidence,
            "dense": self._config.dense_weight,
        }

    def _scores(
        self,
        weights: dict[str, float],
        keyword: KeywordHits,
        dense: Sequence[tuple[int, float]],
    ) -> dict[int, float]:
        scores: dict[int, float] = {}
        for weight, hits in ((weights["keyword"], keyword.hits), (weights["dense"], dense)):
            for rank, (pid, _) in enumerate(hits, 1):
                scores[pid] = scores.get(pid, 0.0) + weight / (self._config.rrf_k + rank)
        return scores

    def lookup_terms(self, query: str) -> list[str]:
        """Return what to look up; ``GB 18030`` finds ``GB18030`` and the reverse.

        A query of nothing but single Chinese characters is looked up as the bigrams that contain
        them. Beside longer terms it is not: the 年 of "1992年" would bring in dozens of rare ones.
        """
        terms = query_terms(query)
        lookup = list(terms)
        has_longer = any(len(term) > 1 for term in terms)
        for term in terms:
            if is_han(term[0]):
                if not has_longer:
                    lookup.extend(self._store.terms_with(term))
            elif term.isalnum() and not (term.isalpha() or term.isdigit() or is_code_term(term)):
                lookup.append(code_term(term))
        lookup.extend(code.plain for code in codes(query))
        return list(dict.fromkeys(lookup))

    def _dense(self, query: str, scope: Scope) -> tuple[list[tuple[int, float]], Background | None]:
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
        return self._store.dense_search(vector, _ARM_DEPTH, scope)

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
        said: list[set[str]] = []
        taken: set[int] = set()
        by_place = {(p.document_id, p.ordinal): p for p in passages.values()}
        for pid in order:
            first = last = passages[pid]
            if pid in taken:
                continue
            terms = set(index_terms(first.text))
            twin = next((n for n, other in enumerate(said) if _is_same(terms, other)), None)
            if twin is not None:
                if first.path not in (hits[twin].path, *hits[twin].also):
                    also = (*hits[twin].also, first.path)
                    hits[twin] = dataclasses.replace(hits[twin], also=also)
                continue
            if len(hits) == k:
                break
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
                        and (neighbour.page, neighbour.heading, neighbour.place)
                        == (first.page, first.heading, first.place)
                        and run[-1].char_to - run[0].char_from + len(neighbour.text)
                        <= _NEIGHBOUR_CHARS
                    ):
                        taken.add(neighbour.id)
                        run = [neighbour, *run] if neighbour is before else [*run, neighbour]
                        grown = True
                first, last = run[0], run[-1]
                if not grown:
                    break
            said.append(terms)
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
                    place=best.place,
                    passage=best.ordinal + 1,
                )
            )
        return tuple(hits)

    def _outcome(
        self, hits: Sequence[Hit], relevance: Relevance, collection: str | None
    ) -> tuple[RefusalReason | None, dict[str, Fact]]:
        if hits and relevance.score >= self._bar:
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


def _is_same(terms: set[str], other: set[str]) -> bool:
    """Whether two texts say nearly the same, by the terms they share (Jaccard's index).

    Numbers must be the same ones: the rules of two years differ in little else.
    """
    smaller, larger = sorted((len(terms), len(other)))
    if smaller < _SAME * larger or not smaller:
        return False
    if any(char.isdigit() for term in terms ^ other for char in term):
        return False
    return len(terms & other) >= _SAME * len(terms | other)


def _term_weights(query: str, keyword: KeywordHits) -> dict[str, float]:
    """Return the weight (idf) of each term the query asks for."""
    # The parts of a code count as words do; whether the code is there at all is asked apart.
    asked = {term for term in query_terms(query) if not is_code_term(term)}
    return {
        # An unknown Chinese bigram is mostly two words' ends: no sign that a word is missing.
        stat.term: stat.idf * (_ACROSS_WORDS if not stat.df and is_han(stat.term[0]) else 1.0)
        for stat in keyword.terms
        if stat.term in asked
    }


def _relevance(
    weight: dict[str, float],
    keyword: KeywordHits,
    best: Sequence[PassageRow],
    dense: Sequence[tuple[int, float]],
    background: Background | None,
    wanted_codes: Sequence[Code],
) -> Relevance:
    total = sum(weight.values())
    pieces = _loose_pieces(weight)
    coverage = loose = 0.0
    for passage in best:
        text = f"{passage.heading or ''}\n{passage.text}"
        held = set(index_terms(text))
        for code in wanted_codes:
            if code.term in held or code.plain in held:
                held.update(code.parts)
        if total:
            found = sum(w for term, w in weight.items() if term in held or code_term(term) in held)
            coverage = max(coverage, found / total)
        if pieces:
            there = _loose_pieces(held)
            loose = max(loose, len(pieces & there) / len(pieces))
    closeness = None
    if background is not None and dense:
        above = dense[0][1] - background.mean
        deviations = above / background.spread if background.spread > 0 else 0.0
        closeness = deviations - math.sqrt(2.0 * math.log(background.n))
    known = {stat.term for stat in keyword.terms if stat.df}
    missing = tuple(
        code.plain
        for code in wanted_codes
        if code.is_identifier and code.term not in known and code.plain not in known
    )
    score = bar_score(coverage, loose, closeness)
    return Relevance(coverage, loose, closeness, 0.0 if missing else score, missing)


def bar_score(coverage: float, loose: float, closeness: float | None) -> float:
    """Return relevance from 0 to 1 of the signals; ``DEFAULT_BAR`` is the border.

    A logistic of their weighted sum, fitted on the questions of CMRC2018's trial set with their
    passage in the index against the same questions with it taken out. Refused at the border, of
    the first and of the second (our measurement, e5-small, 2026-12): 3.9 % and 92.2 % of every
    third of those questions over 654 passages. Nothing was fitted on ``bench/data/notes-en.json``:
    4.2 % and 98.6 % of its 72 English questions over 24 passages.
    """
    if closeness is None:
        x = 12.0 * coverage + 4.0 * loose - 6.0
    else:
        x = 9.4 * coverage + 3.3 * loose + 1.2 * closeness - 8.4
    return 1.0 / (1.0 + math.exp(-x))


def _loose_pieces(terms: Iterable[str]) -> set[str]:
    """Return single Han characters that carry meaning, and the beginnings of other words."""
    pieces: set[str] = set()
    for term in terms:
        if is_han(term[0]):
            pieces.update(char for char in term if char not in _EMPTY_CHARS)
        elif not is_code_term(term):
            pieces.add(term[:5])
    return pieces


def _evidence(weight: dict[str, float], keyword: KeywordHits) -> float:
    """Return from 0 to 1 how much of the query's term weight exists anywhere in the index."""
    total = sum(weight.values())
    known = {stat.term for stat in keyword.terms if stat.df}
    share = sum(w for term, w in weight.items() if term in known) / total if total else 0.0
    return share**_EVIDENCE_POWER


def _holds_code(passage: PassageRow, wanted: Sequence[Code]) -> float:
    """Return 1 for a passage with a wanted code, 0.5 for one where a longer code begins with it."""
    held = codes(f"{passage.heading or ''}\n{passage.text}")
    terms = {code.term for code in wanted}
    if any(code.term in terms for code in held):
        return 1.0
    return 0.5 if any(terms & set(code.beginnings) for code in held) else 0.0


def _joined(run: Sequence[PassageRow]) -> str:
    """Join neighbouring passages, writing their shared sentences once."""
    text, end, line_to = run[0].text, run[0].char_to, run[0].line_to
    for passage in run[1:]:
        gap = passage.char_from - end
        # Only white space lies between; which kind is known from the lines.
        has_new_line = passage.line_from is None or passage.line_from != line_to
        text += ("\n" if has_new_line else " ") if gap > 0 else ""
        text += passage.text[max(0, -gap) :]
        end, line_to = passage.char_to, passage.line_to
    return text
