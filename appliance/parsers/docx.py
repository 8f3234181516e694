"""DOCX: paragraphs, lists and tables in reading order, under their headings."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from docx import Document
from docx.document import Document as DocxDocument
from docx.oxml.ns import qn
from docx.text.paragraph import Paragraph
from lxml import etree

from appliance.errors import NoTextError, ParseFailedError
from appliance.parsers.archive import check_office
from appliance.parsers.base import Block, Limits, ParsedDocument

_HEADING_STYLE = re.compile(r"^(?:heading|标题)\s*([1-9])$", re.IGNORECASE)

# What python-docx lets through from an archive whose parts do not fit together.
_BROKEN = (KeyError, ValueError, AttributeError, TypeError, IndexError, etree.XMLSyntaxError)

_CONTAINERS = frozenset(
    qn(tag) for tag in ("w:sdt", "w:sdtContent", "w:customXml", "w:smartTag", "w:ins", "w:moveTo")
)
_MC_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_UNSEEN = frozenset(
    [*(qn(tag) for tag in ("w:del", "w:moveFrom", "w:sdtPr", "w:pPr", "w:rPr")), _MC_FALLBACK]
)
_MARKS = {
    qn("w:tab"): " ",
    qn("w:br"): "\n",
    qn("w:cr"): "\n",
    qn("w:noBreakHyphen"): "-",
}


class DocxParser:
    """``.docx``."""

    format = "docx"
    suffixes = (".docx",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        check_office(path, limits, "DOCX")
        try:
            document = Document(path)
            blocks = list(_blocks(document))
        except _BROKEN as error:
            raise ParseFailedError("damaged", format="DOCX") from error
        if not blocks:
            raise NoTextError("empty_document")
        title = ""
        # Some programs file the properties under a wrong type; the text is good all the same.
        with contextlib.suppress(*_BROKEN):
            title = (document.core_properties.title or "").strip()
        if not title:
            title = next((b.heading[0] for b in blocks if b.heading), blocks[0].text.split("\n")[0])
        return ParsedDocument(self.format, title[:120], tuple(blocks))


def _blocks(document: DocxDocument) -> Iterator[Block]:
    headings: list[tuple[int, str]] = []
    is_empty = True
    for child in _parts(document.element.body):
        trail = tuple(text for _, text in headings)
        if child.tag == qn("w:p"):
            text = _text(child)
            if not text:
                continue
            level = _level(Paragraph(child, document))
            if level is not None:
                headings = [h for h in headings if h[0] < level]
                headings.append((level, " ".join(text.split())))
                continue
        else:
            text = _table_text(child)
        if text:
            is_empty = False
            yield Block(text, heading=trail)
    if is_empty:
        # A file of headings alone still says something.
        yield from (Block(text) for _, text in headings)


def _parts(parent: etree._Element) -> Iterator[etree._Element]:
    """Yield paragraphs and tables in reading order, also those inside content controls."""
    for child in parent.iterchildren():
        if child.tag in (qn("w:p"), qn("w:tbl")):
            yield child
        elif child.tag in _CONTAINERS:
            yield from _parts(child)


def _text(element: etree._Element) -> str:
    """Return what a reader sees of a paragraph or cell.

    That is more than its runs: hyperlinks, fields, content controls, insertions that nobody has
    accepted yet and text boxes count, deleted and hidden text does not. A drawing is stored twice,
    for new and old programs; the new form is read.
    """
    pieces: list[str] = []
    # Depth first without recursion: tables nest as deep as an attacker likes.
    stack: list[tuple[etree._Element, bool]] = [(element, False)]
    while stack:
        node, is_end = stack.pop()
        if is_end:
            pieces.append("\n")
            continue
        tag = node.tag
        if tag in _UNSEEN:
            continue
        if tag == qn("w:r") and _is_hidden(node):
            continue
        if tag == qn("w:t"):
            pieces.append(node.text or "")
        elif tag in _MARKS:
            pieces.append(_MARKS[tag])
        else:
            if tag == qn("w:p") and node is not element:
                stack.append((node, True))
            stack.extend((child, False) for child in reversed(node))
    lines = (" ".join(line.split()) for line in "".join(pieces).split("\n"))
    return "\n".join(line for line in lines if line)


def _is_hidden(run: etree._Element) -> bool:
    mark = run.find(f"{qn('w:rPr')}/{qn('w:vanish')}")
    return mark is not None and mark.get(qn("w:val")) not in ("0", "false", "off")


def _level(paragraph: Paragraph) -> int | None:
    name = (paragraph.style.name or "") if paragraph.style is not None else ""
    if name.lower() in ("title", "标题"):
        return 0
    match = _HEADING_STYLE.match(name)
    return int(match.group(1)) if match else None


def _table_text(table: etree._Element) -> str:
    """One line a row, cells separated by `` | ``.

    A cell merged over several rows is said in each of them, so that a row makes sense by itself.
    """
    rows: list[str] = []
    above: dict[int, str] = {}
    for row in _members(table, "w:tr"):
        cells: list[str] = []
        column = 0
        for cell in _members(row, "w:tc"):
            merge = cell.find(f"{qn('w:tcPr')}/{qn('w:vMerge')}")
            if merge is not None and merge.get(qn("w:val")) != "restart":
                text = above.get(column, "")
            else:
                text = above[column] = " ".join(_text(cell).split())
            cells.append(text)
            span = cell.find(f"{qn('w:tcPr')}/{qn('w:gridSpan')}")
            width = span.get(qn("w:val"), "1") if span is not None else "1"
            column += int(width) if width.isdecimal() else 1
        if any(cells):
            rows.append(" | ".join(cells))
    return "\n".join(rows)


def _members(parent: etree._Element, tag: str) -> Iterator[etree._Element]:
    """Yield a table's rows or a row's cells, also those inside content controls."""
    for child in parent.iterchildren():
        if child.tag == qn(tag):
            yield child
        elif child.tag in _CONTAINERS:
            yield from _members(child, tag)
