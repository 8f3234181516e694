"""One turn: question, passages, prompt, streamed answer with citations, or a refusal."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.config import AssistantConfig
from appliance.core import prompt
from appliance.core.citations import MarkFilter, best_quote, supporting
from appliance.core.conversations import Conversations
from appliance.core.events import (
    Answer,
    AnswerTimings,
    AnswerUsage,
    Citation,
    Delta,
    Evidence,
    Notice,
    Queued,
    Reading,
    RefusalReason,
    TurnEvent,
)
from appliance.core.retrieve import Hit, Retriever, SearchResult
from appliance.engine.base import (
    Engine,
    Finished,
    FinishReason,
    Generation,
    GenerationRequest,
    Prefilled,
    QueueUpdate,
    Sampling,
    Token,
)
from appliance.errors import BadRequestError, EngineStoppedError, Fact
from appliance.messages import Lang, sentence
from appliance.system.clock import Clock
from appliance.text.lang import detect_lang

Mode = Literal["strict", "open"]

MAX_QUESTION_CHARS = 8000
"""Longest question that is searched for; a document belongs into the inbox, not into a question."""

_N_HITS = 8

_FAR_BEHIND = 0.6
"""Share of the best fused score below which a hit is no evidence: found by one arm only."""

_SAYS_NO = re.compile(
    r"^\W*(this is not in the documents|(the )?(passages?|documents?) do(es)? not"
    r"|not in (the|your) documents|资料中?(里)?没有(提到|提及|相关|包含|答案)|文档中?没有)",
    re.IGNORECASE,
)

# A question that leans on the one before it: a pronoun, an opening conjunction, or an ellipsis.
_LEANS_BACK = re.compile(
    r"\b(it|its|they|them|their|that|those|these|this|he|she|him|her|there|then|the same|"
    r"the (first|second|third|other|last) one)\b"
    r"|^\s*(and|but|so|what about|how about|why|when|where|who|which one)\b.{0,30}$"
    r"|[它他她们]|这个|那个|这些|那些|这里|那里|上面|前面|刚才|该(设备|文件|规定|产品)"
    r"|^(那|那么|还有|另外|然后|为什么|什么时候|在哪|谁|多少|怎么).{0,12}$|呢[?？]?\s*$",
    re.IGNORECASE,
)


def standalone(question: str, history: Sequence[tuple[str, str]]) -> str:
    """Return a question that can be searched for on its own.

    A follow-up ("and on Sundays?", "它的电源呢？") is joined to the questions it leans on, newest
    last. No model is asked: on a slow board that would cost as much as the answer, and a small
    model often rewrites the question into another one.
    """
    leaning = [question]
    for previous, _ in reversed(history):
        if not _LEANS_BACK.search(leaning[-1]):
            break
        leaning.append(previous)
        if len(leaning) == 3:
            break
    return " ".join(reversed(leaning))


@dataclass(frozen=True)
class Question:
    """What a front end passes on; ``None`` means the configured default.

    ``history`` holds earlier (question, answer) pairs, oldest first, of a client that keeps its
    conversation itself; it counts only without ``conversation``. ``remember`` False keeps nothing.
    ``without`` is a document to treat as absent, for the self-test.
    """

    text: str
    conversation: str | None = None
    history: tuple[tuple[str, str], ...] = ()
    collection: str | None = None
    mode: Mode | None = None
    lang: Lang | None = None
    client: str = ""
    remember: bool = True
    without: int | None = None


class Turn:
    """One question being answered. Iterate once for its events; ``cancel`` from any thread."""

    def __init__(self, assistant: Assistant, question: Question) -> None:
        self._assistant = assistant
        self._question = question
        self._mode: Mode = question.mode or assistant.config.mode
        self._lang: Lang = assistant.language_of(question)
        self._conversation = question.conversation
        self._notices: list[Notice] = []
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._generation: Generation | None = None
        self._started = 0.0
        self._search_s = 0.0

    def cancel(self) -> None:
        """Stop searching, waiting, reading or writing; the turn ends as ``cancelled``."""
        with self._lock:
            self._is_cancelled = True
            generation = self._generation
        if generation is not None:
            generation.cancel()

    def __iter__(self) -> Iterator[TurnEvent]:
        """Yield events until ``Answer``.

        Raises:
            ApplianceError: the turn failed; evidence already yielded stays valid.
        """
        box, question = self._assistant, self._question
        self._started = box.clock.monotonic()
        history: Sequence[tuple[str, str]] = question.history
        if self._conversation is not None:
            history = box.conversations.history(self._conversation)
        if self._conversation is None and question.remember:
            self._conversation = box.conversations.begin(question.client)
        found = box.retriever.search(
            standalone(question.text, history),
            k=_N_HITS,
            collection=question.collection,
            without=question.without,
        )
        self._search_s = self._elapsed()

        if self._is_cancelled:
            answer = self._answer("", finish="cancelled")
        elif found.outcome is not None and self._mode == "strict":
            answer = self._refusal(found)
        else:
            hits = dict(enumerate(self._fit_evidence(found), 1))
            citations = {n: _citation(n, hit, question.text) for n, hit in hits.items()}
            yield Evidence(tuple(citations.values()))
            answer = yield from self._generate(history, hits, citations)

        is_whole = answer.finish_reason != "cancelled"
        if self._conversation is not None and question.remember and is_whole:
            box.conversations.record(self._conversation, question.text, answer)
        yield answer

    def _generate(
        self,
        history: Sequence[tuple[str, str]],
        hits: dict[int, Hit],
        citations: dict[int, Citation],
    ) -> Generator[TurnEvent, None, Answer]:
        engine, config = self._assistant.engine, self._assistant.config
        fitted = prompt.fit(
            prompt.system_message(self._mode, self._lang),
            history,
            prompt.user_message(
                self._question.text,
                [
                    prompt.EvidencePassage(n, prompt.without_orders(hit.text), _place(hit))
                    for n, hit in hits.items()
                ],
                self._lang,
            ),
            budget=engine.n_ctx - config.max_answer_tokens,
            count=engine.count_tokens,
        )
        if fitted.n_turns_left_out:
            yield self._notice("turns_left_out", n_left_out=fitted.n_turns_left_out)
        generation = engine.generate(
            GenerationRequest(
                messages=fitted.messages,
                max_tokens=config.max_answer_tokens,
                sampling=Sampling(temperature=config.temperature),
                client=self._question.client,
            )
        )
        self._attach(generation)

        marks = MarkFilter(hits)
        shown: list[str] = []
        finished: Finished | None = None
        try:
            for event in generation:
                if isinstance(event, Token):
                    text = marks.feed(event.text)
                    if text:
                        shown.append(text)
                        yield Delta(text)
                elif isinstance(event, QueueUpdate):
                    yield Queued(event.position, event.wait_s)
                elif isinstance(event, Prefilled):
                    yield Reading(event.done, event.total)
                elif isinstance(event, Finished):
                    finished = event
        finally:
            # The consumer may close this generator at any yield: nobody listens any more.
            if finished is None:
                generation.cancel()
        if finished is None:
            raise EngineStoppedError(state=engine.status().state)

        says_no = bool(hits) and bool(_SAYS_NO.match("".join(shown)))
        tail = marks.close()
        if (
            hits
            and not marks.used
            and not says_no
            and finished.reason is not FinishReason.CANCELLED
        ):
            tail += self._forgotten_mark("".join(shown) + tail, hits, marks)
        if tail:
            shown.append(tail)
            yield Delta(tail)
        text = "".join(shown)
        return self._answer(
            text,
            refused=says_no,
            reason="nothing_relevant" if says_no else None,
            finish=finished.reason.value,
            citations=()
            if says_no
            else tuple(
                dataclasses.replace(
                    citations[n], quote=best_quote(hits[n].text, f"{self._question.text} {text}")
                )
                for n in sorted(marks.used)
            ),
            finished=finished,
        )

    def _forgotten_mark(self, text: str, hits: dict[int, Hit], marks: MarkFilter) -> str:
        """Small models often leave the mark out; add the one the answer's words point at."""
        n = supporting(text, {n: hit.text for n, hit in hits.items()}, self._question.text)
        if n is None:
            return ""
        return marks.feed(f" [{n}]" if self._lang == "en" else f"[{n}]")

    def _fit_evidence(self, found: SearchResult) -> list[Hit]:
        """Return the best hits whose text fits ``evidence_tokens``; always at least the first.

        Hits far behind the best are left out even when they would fit: every passage costs prefill
        time on a board, and a small model picks the wrong one of two.
        """
        if found.outcome is not None:
            return []
        left = self._assistant.config.evidence_tokens
        chosen: list[Hit] = []
        for hit in found.hits:
            left -= self._assistant.count(hit.text)
            if chosen and (left < 0 or hit.score < _FAR_BEHIND * found.hits[0].score):
                break
            chosen.append(hit)
        return chosen

    def _refusal(self, found: SearchResult) -> Answer:
        said = sentence(found.outcome or "nothing_relevant", self._lang, found.facts)
        return self._answer(str(said), refused=True, reason=found.outcome, finish="refused")

    def _answer(
        self,
        text: str,
        *,
        refused: bool = False,
        reason: RefusalReason | None = None,
        finish: Literal["stop", "length", "cancelled", "refused"],
        citations: tuple[Citation, ...] = (),
        finished: Finished | None = None,
    ) -> Answer:
        usage, timings = AnswerUsage(), AnswerTimings(search_s=self._search_s)
        if finished is not None:
            usage = AnswerUsage(
                finished.usage.prompt_tokens,
                finished.usage.completion_tokens,
                finished.usage.cached_tokens,
            )
            # The engine counts from its acceptance; the person has waited since the question.
            before_s = self._elapsed() - finished.timings.total_s
            timings = AnswerTimings(
                queue_s=finished.timings.queue_s,
                search_s=self._search_s,
                ttft_s=before_s + finished.timings.ttft_s,
            )
        return Answer(
            answer=text,
            refused=refused,
            reason=reason,
            citations=citations,
            usage=usage,
            timings=dataclasses.replace(timings, total_s=self._elapsed()),
            model=self._assistant.engine.status().model,
            finish_reason=finish,
            conversation=self._conversation,
            notices=tuple(self._notices),
        )

    def _notice(self, code: str, **facts: Fact) -> Notice:
        notice = Notice(code, str(sentence(code, self._lang, facts)))
        self._notices.append(notice)
        return notice

    def _attach(self, generation: Generation) -> None:
        with self._lock:
            self._generation = generation
            is_cancelled = self._is_cancelled
        if is_cancelled:
            generation.cancel()

    def _elapsed(self) -> float:
        return self._assistant.clock.monotonic() - self._started


