"""Start and stop the server: one thread with its own event loop, on a socket bound beforehand."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from appliance.core import Core
from appliance.errors import FrontendError
from appliance.frontends.http.app import build_app
from appliance.frontends.http.crossing import Crossing
from appliance.frontends.http.guard import Guard, read_api_key
from appliance.frontends.http.visitors import Visitors
from appliance.messages import Lang
from appliance.system.clock import Clock

_log = logging.getLogger(__name__)

GRACE_S = 3
"""Seconds that running answers get at a stop before their connections are cut."""

FIRST_REQUEST_S = 15.0
"""Seconds a new connection may be silent, and a request's headers may take."""

_MAX_HEADERS = 64 * 1024
_BACKLOG = 256


class HttpFrontend:
    """The HTTP server of one core.

    Raises:
        ConfigError: another address than loopback without a key, or an unusable key file.
        FrontendError: the port is taken (``port_in_use``) or the address is not ours.
    """

    def __init__(
        self, core: Core, clock: Clock, *, default_lang: Lang, rescan: Callable[[], None]
    ) -> None:
        config = core.config.http
        api_key = read_api_key(config)
        engine = core.config.engine
        self._socket = _bind(config.host, config.port)
        self._crossing = Crossing(engine.n_slots + engine.max_queue)
        visitors = Visitors(clock)
        app = build_app(
            core,
            self._crossing,
            Guard(config.host, api_key, visitors),
            visitors,
            clock,
            default_lang=default_lang,
            rescan=rescan,
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=_ImpatientProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=GRACE_S,
                h11_max_incomplete_event_size=_MAX_HEADERS,
            )
        )
        host, port = self._socket.getsockname()[:2]
        self.port: int = port
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        self.url = f"http://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"
        self._thread = threading.Thread(target=self._main, name="http")
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting, end running answers, close every connection, join the threads."""
        self._server.should_exit = True
        self._crossing.cancel_all()
        self._thread.join()
        self._crossing.close()

    def _main(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._socket.close()


class _ImpatientProtocol(H11Protocol):
    """Closes connections on which nobody asks for anything, so that they cannot use up the box."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            FIRST_REQUEST_S, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._wait_for_head(is_begun=False)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; headers that trickle in do not keep the connection open."""
        super().data_received(data)
        cycle = getattr(self, "cycle", None)
        is_answering = cycle is not None and not cycle.response_complete
        self._wait_for_head(is_begun=not is_answering and bool(self.conn.trailing_data[0]))

    def _wait_for_head(self, *, is_begun: bool) -> None:
        if self._head is not None and not is_begun:
            self._head.cancel()
            self._head = None
        elif self._head is None and is_begun:
            self._head = self.loop.call_later(FIRST_REQUEST_S, self.timeout_keep_alive_handler)


def _bind(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that a taken port is an error before anything starts."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise FrontendError("address_unusable", host=host, cause=str(error)) from error
    sock = socket.socket(family, kind, proto)
    try:
        # A port of a daemon that just stopped may be taken again; one that is in use may not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise FrontendError("port_in_use", host=host, port=port) from error
        raise FrontendError(
            "address_unusable", host=host, cause=error.strerror or str(error)
        ) from error
    return sock
