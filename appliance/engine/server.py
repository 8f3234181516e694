"""HTTP to one OpenAI-compatible server: a request, its reply or its stream, and clear errors.

A request is one connection of its own, so that it can be hung up from any thread: that is how an
answer is stopped, and every server known notices and frees its slot. Streams are server-sent
events: ``data: <JSON>`` lines, ``data: [DONE]`` at the end; other lines are ignored.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from appliance.errors import (
    ApplianceError,
    ConfigError,
    ContextOverflowError,
    EngineError,
    EngineStoppedError,
    QueueFullError,
)

_MOST_REPLY = 256 * 1024 * 1024
_MOST_CAUSE = 300
_BUSY = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class ServerAwayError(Exception):
    """The server did not answer, hung up or has no time now: trying again may help.

    Attributes:
        error: what the caller is told when nobody tries again.
        retry_after_s: what the server asked for, None when it did not.
    """

    def __init__(self, error: ApplianceError, retry_after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after_s = retry_after_s


class Exchange:
    """One request on its way. ``hang_up`` from any thread; everything then raises or ends."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._is_hung_up = False

    def hang_up(self) -> None:
        """Close the connection under whoever waits on it; idempotent."""
        with self._lock:
            self._is_hung_up = True
            sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def reply(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON of the reply.

        Raises:
            ServerAwayError: trying again may help.
            EngineError: the server refused.
        """
        with self._server.translated(), self._opened(method, path, body) as response:
            content = response.read(_MOST_REPLY)
            return json.loads(content)

    def events(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the objects of a stream up to its end mark; see ``reply`` for errors.

        A stream that ends without its mark just ends: what was said tells whether it was whole.
        """
        with self._server.translated(), self._opened("POST", path, body) as response:
            while line := response.readline():
                name, _, data = line.partition(b":")
                data = data.strip()
                if data == b"[DONE]":
                    return
                if name not in (b"data", b"error") or not data:
                    continue
                event = json.loads(data)
                if not isinstance(event, dict):
                    raise TypeError("an event of the stream is no object")
                if name == b"error" or "error" in event:
                    raise self._server.refusal(HTTPStatus.OK, event)
                yield event

    @contextlib.contextmanager
    def _opened(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> Iterator[http.client.HTTPResponse]:
        server = self._server
        connection = server.connection()
        try:
            connection.connect()
            with self._lock:
                self._socket = connection.sock
                if self._is_hung_up:
                    raise ConnectionAbortedError("hung up")
            connection.sock.settimeout(server.silence_s)
            content = json.dumps(body).encode() if body is not None else None
            connection.request(method, server.path + path, content, server.headers)
            response = connection.getresponse()
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise server.failure(response)
            yield response
        finally:
            with self._lock:
                self._socket = None
            connection.close()


class Server:
    """Where a server is and how to talk to it.

    Args:
        url: its base; without a path ``/v1`` is meant.
        api_key: sent as a bearer token.
        connect_s: longest time to connect.
        silence_s: longest wait for the next byte.
    """

    def __init__(self, url: str, api_key: str | None, connect_s: float, silence_s: float) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self.path = parts.path.rstrip("/") or "/v1"
        self._connect_s = connect_s
        self.silence_s = silence_s
        self.headers = {"Content-Type": "application/json", "User-Agent": "appliance"}
        if api_key is not None:
            self.headers["Authorization"] = f"Bearer {api_key}"

    def connection(self) -> http.client.HTTPConnection:
        """Return a new connection, not yet opened."""
        if self._is_tls:
            return http.client.HTTPSConnection(
                self._host,
                self._port,
                timeout=self._connect_s,
                context=ssl.create_default_context(),
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._connect_s)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what the connection raises into ``ServerAwayError``, and nonsense into ours."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise ServerAwayError(self.away(_cause(error))) from error
        except (ValueError, TypeError, LookupError) as error:
            raise EngineError("remote_nonsense", url=self.url, cause=_cause(error)) from error

    def away(self, cause: str) -> EngineStoppedError:
        """Return the error for a server that cannot be reached."""
        return EngineStoppedError("remote_unreachable", url=self.url, cause=cause)

    def failure(self, response: http.client.HTTPResponse) -> Exception:
        """Return the exception for an error reply."""
        content = response.read(64 * 1024)
        try:
            body = json.loads(content)
        except ValueError:
            body = content.decode("utf-8", "replace")
        status = HTTPStatus(response.status) if response.status in _KNOWN else HTTPStatus(500)
        error = self.refusal(status, body)
        if status in _BUSY:
            wait = response.headers.get("retry-after", "")
            after_s = float(wait) if re.fullmatch(r"\d{1,5}", wait) else None
            if status is HTTPStatus.TOO_MANY_REQUESTS:
                error = QueueFullError("remote_busy", url=self.url, retry_after_s=int(after_s or 5))
            else:
                error = self.away(f"HTTP {response.status}: {_said(body)}")
            return ServerAwayError(error, after_s)
        return error

    def refusal(self, status: HTTPStatus, body: object) -> ApplianceError:
        """Return our error for what the server says in an error's body."""
        told = body.get("error", body) if isinstance(body, dict) else {}
        told = told if isinstance(told, dict) else {}
        n_prompt, n_ctx = told.get("n_prompt_tokens"), told.get("n_ctx")
        if isinstance(n_prompt, int) and isinstance(n_ctx, int):
            return ContextOverflowError(n_prompt_tokens=n_prompt, n_ctx=n_ctx)
        facts: dict[str, Any] = {"url": self.url, "status": int(status), "cause": _said(body)}
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return EngineError("remote_key_refused", **facts)
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return EngineError("remote_refused", **facts)
        return EngineError("remote_failed", **facts)


_KNOWN = frozenset(int(status) for status in HTTPStatus)


def read_key(path: str | None) -> str | None:
    """Return the key in a file, None without one.

    Raises:
        ConfigError: the file cannot be read or holds no key.
    """
    if path is None:
        return None
    file = Path(path).expanduser()
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("key_file_unusable", path=str(file), cause=str(error)) from error
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(
            "key_file_unusable", path=str(file), cause="a key is one line of ASCII characters"
        )
    return key


def _said(body: object) -> str:
    """Return the sentence in an error's body, as OpenAI, vLLM and llama-server put it."""
    if isinstance(body, dict):
        told = body.get("error", body)
        if isinstance(told, dict):
            told = told.get("message") or told.get("detail") or told
        return str(told)[:_MOST_CAUSE]
    return str(body).strip()[:_MOST_CAUSE]


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__)[:_MOST_CAUSE]
