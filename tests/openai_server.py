"""A small OpenAI-compatible server that misbehaves on request: away, busy, cut off, wrong.

It speaks real HTTP on a real socket. ``plan`` is a list of what to do with the next requests, in
order; when it is empty every request is answered well.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["一", "台 ", "box ", "answers", " 👩‍👩‍👧", "。"]


class OpenAiServer:
    """Serves until ``stop``; ``start`` again on the same port brings it back.

    ``plan`` entries: ``("status", 503, {"retry-after": "1"}, {...})``, ``("cut", 2)`` (hang up
    after two words), ``("silent",)`` (say nothing until stopped), ``("chunks", [...])``.
    """

    def __init__(self, *, key: str | None = None) -> None:
        self.key = key
        self.plan: list[tuple[Any, ...]] = []
        self.bodies: list[dict[str, Any]] = []
        self.n_running = 0
        self.word_delay_s = 0.0
        self.models: list[dict[str, Any]] = [{"id": "far-model", "max_model_len": 2048}]
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._connections: set[socket.socket] = set()
        self.is_stopping = False
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        outer = self

        class Handler(_Handler):
            box = outer

        ThreadingHTTPServer.allow_reuse_address = True
        self.is_stopping = False
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_arguments: None  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Go away as a killed process does: no more connections, open ones are reset."""
        if self._server is None or self._thread is None:
            return
        self.is_stopping = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server = None


class _Handler(BaseHTTPRequestHandler):
    box: OpenAiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments: object) -> None:
        return

    def setup(self) -> None:
        super().setup()
        self.box._connections.add(self.connection)

    def finish(self) -> None:
        self.box._connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        if self._is_refused():
            return
        self._json(200, {"object": "list", "data": self.box.models})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self._is_refused():
            return
        self.box.bodies.append(body)
        step = self.box.plan.pop(0) if self.box.plan else ("well",)
        if step[0] == "status":
            self._json(step[1], step[3] if len(step) > 3 else {"error": {"message": "no"}}, step[2])
        elif self.path.endswith("/embeddings"):
            rows = [
                {"index": n, "embedding": [float(len(text)), 1.0, 0.0]}
                for n, text in enumerate(body["input"])
            ]
            self._json(200, {"data": rows[::-1]})
        else:
            self._stream(body, step)

    def _stream(self, body: dict[str, Any], step: tuple[Any, ...]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self.box.n_running += 1
        try:
            if step[0] == "silent":
                while not self.box.is_stopping and not self._is_left():
                    time.sleep(0.01)
                return
            chunks = step[1] if step[0] == "chunks" else _chunks(body)
            for n, chunk in enumerate(chunks):
                if step[0] == "cut" and n == step[1]:
                    return
                time.sleep(self.box.word_delay_s)
                if self.box.is_stopping:
                    return
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            return
        finally:
            self.box.n_running -= 1

    def _is_left(self) -> bool:
        self.connection.settimeout(0.01)
        try:
            return self.connection.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def _is_refused(self) -> bool:
        if self.box.key is None or self.headers.get("authorization") == f"Bearer {self.box.key}":
            return False
        self._json(401, {"error": {"message": "wrong key"}})
        return True

    def _json(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "content-length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _chunks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    is_chat = "messages" in body
    for index in range(body.get("n", 1)):
        for word in WORDS:
            said: dict[str, Any] = {"delta": {"content": word}} if is_chat else {"text": word}
            yield {"choices": [{"index": index, **said, "finish_reason": None}]}
        end: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
        yield {"choices": [{"index": index, **end, "finish_reason": "stop"}]}
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    yield {"choices": [], "usage": usage}
