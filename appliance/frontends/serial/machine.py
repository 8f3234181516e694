"""A machine's requests on a line: each is answered by frames that carry its id."""

from __future__ import annotations

import base64
import hmac
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import appliance
from appliance.client import Answering, Client
from appliance.config import SerialConfig
from appliance.errors import ApplianceError
from appliance.frontends.serial.frames import (
    LONGEST_FRAME,
    OPS,
    PROTOCOL_VERSION,
    BadFrameError,
    Request,
    encode,
    parse,
    text_field,
)
from appliance.messages import explain

_log = logging.getLogger(__name__)

COALESCE_S = 0.08
"""Deltas of this long travel in one frame."""

_LOOK_AGAIN_S = 0.02
_MOST_CHARS = 400
"""Longest text of one delta; on a line that is behind, text waits and travels in fewer frames."""

MOST_RUNNING = 4
_FORWARDED = {"evidence": ("citations",), "queued": ("position", "wait_s")}
_MOST_TEXTS = 16
_PIN_TRIES_S = 2.0

Send = Callable[[bytes], None]


class MachineSide:
    """Everything a machine on one line may ask.

    Args:
        client: of the daemon.
        config: of serial lines.
        send: puts a whole frame on the line.
        is_behind: whether frames wait for the line. Text of answers then waits here, where
            ``cancel`` finds it, and not behind every frame that was queued before.
        name: of the line, by which the queue knows this client.
    """

    def __init__(
        self,
        client: Client,
        config: SerialConfig,
        send: Send,
        is_behind: Callable[[], bool],
        name: str,
    ) -> None:
        self._client = client
        self._config = config
        self._send = send
        self._is_behind = is_behind
        self._name = name
        self._is_known = config.pin is None
        self._refused_until = 0.0
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}

    def reset(self) -> None:
        """Stop what runs and forget the PIN, as after the cable was pulled."""
        with self._lock:
            running = list(self._running.values())
        for one in running:
            one.stop()
        for one in running:
            one.thread.join()
        self._is_known = self._config.pin is None

    def take(self, line: bytes) -> None:
        """Handle one line that began with a brace; never raises."""
        try:
            request = parse(line)
        except BadFrameError as error:
            self._refuse(error, error.frame_id, with_trailer=False)
            return
        try:
            self._handle(request)
        except ApplianceError as error:
            self._refuse(error, request.id, with_trailer=request.has_trailer)

    def take_too_long(self) -> None:
        """Answer a line that was longer than a frame may be; it was not kept."""
        error = BadFrameError("frame_too_long", limit=LONGEST_FRAME)
        self._refuse(error, None, with_trailer=False)

    def _handle(self, request: Request) -> None:
        if request.op == "hello":
            self._hello(request)
            return
        if not self._is_known:
            raise BadFrameError("frame_pin_needed", request.id)
        if request.op == "cancel":
            self._cancel(request)
        elif request.op == "status":
            self._status(request)
        else:
            self._begin(request)

    def _say(self, request: Request, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON
        value = {"id": request.id, "type": kind, **fields}
        self._send(encode(value, with_trailer=request.has_trailer))

    def _refuse(self, error: ApplianceError, frame_id: str | None, *, with_trailer: bool) -> None:
        said = explain(error, self._config.language)
        value = {
            "id": frame_id,
            "type": "error",
            "code": said.code,
            "message": said.message,
            "next_step": said.next_step,
        }
        self._send(encode(value, with_trailer=with_trailer))

    def _hello(self, request: Request) -> None:
        if self._config.pin is not None and not self._is_known:
            given = str(request.fields.get("pin", ""))
            now = time.monotonic()
            if now < self._refused_until:
                raise BadFrameError("frame_pin_wait", request.id)
            if not hmac.compare_digest(given.encode(), self._config.pin.encode()):
                self._refused_until = now + _PIN_TRIES_S
                raise BadFrameError("frame_pin_wrong", request.id)
            self._is_known = True
        self._say(
            request,
            "hello",
            protocol=PROTOCOL_VERSION,
            version=appliance.__version__,
            ops=list(OPS),
            longest_frame=LONGEST_FRAME,
            most_running=MOST_RUNNING,
        )

    def _status(self, request: Request) -> None:
        found = self._client.get("/api/status")
        documents = found["documents"]
        self._say(
            request,
            "status",
            state=found["state"],
            model=found["models"]["generation"]["name"],
            documents=documents["documents"],
            passages=documents["passages"],
            running=found["queue"]["running"],
            waiting=found["queue"]["waiting"],
            problems=[problem["code"] for problem in found["problems"]],
        )

    def _cancel(self, request: Request) -> None:
        with self._lock:
            running = self._running.get(request.id or "")
        if running is None:
            raise BadFrameError("frame_not_running", request.id)
        running.stop()

    def _begin(self, request: Request) -> None:
        if request.id is None:
            raise BadFrameError("frame_field", field="id", allowed="text")
        work = {"ask": self._ask, "search": self._search, "embed": self._embed}[request.op]
        with self._lock:
            if request.id in self._running:
                raise BadFrameError("frame_id_taken", request.id)
            if len(self._running) >= MOST_RUNNING:
                raise BadFrameError("frame_too_many", request.id, limit=MOST_RUNNING)
            running = _Running(lambda mine: self._run(request, work, mine))
            self._running[request.id] = running
        running.thread.start()

    def _run(
        self, request: Request, work: Callable[[Request, _Running], None], mine: _Running
    ) -> None:
        try:
            work(request, mine)
        except ApplianceError as error:
            if not mine.is_stopped:
                self._refuse(error, request.id, with_trailer=request.has_trailer)
        finally:
            with self._lock:
                self._running.pop(request.id or "", None)
            # After the id is free again, so that a machine may use it at once.
            if mine.is_stopped:
                self._say(request, "cancelled")

    def _ask(self, request: Request, mine: _Running) -> None:
        fields = request.fields
        options: dict[str, str | bool | None] = {
            "collection": _optional(request, "collection"),
            "mode": _choice(request, "mode", ("strict", "open")),
            "lang": _choice(request, "lang", ("zh", "en")),
            "client": f"serial-{self._name}-machine",
            "remember": False,
        }
        is_streamed = fields.get("stream", True)
        if not isinstance(is_streamed, bool):
            raise BadFrameError("frame_field", request.id, field="stream", allowed="true, false")
        with self._client.ask(text_field(request, "q"), **options) as events:
            mine.started(events)
            deltas = _Deltas(lambda text: self._say(request, "delta", text=text), self._is_behind)
            try:
                for kind, event in events:
                    if kind == "answer":
                        while deltas.waits() and not mine.is_stopped:
                            time.sleep(_LOOK_AGAIN_S)
                        if not mine.is_stopped:
                            self._answered(request, event, is_streamed=is_streamed)
                    elif is_streamed and kind == "delta":
                        deltas.add(event["text"])
                    elif is_streamed and kind in _FORWARDED:
                        kept = {name: event[name] for name in _FORWARDED[kind]}
                        self._say(request, kind, **kept)
            finally:
                deltas.discard()

    def _answered(self, request: Request, event: dict[str, Any], *, is_streamed: bool) -> None:
        kept = ("refused", "reason", "citations", "finish_reason", "usage", "timings")
        said = {name: event[name] for name in kept}
        if not is_streamed or event["refused"]:
            said["answer"] = event["answer"]
        self._say(request, "answer", **said)

    def _search(self, request: Request, _mine: _Running) -> None:
        k = request.fields.get("k", 3)
        if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= 20:
            raise BadFrameError("frame_field", request.id, field="k", allowed="1 to 20")
        query: dict[str, str | int | bool | None] = {
            "q": text_field(request, "q"),
            "k": k,
            "collection": _optional(request, "collection"),
        }
        hits = self._client.get("/api/search", query)["hits"]
        kept = ("rank", "path", "page", "heading", "line_from", "line_to", "score", "text")
        self._say(request, "hits", hits=[{name: hit[name] for name in kept} for hit in hits])

    def _embed(self, request: Request, _mine: _Running) -> None:
        texts = request.fields.get("texts")
        if not isinstance(texts, list) or not 1 <= len(texts) <= _MOST_TEXTS:
            allowed = f"1 to {_MOST_TEXTS} texts"
            raise BadFrameError("frame_field", request.id, field="texts", allowed=allowed)
        name = self._client.get("/api/status")["models"]["embedding"]["name"]
        found = self._client.post("/v1/embeddings", {"model": name, "input": texts})
        vectors = [np.asarray(row["embedding"], "<f4").tobytes() for row in found["data"]]
        packed = [base64.b64encode(vector).decode("ascii") for vector in vectors]
        self._say(request, "vectors", dtype="float32", encoding="base64", vectors=packed)


class _Running:
    """One request being answered in a thread of its own."""

    def __init__(self, work: Callable[[_Running], None]) -> None:
        self.is_stopped = False
        self._answer: Answering | None = None
        self.thread = threading.Thread(target=work, args=(self,), name="serial-request")

    def started(self, answer: Answering) -> None:
        """Note what can be stopped."""
        self._answer = answer
        if self.is_stopped:
            answer.stop()

    def stop(self) -> None:
        """Stop it; from any thread."""
        self.is_stopped = True
        if self._answer is not None:
            self._answer.stop()


class _Deltas:
    """Joins pieces of text to frames: at most one per ``COALESCE_S``, fewer on a slow line."""

    def __init__(self, send: Callable[[str], None], is_behind: Callable[[], bool]) -> None:
        self._send = send
        self._is_behind = is_behind
        self._text = ""
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def add(self, text: str) -> None:
        """Take a piece; it is sent soon."""
        with self._lock:
            self._text += text
            if self._timer is None:
                self._begin(COALESCE_S)

    def waits(self) -> bool:
        """Return whether text waits that was not sent."""
        with self._lock:
            return bool(self._text)

    def discard(self) -> None:
        """Forget what was not sent; nothing is sent any more."""
        with self._lock:
            self._text = ""
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _begin(self, wait_s: float) -> None:
        self._timer = threading.Timer(wait_s, self._due)
        self._timer.start()

    def _due(self) -> None:
        with self._lock:
            self._timer = None
            if self._text and not self._is_behind():
                text, self._text = self._text[:_MOST_CHARS], self._text[_MOST_CHARS:]
                self._send(text)
            if self._text:
                self._begin(_LOOK_AGAIN_S)


def _optional(request: Request, name: str) -> str | None:
    return text_field(request, name, limit=200) if request.fields.get(name) is not None else None


def _choice(request: Request, name: str, allowed: tuple[str, ...]) -> str | None:
    value = request.fields.get(name)
    if value is not None and value not in allowed:
        raise BadFrameError("frame_field", request.id, field=name, allowed=", ".join(allowed))
    return value
