"""DOCX: paragraphs, lists and tables in reading order, under their headings."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator

from docx import Document
from docx.document import Document as DocxDocument
from docx.oxml.ns import qn
from docx.table import Table
from docx.text.paragraph import Paragraph
from lxml import etree

from appliance.errors import LimitExceededError, NoTextError, ParseFailedError
from appliance.parsers.base import Block, Limits, ParsedDocument

_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HEADING_STYLE = re.compile(r"^(?:heading|标题)\s*([1-9])$", re.IGNORECASE)
_READ_BYTES = 1 << 20


def check_archive(path: str, limits: Limits) -> None:
    """Unpack every member once without keeping it, and refuse bombs before a library does.

    The sizes an archive declares are the attacker's, so the bytes are counted as they come out.

    Raises:
        LimitExceededError: ``archive_bomb`` when more than ``max_inflated_bytes`` come out.
        ParseFailedError: not a zip archive, damaged, or encrypted.
    """
    total = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.flag_bits & 1:
                    raise ParseFailedError("encrypted")
                with archive.open(info) as member:
                    while block := member.read(_READ_BYTES):
                        total += len(block)
                        if total > limits.max_inflated_bytes:
                            raise LimitExceededError(
                                "archive_bomb", limit=limits.max_inflated_bytes
                            )
                        # Office never writes a document type; entity bombs need one.
                        if (
                            info.filename.endswith((".xml", ".rels"))
                            and b"<!DOCTYPE" in block[:4096]
                        ):
                            raise ParseFailedError("damaged", format="DOCX")
    except (
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
    ) as error:
        raise ParseFailedError("damaged", format="DOCX") from error


class DocxParser:
    """``.docx``."""

    format = "docx"
    suffixes = (".docx",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        with open(path, "rb") as file:  # noqa: PTH123 - the path may not be valid Unicode
            if file.read(8) == _OLE_MAGIC:
                # Word stores a password-protected DOCX as an OLE container.
                raise ParseFailedError("encrypted")
        check_archive(path, limits)
        try:
            document = Document(path)
            blocks = list(_blocks(document))
        except (KeyError, ValueError, AttributeError, etree.XMLSyntaxError) as error:
            raise ParseFailedError("damaged", format="DOCX") from error
        if not blocks:
            raise NoTextError("empty_document")
        title = (document.core_properties.title or "").strip()
        if not title:
            title = next((b.heading[0] for b in blocks if b.heading), blocks[0].text.split("\n")[0])
        return ParsedDocument(self.format, title[:120], tuple(blocks))


def _blocks(document: DocxDocument) -> Iterator[Block]:
    headings: list[tuple[int, str]] = []
    for child in document.element.body.iterchildren():
        trail = tuple(text for _, text in headings)
        if child.tag == qn("w:p"):
            paragraph = Paragraph(child, document)
            text = paragraph.text.strip()
            if not text:
                continue
            level = _level(paragraph)
            if level is not None:
                headings = [h for h in headings if h[0] < level]
                headings.append((level, text))
            else:
                yield Block(text, heading=trail)
        elif child.tag == qn("w:tbl"):
            text = _table_text(Table(child, document))
            if text:
                yield Block(text, heading=trail)
    if headings and len(headings) == 1 and not document.paragraphs:
        yield Block(headings[0][1])


def _level(paragraph: Paragraph) -> int | None:
    name = (paragraph.style.name or "") if paragraph.style is not None else ""
    if name.lower() in ("title", "标题"):
        return 0
    match = _HEADING_STYLE.match(name)
    return int(match.group(1)) if match else None


def _table_text(table: Table) -> str:
    """One line a row, cells separated by `` | ``; merged cells appear once."""
    rows: list[str] = []
    for row in table.rows:
        cells: list[str] = []
        seen: set[int] = set()
        for cell in row.cells:
            if id(cell._tc) in seen:  # noqa: SLF001 - the only identity of a merged cell
                continue
            seen.add(id(cell._tc))  # noqa: SLF001
            cells.append(" ".join(cell.text.split()))
        if any(cells):
            rows.append(" | ".join(cells))
    return "\n".join(rows)
