"""Jupyter notebooks: cell by cell under the headings of their text cells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from appliance.errors import NoTextError, ParseFailedError
from appliance.parsers.base import Block, Limits, ParsedDocument
from appliance.parsers.plain import read_text

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)[ \t#]*$")
_OUTPUT_CHARS = 2000
"""Longest output that is kept of one cell; what is left out is said in the text."""


class NotebookParser:
    """``.ipynb``, format 4 (nbformat's schema)."""

    format = "ipynb"
    suffixes = (".ipynb",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:  # noqa: ARG002
        """See ``Parser.parse``."""
        decoded = read_text(path)
        try:
            tree = json.loads(decoded.text)
            cells = [cell for cell in tree["cells"] if isinstance(cell, dict)]
        except (ValueError, KeyError, TypeError) as error:
            raise ParseFailedError("damaged", format="IPYNB") from error
        blocks = list(_blocks(cells))
        if not blocks:
            raise NoTextError("empty_document")
        title = next((b.heading[0] for b in blocks if b.heading), blocks[0].text.split("\n")[0])
        return ParsedDocument(self.format, title[:120], tuple(blocks), encoding=decoded.encoding)


def _blocks(cells: list[dict[str, Any]]) -> Iterator[Block]:
    headings: list[tuple[int, str]] = []
    for n, cell in enumerate(cells, 1):
        place = f"Cell {n}"
        text = _joined(cell.get("source"))
        if cell.get("cell_type") != "markdown":
            parts = [text, *(_output(out) for out in cell.get("outputs") or [])]
            whole = "\n".join(part for part in parts if part.strip()).strip()
            if whole:
                yield Block(whole, heading=tuple(h for _, h in headings), place=place)
            continue
        body: list[str] = []
        is_said = False
        for line in [*text.split("\n"), None]:
            match = _HEADING.match(line) if line is not None else None
            if line is not None and match is None:
                body.append(line)
                continue
            if whole := "\n".join(body).strip():
                yield Block(whole, heading=tuple(h for _, h in headings), place=place)
                is_said = True
            body = []
            if match is not None:
                level = len(match.group(1))
                headings = [h for h in headings if h[0] < level]
                headings.append((level, match.group(2)))
        if not is_said and text.strip():
            # A cell of headings alone still says something.
            yield Block(text.strip().lstrip("# "), place=place)


def _output(output: object) -> str:
    if not isinstance(output, dict):
        return ""
    content = output.get("data")
    text = _joined(output.get("text"))
    if not text and isinstance(content, dict):
        text = _joined(content.get("text/plain"))
    if len(text) <= _OUTPUT_CHARS:
        return text
    return f"{text[:_OUTPUT_CHARS]}\n[... {len(text) - _OUTPUT_CHARS} characters of output]"


def _joined(source: object) -> str:
    if isinstance(source, list):
        return "".join(piece for piece in source if isinstance(piece, str))
    return source if isinstance(source, str) else ""
