"""One question through the client: waits for a loading model, shows how far it is, streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance.client import Answering, Client, RemoteError
from appliance.frontends.terminal.layout import clean
from appliance.messages.screen import say

_POLL_S = 0.5

Show = Callable[[str], None]
Citations = Sequence[Mapping[str, Any]]


def run_turn(
    client: Client,
    question: str,
    options: Mapping[str, str | bool | None],
    *,
    lang: str,
    show: Show,
    piece: Show,
    evidence: Callable[[Citations], None] = lambda _citations: None,
    started: Callable[[Answering], None] = lambda _answer: None,
) -> dict[str, Any]:
    """Ask and return the answer's JSON.

    A model that is still loading is waited for. Leaving by any exception (Ctrl-C) hangs up, which
    stops the answer in the daemon.

    Args:
        client: of the running daemon.
        question: what is asked.
        options: fields of ``POST /api/ask``.
        lang: language of what ``show`` gets.
        show: called with a line on how far it is.
        piece: called with the answer's text as it grows, without control characters.
        evidence: called with the passages before the model has read them.
        started: called with the running answer, which another thread may stop.

    Raises:
        RemoteError: the daemon refused.
        DaemonUnreachableError: it went away.
    """
    while True:
        try:
            return _ask(client, question, options, lang, show, piece, evidence, started)
        except RemoteError as error:
            if error.code != "engine_stopped" or error.facts.get("state") != "loading":
                raise
        evidence = _already_shown
        show(say("model_loading", lang))
        while client.get("/api/status")["models"]["generation"]["state"] == "loading":
            time.sleep(_POLL_S)


def _ask(
    client: Client,
    question: str,
    options: Mapping[str, str | bool | None],
    lang: str,
    show: Show,
    piece: Show,
    evidence: Callable[[Citations], None],
    started: Callable[[Answering], None],
) -> dict[str, Any]:
    is_begun = False
    with client.ask(question, **options) as events:
        started(events)
        for kind, event in events:
            if kind == "delta":
                is_begun = True
                piece(clean(event["text"]))
            elif kind == "evidence":
                evidence(event["citations"])
            elif kind == "reading":
                percent = 100 * event["done"] // max(event["total"], 1)
                show(say("reading", lang, percent=percent))
            elif kind == "queued":
                show(_queued(event, lang))
            elif kind == "answer":
                if not is_begun:
                    piece(clean(event["answer"]))
                return event
    raise AssertionError("a stream ends with an answer or raises")


def _queued(event: Mapping[str, Any], lang: str) -> str:
    if event["wait_s"]:
        wait_s = round(event["wait_s"])
        return say("queued_eta", lang, position=event["position"], wait_s=wait_s)
    return say("queued", lang, position=event["position"])


def _already_shown(_citations: Citations) -> None:
    """The passages were shown when the question was asked the first time."""
