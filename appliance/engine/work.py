"""One answer on its way through the engine, and the caller's end of it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from appliance.engine.base import (
    Finished,
    GenerationEvent,
    GenerationRequest,
    Timings,
    TokenLogprob,
)
from appliance.engine.native import Grammar, Sampler
from appliance.engine.slots import TokenArray
from appliance.engine.textstream import TextStream
from appliance.errors import ApplianceError


@dataclass
class Clock:
    """Moments of one answer, seconds of the monotonic clock."""

    accepted: float
    started: float | None = None
    prefilled: float | None = None
    first_text: float | None = None

    def timings(self, now: float) -> Timings:
        """Return the spans; a stage that was never reached ends now."""
        started = self.started if self.started is not None else now
        prefilled = self.prefilled if self.prefilled is not None else now
        first = self.first_text if self.first_text is not None else now
        return Timings(
            queue_s=started - self.accepted,
            prefill_s=max(0.0, prefilled - started),
            ttft_s=first - self.accepted,
            total_s=now - self.accepted,
        )


@dataclass(eq=False)
class Work:
    """One answer: what was asked, how far it is, where its events go.

    ``events`` has no bound of its own: an answer puts at most two events per token into it and is
    itself bounded by the context. ``followers`` are further answers to the same prompt (they share
    ``events``); they join the queue when the prompt has been read. The first ``n_pinned`` tokens
    of the prompt are worth keeping for other chats. ``forced`` tokens come next,
    whatever the model would say.
    """

    request: GenerationRequest
    prompt: TokenArray
    n_prompt: int
    n_most: int
    clock: Clock
    stream: TextStream
    events: queue.SimpleQueue[GenerationEvent | ApplianceError]
    index: int = 0
    grammar_source: str | None = None
    grammar: Grammar | None = None
    n_pinned: int = 0
    followers: list[Work] = field(default_factory=list)
    is_cancelled: bool = False
    is_over: bool = False
    client: str = ""
    position: int = 0
    sampler: Sampler | None = None
    n_cached: int = 0
    n_read: int = 0
    n_out: int = 0
    n_reasoning: int = 0
    pending: int = -1
    forced: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    n_logprobs_sent: int = 0

    @property
    def is_prefilling(self) -> bool:
        """Whether prompt tokens are left to read."""
        return self.n_read < len(self.prompt)

    def close(self) -> None:
        """Free what is native; idempotent."""
        if self.sampler is not None:
            self.sampler.close()
        if self.grammar is not None:
            self.grammar.close()


class Answer:
    """The caller's end of the ``Work`` of one request; see ``appliance.engine.base.Generation``."""

    def __init__(self, works: Sequence[Work], cancel: Callable[[Work], None]) -> None:
        self._works = works
        self._cancel = cancel

    def __iter__(self) -> Iterator[GenerationEvent]:
        """Yield events until the last ``Finished``; a caller that goes away cancels."""
        n_open = len(self._works)
        try:
            while n_open:
                event = self._works[0].events.get()
                if isinstance(event, ApplianceError):
                    raise event
                if isinstance(event, Finished):
                    n_open -= 1
                yield event
        finally:
            if n_open:
                self.cancel()

    def cancel(self) -> None:
        """Stop within one step, at whatever stage; idempotent."""
        for work in self._works:
            self._cancel(work)
