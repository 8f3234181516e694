"""People with a phone: let in by the code on the kiosk's screen, to ask and to read what is cited.

The code on the screen carries a token that lives ten minutes; whoever scans it gets a session of
their own, so a photograph of the screen is of no use later. Nothing is kept on disk: after a start
of the box the code is scanned again. Used on the server's own thread alone.
"""

from __future__ import annotations

import re
import secrets

from appliance.system.clock import Clock

COOKIE = "visitor"
TOKEN_S = 600.0
"""Seconds after which the screen shows another token; the one before is good as long again."""

SESSION_S = 12 * 3600.0
_MOST_SESSIONS = 500
"""The oldest goes when there are more."""

_ROUTES = re.compile(
    r"GET (/|/kiosk/[^/]+|/api/(kiosk|pinyin|suggestions)|/api/documents/\d+/(passages|page/\d+))"
    r"|POST /api/ask"
)
_SCREEN_ROUTES = re.compile(r"GET /api/join(\.svg)?")


class Visitors:
    """The tokens and sessions of visitors."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens: list[tuple[float, str]] = []
        self._sessions: dict[str, float] = {}

    def token(self) -> str:
        """Return the token that the screen shows now."""
        now = self._clock.monotonic()
        if not self._tokens or now - self._tokens[-1][0] >= TOKEN_S:
            self._tokens = [*self._tokens[-1:], (now, secrets.token_urlsafe(16))]
        return self._tokens[-1][1]

    def admit(self, token: str) -> str | None:
        """Return a new session for a token that is still good, None for any other text."""
        now = self._clock.monotonic()
        good = [text for begun, text in self._tokens if now - begun < 2 * TOKEN_S]
        if not any(
            secrets.compare_digest(token.encode("utf-8", "replace"), text.encode()) for text in good
        ):
            return None
        session = secrets.token_urlsafe(24)
        self._sessions[session] = now + SESSION_S
        while len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def knows(self, session: str) -> bool:
        """Whether a session was given out and is not over."""
        ends = self._sessions.get(session)
        if ends is not None and self._clock.monotonic() >= ends:
            del self._sessions[session]
            ends = None
        return ends is not None


def is_visitors(method: str, path: str) -> bool:
    """Whether a visitor may make this request: ask, and read what an answer cites."""
    return _ROUTES.fullmatch(f"{method} {path}") is not None


def is_screens(method: str, path: str) -> bool:
    """Whether only the kiosk's own screen makes this request: it shows how to join."""
    return _SCREEN_ROUTES.fullmatch(f"{method} {path}") is not None
