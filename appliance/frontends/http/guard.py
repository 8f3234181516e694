"""Who may talk to the box: the key, and requests that a web page of somebody else's makes.

On loopback no key is needed, but a browser on the same machine is then a way in for any web page.
Two checks close it. The ``Host`` header must name this machine, which defeats DNS rebinding. And a
request that a browser labels as coming from another site (``Origin``, ``Sec-Fetch-Site``) is
refused, which defeats forms that post here. With a key neither is needed: a page does not know it.

On a box with a key the kiosk's own browser (on loopback) and visitors with a session may make the
few requests of ``visitors`` without it, under the check of the page; the cookie is ``SameSite``.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

from appliance.config import HttpConfig
from appliance.errors import ApplianceError, ConfigError, FrontendError
from appliance.frontends.http.visitors import COOKIE, Visitors, is_screens, is_visitors

OPEN_PATHS = frozenset({"/healthz", "/join"})
"""Answered without a key: says that the box lives, and takes the token of a visitor."""

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_api_key(config: HttpConfig) -> str | None:
    """Return the key that clients must send, None on a loopback address without one.

    Raises:
        ConfigError: the address is not loopback and there is no key, or its file is unusable.
    """
    if config.api_key_file is None:
        if not is_loopback(config.host):
            raise ConfigError("http_needs_key", host=config.host)
        return None
    path = Path(config.api_key_file).expanduser()
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("key_file_unusable", path=str(path), cause=str(error)) from error
    if not key.isascii() or not key.isprintable() or len(key) < 8:
        raise ConfigError(
            "key_file_unusable", path=str(path), cause="a key is 8 or more ASCII characters"
        )
    return key


class Guard:
    """Checks one request's headers.

    Args:
        host: the address the server listens on.
        api_key: the key, None when none is needed.
        visitors: who was let in.
    """

    def __init__(self, host: str, api_key: str | None, visitors: Visitors) -> None:
        self._names = _LOOPBACK_NAMES | {host.lower()}
        self._api_key = api_key
        self._visitors = visitors

    def refusal(
        self, method: str, path: str, headers: Mapping[str, str], peer: str
    ) -> ApplianceError | None:
        """Return why the request is refused, None if it may go on; ``peer`` is who connected."""
        if self._api_key is None:
            return self._foreign_host(headers) or self._foreign_page(headers)
        if path in OPEN_PATHS or self._has_key(headers):
            return None
        if is_visitors(method, path) and self._visitors.knows(_cookie(headers)):
            return self._foreign_page(headers)
        may_screen = is_visitors(method, path) or is_screens(method, path)
        if may_screen and is_loopback(peer) and self._foreign_host(headers) is None:
            return self._foreign_page(headers)
        return FrontendError("key_needed")

    def _foreign_host(self, headers: Mapping[str, str]) -> ApplianceError | None:
        name = host_name(headers.get("host", ""))
        return None if name in self._names else FrontendError("host_refused", host=name)

    def _foreign_page(self, headers: Mapping[str, str]) -> ApplianceError | None:
        origin = headers.get("origin")
        is_foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if is_foreign or (origin and origin != f"http://{headers.get('host', '')}"):
            return FrontendError("origin_refused", origin=origin or "?")
        return None

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(), (self._api_key or "").encode()
        )


def _cookie(headers: Mapping[str, str]) -> str:
    """Return the visitor's session in a ``Cookie`` header, empty without one."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def host_name(host: str) -> str:
    """Return the name in a ``Host`` header, without its port and brackets, in small letters."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
