"""OpenDocument text and slides, read from their XML (the format: OASIS ODF 1.3, part 3)."""

from __future__ import annotations

import re
import zipfile

from lxml import etree

from appliance.errors import NoTextError, ParseFailedError
from appliance.parsers.archive import BROKEN_ZIP, check_archive, read_xml
from appliance.parsers.base import Block, Limits, ParsedDocument, PartProblem

_NS = {
    "office": "urn:oasis:names:tc:opendocument:xmlns:office:1.0",
    "text": "urn:oasis:names:tc:opendocument:xmlns:text:1.0",
    "table": "urn:oasis:names:tc:opendocument:xmlns:table:1.0",
    "draw": "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0",
    "style": "urn:oasis:names:tc:opendocument:xmlns:style:1.0",
    "presentation": "urn:oasis:names:tc:opendocument:xmlns:presentation:1.0",
    "manifest": "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0",
    "dc": "http://purl.org/dc/elements/1.1/",
}


def _q(name: str) -> str:
    prefix, _, local = name.partition(":")
    return f"{{{_NS[prefix]}}}{local}"


_UNSEEN = frozenset(
    map(_q, ("text:tracked-changes", "office:annotation", "text:hidden-text", "office:forms"))
)
_MOST_REPEATS = 100
"""Times a repeated cell or row is written; sheets repeat empty ones to the edge."""


def demand_open(path: str) -> bool:
    """Return whether an archive is OpenDocument.

    Raises:
        ParseFailedError: ``encrypted`` when it is, and locked by a password.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if "META-INF/manifest.xml" not in archive.namelist():
                return False
            root = read_xml(archive, "META-INF/manifest.xml")
    except (*BROKEN_ZIP, etree.XMLSyntaxError) as error:
        raise ParseFailedError("damaged", format="ODF") from error
    if root.find(f".//{_q('manifest:encryption-data')}") is not None:
        raise ParseFailedError("encrypted")
    return True


class OdfParser:
    """``.odt`` and ``.odp``; a slide is a page."""

    format = "odt"
    suffixes = (".odt", ".odp", ".ott", ".otp")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        check_archive(path, limits, "ODF")
        demand_open(path)
        try:
            with zipfile.ZipFile(path) as archive:
                body = read_xml(archive, "content.xml").find(_q("office:body"))
                title = _title(archive)
        except (*BROKEN_ZIP, KeyError, etree.XMLSyntaxError) as error:
            raise ParseFailedError("damaged", format="ODF") from error
        if body is None or len(body) == 0:
            raise ParseFailedError("damaged", format="ODF")
        slides = body.find(_q("office:presentation"))
        n_pages: int | None = None
        problems: list[PartProblem] = []
        if slides is None:
            blocks = _text_blocks(body)
        else:
            blocks, n_pages, problems = _slide_blocks(slides)
        if not blocks:
            if n_pages and problems:
                raise NoTextError("scanned", n_pages=n_pages)
            raise NoTextError("empty_document")
        if not title:
            title = next((b.heading[0] for b in blocks if b.heading), blocks[0].text.split("\n")[0])
        return ParsedDocument(
            self.format if slides is None else "odp",
            title[:120],
            tuple(blocks),
            n_pages=n_pages,
            problems=tuple(problems),
        )


def _title(archive: zipfile.ZipFile) -> str:
    if "meta.xml" not in archive.namelist():
        return ""
    found = read_xml(archive, "meta.xml").find(f".//{_q('dc:title')}")
    return (found.text or "").strip() if found is not None else ""


def _text_blocks(body: etree._Element) -> list[Block]:
    headings: list[tuple[int, str]] = []
    blocks: list[Block] = []
    stack = list(reversed(body))
    while stack:
        element = stack.pop()
        if not isinstance(element.tag, str) or element.tag in _UNSEEN:
            continue
        if element.tag == _q("text:h"):
            text = " ".join(_text(element).split())
            if text:
                outline = element.get(_q("text:outline-level"), "1")
                level = int(outline) if re.fullmatch(r"\d{1,2}", outline) else 1
                headings = [h for h in headings if h[0] < level]
                headings.append((level, text))
            continue
        if element.tag in (_q("text:p"), _q("table:table")):
            is_table = element.tag == _q("table:table")
            text = _table_text(element) if is_table else _text(element).strip()
            if text:
                blocks.append(Block(text, heading=tuple(h for _, h in headings)))
            continue
        stack.extend(reversed(element))
    return blocks or [Block(text) for _, text in headings]


def _slide_blocks(
    slides: etree._Element,
) -> tuple[list[Block], int, list[PartProblem]]:
    blocks: list[Block] = []
    problems: list[PartProblem] = []
    pages = slides.findall(_q("draw:page"))
    for n, page in enumerate(pages, 1):
        title, body = "", []
        for frame in page:
            if not isinstance(frame.tag, str) or frame.tag in _UNSEEN:
                continue
            text = _frame_text(frame)
            if frame.get(_q("presentation:class")) == "title" and not title:
                title = " ".join(text.split())
            elif text:
                body.append(text)
        if body:
            blocks.append(Block("\n".join(body), page=n, heading=(title,) if title else ()))
        elif title:
            blocks.append(Block(title, page=n))
        elif page.find(f".//{_q('draw:image')}") is not None:
            problems.append(PartProblem(n, "page_picture"))
    return blocks, len(pages), problems


def _frame_text(frame: etree._Element) -> str:
    tables = list(frame.iter(_q("table:table")))
    if tables:
        return "\n".join(_table_text(table) for table in tables)
    lines = [_text(p).strip() for p in frame.iter(_q("text:p"), _q("text:h"))]
    return "\n".join(line for line in lines if line)


def _table_text(table: etree._Element) -> str:
    rows = []
    for row in table.iter(_q("table:table-row")):
        cells: list[str] = []
        for cell in row:
            if cell.tag not in (_q("table:table-cell"), _q("table:covered-table-cell")):
                continue
            parts = (_text(p) for p in cell.iter(_q("text:p"), _q("text:h")))
            repeat = cell.get(_q("table:number-columns-repeated"), "1")
            n = min(int(repeat), _MOST_REPEATS) if repeat.isdecimal() else 1
            cells += [" ".join(" ".join(parts).split())] * n
        while cells and not cells[-1]:
            cells.pop()
        if any(cells):
            rows.append(" | ".join(cells))
    return "\n".join(rows)


def _text(element: etree._Element) -> str:
    """Return a paragraph's text; marks for spaces, tabs and breaks are what they mean."""
    pieces: list[str] = []
    stack: list[etree._Element | str] = [element]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            pieces.append(node)
            continue
        is_seen = isinstance(node.tag, str) and node.tag not in _UNSEEN
        if node is not element and node.tail:
            stack.append(node.tail)
        if not is_seen:
            continue
        if node.tag == _q("text:s"):
            count = node.get(_q("text:c"), "1")
            pieces.append(" " * (min(int(count), _MOST_REPEATS) if count.isdecimal() else 1))
        elif node.tag == _q("text:tab"):
            pieces.append(" ")
        elif node.tag == _q("text:line-break"):
            pieces.append("\n")
        stack.extend(reversed(node))
        if node.text:
            stack.append(node.text)
    return "".join(pieces)
