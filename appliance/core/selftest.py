"""The box questioned about its own documents: what it finds, refuses, and makes up.

Sentences that state a figure are taken from the documents and asked for it. Each is asked twice: as
it is (it can be answered) and with its document treated as absent (it cannot be). No model writes
the questions, so that no model judges itself. The same seed asks the same questions, so that two
runs over the same documents can be compared.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from appliance.config import AssistantConfig, SearchConfig
from appliance.core.chat import Assistant, Question
from appliance.core.events import Answer
from appliance.core.prompt import split_sentences
from appliance.core.retrieve import DEFAULT_BAR, Retriever
from appliance.errors import ApplianceError, BadRequestError
from appliance.store import Store
from appliance.text.lang import Lang, detect_lang

_META = "selftest"
_MOST_SAMPLED = 4000
_SEED = 20261201

_FIGURE = re.compile(r"(?<![\w.:/-])\d{1,6}(?:[.:]\d{1,2})?(?![\w.:/-]|\d)")
_FIGURE_ZH = re.compile(r"(?<![A-Za-z\d.:/-])\d{1,6}(?:[.:]\d{1,2})?(?![A-Za-z\d.:/-])")

_LOWEST_BAR, _HIGHEST_BAR = 0.3, 0.5
_LEAST_PROBES = 20


@dataclass(frozen=True)
class Probe:
    """A question, the figure that answers it, and the document it comes from."""

    question: str
    expected: str
    lang: Lang
    document: int


@dataclass
class Tally:
    """Outcomes of one language."""

    answerable: int = 0
    found: int = 0
    wrong: int = 0
    refused: int = 0
    unanswerable: int = 0
    refused_rightly: int = 0
    invented: int = 0


@dataclass(frozen=True)
class Report:
    """One run; ``asked_of`` names model, embedder and settings."""

    at: float
    seconds: float
    asked_of: dict[str, str]
    by_lang: dict[str, Tally] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def probes(store: Store, n: int, seed: int = _SEED) -> list[Probe]:
    """Return up to ``n`` questions spread over the documents, both languages where there are."""
    rng = random.Random(seed)  # noqa: S311 - reproducible choice of questions
    documents = [row.id for row in store.documents()]
    rng.shuffle(documents)
    found: dict[Lang, list[Probe]] = {"zh": [], "en": []}
    for document in documents[:_MOST_SAMPLED]:
        passages = store.passages(document)
        rng.shuffle(passages)
        for passage in passages[:8]:
            probe = _probe(passage.text, document)
            if probe is not None and len(found[probe.lang]) < n:
                found[probe.lang].append(probe)
                break
        if all(len(some) >= n for some in found.values()):
            break
    zh, en = found["zh"], found["en"]
    half = n // 2
    n_zh = max(min(len(zh), half), n - len(en)) if en else n
    return [*zh[:n_zh], *en[: n - min(n_zh, len(zh))]]


def _probe(text: str, document: int) -> Probe | None:
    for sentence in split_sentences(text):
        plain = " ".join(sentence.split()).rstrip("。.!！;； ")
        lang = detect_lang(plain)
        least, most = (10, 60) if lang == "zh" else (30, 160)
        if not least <= len(plain) <= most or "|" in plain or "?" in plain or "？" in plain:
            continue
        figures = list((_FIGURE_ZH if lang == "zh" else _FIGURE).finditer(plain))
        if len(figures) != 1 or len(figures[0].group()) < 2:
            continue
        figure = figures[0]
        gap, end = ("多少", "？") if lang == "zh" else ("how much", "?")
        question = f"{plain[: figure.start()]}{gap}{plain[figure.end() :]}{end}"
        return Probe(question, figure.group(), lang, document)
    return None


def calibrated_bar(retriever: Retriever, asked: Sequence[Probe]) -> float:
    """Return the bar that parts this index's own answerable questions from unanswerable ones.

    It is set where as large a share of the first would fall below as of the second would rise
    above, within bounds that keep a small or odd index from moving it far. Fewer than
    ``_LEAST_PROBES`` questions say nothing: the default stays.
    """
    if len(asked) < _LEAST_PROBES:
        return DEFAULT_BAR
    present = sorted(retriever.search(p.question).relevance.score for p in asked)
    absent = sorted(retriever.search(p.question, without=p.document).relevance.score for p in asked)
    best = min(
        (n / 100 for n in range(round(_LOWEST_BAR * 100), round(_HIGHEST_BAR * 100) + 1)),
        key=lambda bar: (
            abs(sum(s < bar for s in present) - sum(s >= bar for s in absent)),
            abs(bar - DEFAULT_BAR),
        ),
    )
    return float(best)


class SelfTest:
    """Runs one test at a time in a thread of its own; ``cancel`` ends it at the next question."""

    def __init__(
        self, store: Store, assistant: Assistant, search: SearchConfig, answers: AssistantConfig
    ) -> None:
        self._store = store
        self._assistant = assistant
        self._settings = f"{search} {answers}"
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None
        self._done = self._total = 0
        self._error: ApplianceError | None = None

    def start(self, n: int) -> None:
        """Begin a test of ``n`` answerable and ``n`` unanswerable questions.

        Raises:
            BadRequestError: ``selftest_running``, or ``selftest_no_questions`` when no document
                states a figure.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise BadRequestError("selftest_running")
            asked = probes(self._store, n)
            if not asked:
                raise BadRequestError("selftest_no_questions")
            self._cancelled.clear()
            self._done, self._total, self._error = 0, 2 * len(asked), None
            self._thread = threading.Thread(target=self._run, args=(asked,), name="selftest")
            self._thread.start()

    def cancel(self) -> None:
        """End a running test; nothing of it is kept. Idempotent."""
        self._cancelled.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def state(self) -> dict[str, Any]:
        """Return progress and the last two reports."""
        kept = json.loads(self._store.get_meta(_META) or "[]")
        is_running = self._thread is not None and self._thread.is_alive()
        return {
            "is_running": is_running,
            "done": self._done,
            "total": self._total,
            "error": None if self._error is None else self._error.code,
            "report": kept[-1] if kept else None,
            "before": kept[-2] if len(kept) > 1 else None,
            "is_outdated": bool(kept) and kept[-1]["asked_of"] != self._asked_of(),
        }

    def _asked_of(self) -> dict[str, str]:
        status = self._assistant.engine.status()
        digest = hashlib.sha256(self._settings.encode()).hexdigest()[:12]
        return {
            "model": status.model or "-",
            "embedder": self._store.embedder_id() or "-",
            "settings": digest,
        }

    def _run(self, asked: Sequence[Probe]) -> None:
        started = time.monotonic()
        by_lang: dict[str, Tally] = {}
        try:
            self._assistant.retriever.set_bar(calibrated_bar(self._assistant.retriever, asked))
            for probe in asked:
                tally = by_lang.setdefault(probe.lang, Tally())
                for without in (None, probe.document):
                    if self._cancelled.is_set():
                        return
                    _count(tally, probe, self._ask(probe, without), is_there=without is None)
                    self._done += 1
        except ApplianceError as error:
            self._error = error
            return
        report = Report(time.time(), time.monotonic() - started, self._asked_of(), by_lang)
        kept = json.loads(self._store.get_meta(_META) or "[]")
        kept = [*kept[-1:], report.as_json()]
        self._store.set_meta(_META, json.dumps(kept, ensure_ascii=False))

    def _ask(self, probe: Probe, without: int | None) -> Answer:
        question = Question(
            probe.question, mode="strict", remember=False, client="selftest", without=without
        )
        turn = self._assistant.ask(question)
        last: Answer | None = None
        for event in turn:
            if self._cancelled.is_set():
                turn.cancel()
            if isinstance(event, Answer):
                last = event
        assert last is not None, "a turn ends with its answer"  # noqa: S101
        return last


def _count(tally: Tally, probe: Probe, answer: Answer, *, is_there: bool) -> None:
    if not is_there:
        tally.unanswerable += 1
        if answer.refused:
            tally.refused_rightly += 1
        else:
            tally.invented += 1
        return
    tally.answerable += 1
    if answer.refused:
        tally.refused += 1
    elif probe.expected in answer.answer and any(
        citation.document == probe.document for citation in answer.citations
    ):
        tally.found += 1
    else:
        tally.wrong += 1
