"""The one place where ``async`` meets the blocking core.

A running answer is pulled step by step in a worker thread, so that a slow reader slows only itself.
Meanwhile the connection is watched: when the client leaves, the answer is cancelled at once, also
while it waits in the queue or its prompt is read and nothing is being sent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from starlette.types import Message, Receive

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEEP_ALIVE_S = 15.0


class Running(Protocol[T_co]):
    """An answer on its way: a core ``Turn`` or an engine's ``Generation``."""

    def __iter__(self) -> Iterator[T_co]:
        """Yield its events; blocks between them."""
        ...

    def cancel(self) -> None:
        """Stop it, from any thread."""
        ...


class ClientGoneError(Exception):
    """The client closed the connection; there is nobody to answer."""


class _End:
    """What a worker returns instead of ``StopIteration``, which a future cannot carry."""


_END = _End()


class Crossing:
    """Worker threads for the server: a few for quick calls, one for each answer that may run.

    Args:
        n_answers: answers that may run or wait at the same time.
    """

    def __init__(self, n_answers: int) -> None:
        self._calls = ThreadPoolExecutor(8, thread_name_prefix="http-call")
        self._answers = ThreadPoolExecutor(n_answers + 8, thread_name_prefix="http-answer")
        self._lock = threading.Lock()
        self._running: set[Running[Any]] = set()

    async def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401
        """Run a call of the core that returns soon (milliseconds, a search)."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._calls, lambda: function(*args, **kwargs))

    async def call_slowly(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401
        """Run a call that waits for the engine (embeddings, starting an answer)."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._answers, lambda: function(*args, **kwargs))

    def stream(self, answer: Running[T], receive: Receive) -> Stream[T]:
        """Return the answer's events as an asynchronous iterator; close it when done."""
        return Stream(self, answer, receive)

    async def step(self, iterator: Iterator[T]) -> T | _End:
        """Return the iterator's next item, or the end."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._answers, lambda: next(iterator, _END))

    def began(self, answer: Running[Any]) -> None:
        """Note an answer, so that a stop can end it."""
        with self._lock:
            self._running.add(answer)

    def ended(self, answer: Running[Any]) -> None:
        """Forget an answer."""
        with self._lock:
            self._running.discard(answer)

    def cancel_all(self) -> None:
        """End every running answer within one engine step."""
        with self._lock:
            running = list(self._running)
        for answer in running:
            answer.cancel()

    def close(self) -> None:
        """Join the workers."""
        self._calls.shutdown(wait=True)
        self._answers.shutdown(wait=True)


class Stream(Generic[T]):
    """Events of one answer; None stands for ``KEEP_ALIVE_S`` seconds of silence.

    Use as ``async with stream: async for event in stream``. Leaving the block early cancels the
    answer and waits for its thread, so that nothing runs on unseen.
    """

    def __init__(self, crossing: Crossing, answer: Running[T], receive: Receive) -> None:
        self._crossing = crossing
        self._answer = answer
        self._receive = receive
        self._step: asyncio.Task[T | _End] | None = None
        self._gone: asyncio.Task[None] | None = None
        self._iterator: Iterator[T] | None = None

    async def __aenter__(self) -> Stream[T]:
        self._crossing.began(self._answer)
        self._iterator = iter(self._answer)
        self._gone = asyncio.create_task(_until_gone(self._receive))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._gone is not None:
            self._gone.cancel()
        self._answer.cancel()
        if self._step is not None and not self._step.done():
            await asyncio.wait({self._step})
        if self._step is not None and not self._step.cancelled():
            self._step.exception()
        close = getattr(self._iterator, "close", None)
        if close is not None:
            await self._crossing.call_slowly(close)
        self._crossing.ended(self._answer)

    def __aiter__(self) -> AsyncIterator[T | None]:
        return self._events()

    async def _events(self) -> AsyncIterator[T | None]:
        """Yield the events.

        Raises:
            ClientGoneError: the client hung up.
            ApplianceError: the answer failed.
        """
        if self._iterator is None or self._gone is None:
            raise RuntimeError("a stream is used inside 'async with'")
        while True:
            self._step = asyncio.create_task(self._crossing.step(self._iterator))
            while not self._step.done():
                await asyncio.wait(
                    {self._step, self._gone},
                    timeout=KEEP_ALIVE_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if self._gone.done():
                    raise ClientGoneError
                if not self._step.done():
                    yield None
            event = self._step.result()
            if isinstance(event, _End):
                return
            yield event


async def _until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection; the request's body was read before."""
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
