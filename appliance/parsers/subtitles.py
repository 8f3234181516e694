"""Subtitles: what is said, with the time it is said at."""

from __future__ import annotations

import html
import re

from appliance.errors import NoTextError, ParseFailedError
from appliance.parsers.base import Block, Limits, ParsedDocument
from appliance.parsers.plain import read_text

_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{2})[,.](\d{1,3})"
_ARROW = re.compile(rf"^\s*{_TIME}\s*-->\s*{_TIME}")
_TAG = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")
_BLOCK_CHARS = 300
_BLOCK_S = 60.0


class SubtitleParser:
    """``.srt`` and ``.vtt``; cues are gathered to blocks of up to a minute."""

    format = "srt"
    suffixes = (".srt", ".vtt")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:  # noqa: ARG002
        """See ``Parser.parse``."""
        decoded = read_text(path)
        cues = _cues(decoded.text.split("\n"))
        if not cues:
            if "-->" not in decoded.text:
                raise ParseFailedError("damaged", format="SRT/VTT")
            raise NoTextError("empty_document")
        blocks: list[Block] = []
        lines: list[str] = []
        begin = end = 0.0
        for start, stop, text in [*cues, (float("inf"), 0.0, "")]:
            is_full = sum(map(len, lines)) + len(text) > _BLOCK_CHARS or stop - begin > _BLOCK_S
            if lines and (is_full or start == float("inf")):
                blocks.append(Block("\n".join(lines), place=f"{clock(begin)}-{clock(end)}"))
                lines = []
            if not lines:
                begin = start
            # Captions that roll up say a line again in the next cue.
            new = [line for line in text.split("\n") if not lines or line != lines[-1]]
            lines += [line for line in new if line]
            end = max(end, stop)
        is_vtt = decoded.text.lstrip("\ufeff").startswith("WEBVTT")
        title = blocks[0].text.split("\n")[0]
        kind = "vtt" if is_vtt else self.format
        return ParsedDocument(kind, title[:120], tuple(blocks), encoding=decoded.encoding)


def _cues(lines: list[str]) -> list[tuple[float, float, str]]:
    """Return (start, end, text) in seconds; notes, styles and cue names are no text."""
    cues: list[tuple[float, float, str]] = []
    n = 0
    while n < len(lines):
        arrow = _ARROW.match(lines[n])
        n += 1
        if arrow is None:
            continue
        start, stop = _seconds(arrow.groups()[:4]), _seconds(arrow.groups()[4:])
        said: list[str] = []
        while n < len(lines) and lines[n].strip() and "-->" not in lines[n]:
            said.append(" ".join(html.unescape(_TAG.sub("", lines[n])).split()))
            n += 1
        text = "\n".join(line for line in said if line)
        if text:
            cues.append((start, stop, text))
    return cues


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = parts
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return whole + int((fraction or "0").ljust(3, "0")) / 1000


def clock(seconds: float) -> str:
    """Return ``hh:mm:ss``."""
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