@dataclass(frozen=True)
class Assistant:
    """Answers questions from the documents of one store with one engine."""

    engine: Engine
    retriever: Retriever
    conversations: Conversations
    config: AssistantConfig
    clock: Clock

    def ask(self, question: Question) -> Turn:
        """Return the turn for a question; nothing runs until it is iterated.

        Raises:
            BadRequestError: the question is empty or far too long.
            NotFoundError: the conversation does not exist.
        """
        if not question.text.strip():
            raise BadRequestError("question_empty")
        if len(question.text) > MAX_QUESTION_CHARS:
            raise BadRequestError(
                "question_too_long", n_chars=len(question.text), max_chars=MAX_QUESTION_CHARS
            )
        if question.conversation is not None:
            self.conversations.history(question.conversation)
        return Turn(self, question)

    def language_of(self, question: Question) -> Lang:
        """Return the language to answer in: asked for, configured, or that of the question."""
        if question.lang is not None:
            return question.lang
        if self.config.language != "auto":
            return self.config.language
        return detect_lang(question.text)

    def count(self, text: str) -> int:
        """Return tokens of ``text``; while the model loads, one per character as an upper bound."""
        try:
            return self.engine.count_text_tokens(text)
        except EngineStoppedError:
            return len(text)


def _place(hit: Hit) -> str:
    """Return a hit's place as the prompt shows it, e.g. ``manual.pdf p. 3``."""
    # Names are text of the document's author too.
    path = prompt.without_orders(hit.path) or f"#{hit.document}"
    if hit.page is not None:
        return f"{path} p. {hit.page}"
    heading = prompt.without_orders(hit.heading or "")
    return " / ".join(part for part in (path, heading, hit.place) if part)


def _citation(n: int, hit: Hit, wanted: str) -> Citation:
    return Citation(
        n=n,
        document=hit.document,
        path=hit.path,
        page=hit.page,
        heading=hit.heading,
        line_from=hit.line_from,
        line_to=hit.line_to,
        quote=best_quote(hit.text, wanted),
        place=hit.place,
        passage=hit.passage,
    )
