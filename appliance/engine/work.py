"""One answer on its way through the engine, and the caller's end of it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from appliance.engine.base import Finished, GenerationEvent, GenerationRequest, Timings
from appliance.engine.native import Sampler
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

    ``events`` has no bound of its own: an answer puts at most one event per token into it and is
    itself bounded by the context.
    """

    request: GenerationRequest
    prompt: TokenArray
    n_prompt: int
    n_most: int
    clock: Clock
    stream: TextStream
    events: queue.SimpleQueue[GenerationEvent | ApplianceError] = field(
        default_factory=queue.SimpleQueue
    )
    is_cancelled: bool = False
    is_over: bool = False
    client: str = ""
    position: int = 0
    sampler: Sampler | None = None
    n_cached: int = 0
    n_read: int = 0
    n_out: int = 0
    pending: int = -1

    @property
    def is_prefilling(self) -> bool:
        """Whether prompt tokens are left to read."""
        return self.n_read < len(self.prompt)


class Answer:
    """The caller's end of a ``Work``; see ``appliance.engine.base.Generation``."""

    def __init__(self, work: Work, cancel: Callable[[Work], None]) -> None:
        self._work = work
        self._cancel = cancel

    def __iter__(self) -> Iterator[GenerationEvent]:
        """Yield events until ``Finished``; a caller that stops iterating cancels the answer."""
        is_over = False
        try:
            while not is_over:
                event = self._work.events.get()
                if isinstance(event, ApplianceError):
                    is_over = True
                    raise event
                is_over = isinstance(event, Finished)
                yield event
        finally:
            if not is_over:
                self.cancel()

    def cancel(self) -> None:
        """Stop within one step, at whatever stage; idempotent."""
        self._cancel(self._work)
