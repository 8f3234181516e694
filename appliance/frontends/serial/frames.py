"""Frames: one JSON object per line, with an optional length and CRC-16 behind it; pure.

    {"op":"ask","id":"7","q":"..."}
    {"op":"ask","id":"7","q":"..."}#32:1d0f

The trailer is ``#``, the number of bytes of the JSON text in decimal digits, ``:``, and its
CRC-16/CCITT-FALSE (polynomial 0x1021, start 0xFFFF, not reflected) in four hexadecimal digits. A
request with a trailer is answered by frames with trailers. docs/serial-protocol.md is the contract.
"""

from __future__ import annotations

import binascii
import json
import re
from dataclasses import dataclass
from typing import Any

from appliance.errors import FrontendError

PROTOCOL_VERSION = 1
LONGEST_FRAME = 64 * 1024
OPS = ("hello", "ask", "cancel", "search", "embed", "status")

_TRAILER = re.compile(rb"#(\d{1,7}):([0-9A-Fa-f]{4})$")
_ID_CHARS = 64


class BadFrameError(FrontendError):
    """A line that began like a frame cannot be used; ``frame_id`` is its id if it could be read."""

    default_code = "frame_invalid"

    def __init__(self, code: str, /, frame_id: str | None = None, **facts: str | int) -> None:
        super().__init__(code, **facts)
        self.frame_id = frame_id


@dataclass(frozen=True)
class Request:
    """A request; ``has_trailer`` says that its answers carry one too."""

    op: str
    id: str | None
    fields: dict[str, Any]
    has_trailer: bool


def crc16(data: bytes) -> int:
    """Return CRC-16/CCITT-FALSE of ``data``; of ``123456789`` it is 0x29B1."""
    return binascii.crc_hqx(data, 0xFFFF)


def parse(line: bytes) -> Request:
    """Return the request in a line without its line break.

    Raises:
        BadFrameError: it is too long, damaged, no JSON object, or asks for something unknown.
    """
    if len(line) > LONGEST_FRAME:
        raise BadFrameError("frame_too_long", limit=LONGEST_FRAME)
    text = line.strip()
    trailer = _TRAILER.search(text)
    if trailer is not None and text[: trailer.start()].endswith(b"}"):
        text = text[: trailer.start()]
        if len(text) != int(trailer[1]) or crc16(text) != int(trailer[2], 16):
            raise BadFrameError("frame_damaged")
    else:
        trailer = None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFrameError("frame_invalid", cause=str(error)[:200]) from error
    if not isinstance(said, dict):
        raise BadFrameError("frame_invalid", cause="not an object")
    frame_id = said.pop("id", None)
    if isinstance(frame_id, int) and not isinstance(frame_id, bool):
        frame_id = str(frame_id)
    if frame_id is not None and not (isinstance(frame_id, str) and len(frame_id) <= _ID_CHARS):
        raise BadFrameError("frame_field", field="id", allowed=f"text of {_ID_CHARS} characters")
    op = said.pop("op", None)
    if op not in OPS:
        raise BadFrameError("frame_unknown_op", frame_id, op=str(op)[:40], allowed=", ".join(OPS))
    return Request(op, frame_id, said, trailer is not None)


def encode(value: dict[str, Any], *, with_trailer: bool = False) -> bytes:
    """Return one line, its CR LF included; text is UTF-8, control characters are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    tail = b"#%d:%04x" % (len(text), crc16(text)) if with_trailer else b""
    return text + tail + b"\r\n"


def text_field(request: Request, name: str, *, limit: int = 8000) -> str:
    """Return a field that must be text.

    Raises:
        BadFrameError: it is missing, empty, too long or no text.
    """
    value = request.fields.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        allowed = f"text of 1 to {limit} characters"
        raise BadFrameError("frame_field", request.id, field=name, allowed=allowed)
    return value
