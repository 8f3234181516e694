"""Server-sent events: framing only. Reference: the HTML standard, "Server-sent events".

    event: delta                our API; OpenAI's streams have no event line
    data: {"text": "..."}
    (an empty line)

JSON escapes line breaks, so that one data line is always enough.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DONE = b"data: [DONE]\n\n"
"""What ends an OpenAI stream."""

KEEP_ALIVE = b": waiting\n\n"
"""A comment: shows proxies and clients that the connection lives."""

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}


def comment(text: str) -> bytes:
    """Return a line for people and proxies; clients skip it."""
    return b": " + text.encode("utf-8") + b"\n\n"


def event(name: str, body: Mapping[str, Any]) -> bytes:
    """Return one named event."""
    return b"event: " + name.encode("ascii") + b"\n" + data(body)


def data(body: Mapping[str, Any]) -> bytes:
    """Return one event without a name."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8") + b"\n\n"
