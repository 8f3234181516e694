"""A synchronous client of the daemon, over HTTP or a serial line; imports nothing heavy.

The stream of an answer is server-sent events: ``event: <type>`` and ``data: <JSON>`` lines, a blank
line between events, lines that begin with ``:`` to show that the daemon lives. Closing the stream
early is how an answer is stopped: the daemon notices and frees the engine within one step.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import secrets
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

from appliance.errors import ApplianceError, DaemonUnreachableError

_CONNECT_S = 5.0
_SILENCE_S = 60.0
"""Longest silence of a living daemon: it sends a comment every 15 s while an answer waits."""

_BLOCK = 256 * 1024

Query = Mapping[str, str | int | bool | None]


class RemoteError(ApplianceError):
    """What the daemon answered instead of a result; code and facts are the daemon's."""


class Answering:
    """The events of one answer as ``(type, data)`` pairs; close it early to stop the answer."""

    def __init__(self, client: Client, connection: http.client.HTTPConnection) -> None:
        self._client = client
        self._connection = connection
        self._socket = connection.sock
        self._response = connection.getresponse()

    def __enter__(self) -> Answering:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield events until ``answer``.

        Raises:
            RemoteError: the answer failed.
            DaemonUnreachableError: the daemon went away.
        """
        with self._client.translated_errors():
            if self._response.status != http.HTTPStatus.OK:
                raise _remote_error(self._response.status, self._response.read())
            name, data = "message", ""
            while line := self._response.readline():
                text = line.decode("utf-8").rstrip("\r\n")
                if text.startswith("event: "):
                    name = text.removeprefix("event: ")
                elif text.startswith("data: "):
                    data += text.removeprefix("data: ")
                elif not text and data:
                    event = json.loads(data)
                    if name == "error":
                        raise RemoteError(event["error"]["code"], **event["error"]["facts"])
                    if name == "answer":
                        # Read to the end first: hanging up earlier would count as a stop.
                        self._response.read()
                        yield name, event
                        return
                    yield name, event
                    name, data = "message", ""
        raise DaemonUnreachableError("daemon_lost", url=self._client.url)

    def stop(self) -> None:
        """Hang up from another thread than the one that reads, which then finds the end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up; the daemon stops an answer that is still running."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._response.close()
        self._connection.close()


