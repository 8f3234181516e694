"""Plain text and Markdown: lines are the provenance, headings too where the format has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from appliance.errors import NoTextError, ParseFailedError
from appliance.parsers.base import Block, Limits, ParsedDocument
from appliance.text.encoding import Decoded, decode

_ATX = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_SETEXT = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")


def read_text(path: str) -> Decoded:
    """Return a text file's content.

    Raises:
        ParseFailedError: ``not_text`` when the bytes are no text in any encoding we know.
        NoTextError: only white space.
    """
    decoded = decode(Path(path).read_bytes())
    if decoded is None:
        raise ParseFailedError("not_text")
    if not decoded.text.strip():
        raise NoTextError("empty_document")
    return Decoded(
        decoded.text.replace("\r\n", "\n").replace("\r", "\n"), decoded.encoding, decoded.n_replaced
    )


def paragraphs(lines: list[str], first_line: int) -> Iterator[tuple[str, int, int]]:
    """Yield (text, first line, last line) of runs between blank lines; lines count from 1."""
    start: int | None = None
    for n, line in enumerate([*lines, ""]):
        if line.strip():
            if start is None:
                start = n
        elif start is not None:
            yield "\n".join(lines[start:n]), first_line + start, first_line + n - 1
            start = None


class PlainParser:
    """``.txt`` and what else is text without structure."""

    format = "txt"
    suffixes = (".txt", ".text", ".log")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:  # noqa: ARG002
        """See ``Parser.parse``."""
        decoded = read_text(path)
        blocks = tuple(
            Block(text, line_from=start, line_to=end)
            for text, start, end in paragraphs(decoded.text.split("\n"), 1)
        )
        title = next(line.strip() for line in decoded.text.split("\n") if line.strip())
        return ParsedDocument(self.format, title[:120], blocks, encoding=decoded.encoding)


class MarkdownParser:
    """Markdown: ATX and setext headings make the heading path; fenced code is never a heading."""

    format = "md"
    suffixes = (".md", ".markdown")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:  # noqa: ARG002
        """See ``Parser.parse``."""
        decoded = read_text(path)
        lines = decoded.text.split("\n")
        headings: list[tuple[int, str]] = []
        blocks: list[Block] = []
        body: list[str] = []
        body_start = 1

        def flush() -> None:
            trail = tuple(text for _, text in headings)
            blocks.extend(
                Block(text, heading=trail, line_from=start, line_to=end)
                for text, start, end in paragraphs(body, body_start)
            )
            body.clear()

        fence: str | None = None
        n = 0
        while n < len(lines):
            line = lines[n]
            mark = _FENCE.match(line)
            if mark and (fence is None or mark.group(1).startswith(fence)):
                fence = mark.group(1) if fence is None else None
            heading = _heading(lines, n) if fence is None and not mark else None
            if heading is None:
                if not body:
                    body_start = n + 1
                body.append(line)
                n += 1
                continue
            flush()
            level, text, used = heading
            headings = [h for h in headings if h[0] < level]
            headings.append((level, text))
            n += used
        flush()
        if not blocks:
            # A file of headings alone still says something.
            blocks = [Block(text, line_from=1, line_to=len(lines)) for _, text in headings]
        title = next((b.heading[0] for b in blocks if b.heading), blocks[0].text.split("\n")[0])
        return ParsedDocument(self.format, title[:120], tuple(blocks), encoding=decoded.encoding)


def _heading(lines: list[str], n: int) -> tuple[int, str, int] | None:
    """Return (level, text, lines used) when a heading starts at line ``n``."""
    atx = _ATX.match(lines[n])
    if atx and atx.group(2):
        return len(atx.group(1)), atx.group(2).strip(), 1
    if (
        n + 1 < len(lines)
        and lines[n].strip()
        and not lines[n].lstrip().startswith((">", "-", "*", "|"))
    ):
        underline = _SETEXT.match(lines[n + 1])
        is_alone = n == 0 or not lines[n - 1].strip()
        if underline and is_alone:
            return (1 if underline.group(1)[0] == "=" else 2), lines[n].strip(), 2
    return None
