"""Replies that run for the length of an answer: streamed as it grows, or collected."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from appliance.errors import ApplianceError
from appliance.frontends.http import sse
from appliance.frontends.http.crossing import ClientGoneError, Crossing, Running
from appliance.frontends.http.replies import error_body, error_reply, reply
from appliance.messages import Lang

_log = logging.getLogger(__name__)

_STILL_HERE = (sse.KEEP_ALIVE,)

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Teller(Protocol[E_contra]):
    """Turns an answer's events into what one API says about them."""

    def frames(self, event: E_contra) -> Sequence[bytes]:
        """Return the event-stream frames for one event."""
        ...

    def end(self) -> Sequence[bytes]:
        """Return the frames after the last event."""
        ...

    def body(self) -> dict[str, Any]:
        """Return the whole reply, after the last event."""
        ...

    def failure(self, body: dict[str, Any]) -> Sequence[bytes]:
        """Return the frames for an error inside a running stream."""
        ...


class AnswerReply(Response, Generic[E]):
    """Runs ``start()``'s answer for as long as the client listens.

    Errors before the first event become an ordinary error reply with its status; later ones become
    an error frame. When the client leaves, the answer is cancelled.
    """

    def __init__(
        self,
        crossing: Crossing,
        start: Callable[[], Running[E]],
        teller: Teller[E],
        *,
        is_stream: bool,
        lang: Lang,
    ) -> None:
        super().__init__()
        self._crossing = crossing
        self._begin = start
        self._teller = teller
        self._is_stream = is_stream
        self._lang = lang

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = str(scope["path"])
        is_open = False
        try:
            answer = await self._crossing.call_slowly(self._begin)
            async with self._crossing.stream(answer, receive) as events:
                async for event in events:
                    frames = self._teller.frames(event) if event is not None else _STILL_HERE
                    if self._is_stream:
                        is_open = await _open(send, is_open=is_open)
                        await _send(send, frames)
            if self._is_stream:
                await _open(send, is_open=is_open)
                await _send(send, self._teller.end(), more=False)
                return
            await reply(self._teller.body())(scope, receive, send)
        except ClientGoneError:
            _log.info("%s: the client left, the answer was stopped", path)
        except ApplianceError as error:
            if is_open:
                frames = self._teller.failure(error_body(error, path, self._lang))
                await _send(send, frames, more=False)
            else:
                await error_reply(error, path, self._lang)(scope, receive, send)


async def _open(send: Send, *, is_open: bool) -> bool:
    if not is_open:
        headers = [(name.encode(), value.encode()) for name, value in sse.HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    return True


async def _send(send: Send, frames: Sequence[bytes], *, more: bool = True) -> None:
    body = b"".join(frames)
    if body or not more:
        await send({"type": "http.response.body", "body": body, "more_body": more})