class Client:
    """Talks to one daemon.

    Args:
        url: its base, e.g. ``http://127.0.0.1:8080``.
        api_key: sent as a bearer token when given.
        language: ``zh`` or ``en``, for sentences the daemon makes.
    """

    def __init__(self, url: str, api_key: str | None = None, language: str = "en") -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._headers = {"Accept-Language": language, "User-Agent": "appliance"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    @classmethod
    def of_data_folder(
        cls, data: Path, runtime_file: Path, api_key: str | None = None, language: str = "en"
    ) -> Client:
        """Return a client of the daemon that runs on ``data``.

        Raises:
            DaemonUnreachableError: none runs there.
        """
        try:
            url = json.loads(runtime_file.read_text(encoding="utf-8"))["url"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DaemonUnreachableError(path=str(data)) from error
        client = cls(url, api_key, language)
        try:
            client.get("/healthz", timeout_s=_CONNECT_S)
        except DaemonUnreachableError as error:
            raise DaemonUnreachableError(path=str(data)) from error
        return client

    def get(self, path: str, query: Query | None = None, *, timeout_s: float = _SILENCE_S) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON that ``path`` answers with.

        Raises:
            RemoteError: the daemon refused.
            DaemonUnreachableError: nobody answers.
        """
        return self._call("GET", _with_query(path, query), timeout_s=timeout_s)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Send ``body`` as JSON; see ``get``."""
        return self._call("POST", path, json.dumps(body or {}).encode(), "application/json")

    def delete(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Delete ``path``; see ``get``."""
        return self._call("DELETE", path)

    def ask(self, question: str, **options: str | bool | None) -> Answering:
        """Ask and return the running answer; ``options`` are those of ``POST /api/ask``.

        Raises:
            DaemonUnreachableError: nobody answers.
        """
        body = {"question": question, **{k: v for k, v in options.items() if v is not None}}
        with self.translated_errors():
            connection = self._connect(_SILENCE_S)
            try:
                connection.request(
                    "POST",
                    "/api/ask",
                    json.dumps(body).encode(),
                    {**self._headers, "Content-Type": "application/json"},
                )
                return Answering(self, connection)
            except BaseException:
                connection.close()
                raise

    def upload(self, name: str, content: BinaryIO, collection: str = "") -> Any:  # noqa: ANN401
        """Put a document into the inbox and return ``{"path": ...}``; see ``get`` for errors."""
        boundary = secrets.token_hex(16)
        safe = name.replace('"', "%22").replace("\r", "").replace("\n", "")
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="collection"\r\n\r\n'
            f"{collection}\r\n--{boundary}\r\n"
            f'Content-Disposition: form-data; name="file"; filename="{safe}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()

        def blocks() -> Iterator[bytes]:
            yield head
            while block := content.read(_BLOCK):
                yield block
            yield f"\r\n--{boundary}--\r\n".encode()

        return self._call(
            "POST", "/api/documents", blocks(), f"multipart/form-data; boundary={boundary}"
        )

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn what the connection raises into ``DaemonUnreachableError``."""
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as error:
            # ValueError: half a line of JSON, or half the length of a chunk.
            raise DaemonUnreachableError("daemon_lost", url=self.url) from error

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_S)
        connection.connect()
        connection.sock.settimeout(timeout_s)
        return connection

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        content_type: str | None = None,
        *,
        timeout_s: float = _SILENCE_S,
    ) -> Any:  # noqa: ANN401 - JSON
        headers = {**self._headers, **({"Content-Type": content_type} if content_type else {})}
        with self.translated_errors(), contextlib.closing(self._connect(timeout_s)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise _remote_error(response.status, content)
            return json.loads(content)


def _with_query(path: str, query: Query | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{quote(path)}?{urlencode(given)}" if given else quote(path)


def _remote_error(status: int, content: bytes) -> RemoteError:
    try:
        error = json.loads(content)["error"]
        return RemoteError(error["code"], **error["facts"])
    except (ValueError, KeyError, TypeError):
        return RemoteError("internal", what=f"HTTP {status}")


# --------------------------------------------------------------------------------------------------
# over a serial line


class SerialAnswer:
    """The frames of one answer as ``(type, frame)`` pairs; ``stop`` ends it early.

    The last pair is ``answer``, or ``cancelled`` after ``stop``.
    """

    def __init__(self, client: SerialClient, request: str) -> None:
        self._client = client
        self._request = request

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield frames as they come.

        Raises:
            RemoteError: the answer failed.
            DaemonUnreachableError: the line is silent or gone.
        """
        while True:
            frame = self._client.receive(self._request)
            yield frame["type"], frame
            if frame["type"] in ("answer", "cancelled"):
                return

    def stop(self) -> None:
        """Ask the box to stop; the iteration ends when it has. From any thread."""
        self._client.send("cancel", self._request)


class SerialClient:
    """Talks to a box over a serial line (docs/serial-protocol.md).

        with SerialClient("/dev/ttyUSB0") as box:
            for kind, frame in box.ask("How long is the warranty?"):
                ...

    One thread uses a client, except for ``SerialAnswer.stop``. What a person types on the same line
    passes by unseen.

    Args:
        port: the device.
        baud: the box's speed.
        pin: sent with ``hello`` when the box asks for one.

    Raises:
        DaemonUnreachableError: the port cannot be opened.
    """

    def __init__(self, port: str, baud: int = 115200, *, pin: str | None = None) -> None:
        import serial

        self.port = port
        self._pin = pin
        self._ids = itertools.count(1)
        self._rest = b""
        self._waiting: dict[str, deque[dict[str, Any]]] = {}
        try:
            self._line = serial.Serial(port, baud, timeout=0.02, write_timeout=10.0)
        except (OSError, ValueError) as error:
            raise DaemonUnreachableError("daemon_lost", url=port) from error

    def __enter__(self) -> SerialClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the port."""
        self._line.close()

    def hello(self, wait_s: float = 10.0) -> dict[str, Any]:
        """Return what the box says of itself; tried each second, since it may just open its port.

        Raises:
            DaemonUnreachableError: nobody answered in time.
        """
        given = {"pin": self._pin} if self._pin is not None else {}
        deadline = time.monotonic() + wait_s
        while True:
            request = self.send("hello", None, **given)
            try:
                return self.receive(request, silence_s=1.0)
            except DaemonUnreachableError:
                if time.monotonic() > deadline:
                    raise

    def ask(self, question: str, **options: str | bool | None) -> SerialAnswer:
        """Ask; iterate the result. ``options`` are the fields of ``ask`` in the protocol."""
        given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
        return SerialAnswer(self, self.send("ask", None, q=question, **given))

    def search(self, query: str, *, k: int = 3, collection: str | None = None) -> Any:  # noqa: ANN401
        """Return the hits for a query, best first."""
        given = {"collection": collection} if collection is not None else {}
        return self.receive(self.send("search", None, q=query, k=k, **given))["hits"]

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector per text, as little-endian 32-bit floats."""
        found = self.receive(self.send("embed", texts=list(texts)))
        return [base64.b64decode(vector) for vector in found["vectors"]]

    def status(self) -> dict[str, Any]:
        """Return the state of the box."""
        return self.receive(self.send("status"))

    def send(self, op: str, request: str | None = None, **fields: Any) -> str:  # noqa: ANN401
        """Send a request and return its id; ``request`` names a running one."""
        if request is None:
            request = str(next(self._ids))
            self._waiting[request] = deque()
        text = json.dumps({"op": op, "id": request, **fields}, ensure_ascii=False)
        try:
            self._line.write(text.encode() + b"\n")
        except OSError as error:
            raise DaemonUnreachableError("daemon_lost", url=self.port) from error
        return request

    def receive(self, request: str, silence_s: float = _SILENCE_S) -> dict[str, Any]:
        """Return the next frame for ``request``; see ``SerialAnswer`` for errors."""
        deadline = time.monotonic() + silence_s
        queue = self._waiting.setdefault(request, deque())
        while not queue:
            if self._read():
                deadline = time.monotonic() + silence_s
            elif time.monotonic() > deadline:
                raise DaemonUnreachableError("daemon_lost", url=self.port)
        frame = queue.popleft()
        if frame["type"] == "error":
            raise RemoteError(frame["code"])
        return frame

    def _read(self) -> bool:
        """Sort what has arrived; returns whether a frame of ours came."""
        try:
            self._rest += self._line.read(max(1, self._line.in_waiting))
        except OSError as error:
            raise DaemonUnreachableError("daemon_lost", url=self.port) from error
        *lines, self._rest = self._rest.replace(b"\r", b"\n").split(b"\n")
        found = False
        for line in lines:
            if not line.startswith(b"{"):
                continue
            with contextlib.suppress(ValueError):
                # Noise on the line; who waits notices the silence.
                frame = json.loads(line)
                if frame.get("id") in self._waiting:
                    self._waiting[frame["id"]].append(frame)
                    found = True
        return found
