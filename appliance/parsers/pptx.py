"""PPTX: slide by slide, the title first; notes belong to their slide."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lxml import etree
from pptx import Presentation
from pptx.oxml.ns import qn
from pptx.slide import Slide

from appliance.errors import LimitExceededError, NoTextError, ParseFailedError
from appliance.parsers import ocr
from appliance.parsers.archive import check_office
from appliance.parsers.base import Block, Limits, ParsedDocument, PartProblem

# What python-pptx lets through from an archive whose parts do not fit together.
_BROKEN = (KeyError, ValueError, AttributeError, TypeError, IndexError, etree.XMLSyntaxError)


class PptxParser:
    """``.pptx``; a slide is a page."""

    format = "pptx"
    suffixes = (".pptx", ".pptm", ".ppsx")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        check_office(path, limits, "PPTX")
        recogniser = ocr.Recogniser(limits)
        blocks: list[Block] = []
        problems: list[PartProblem] = []
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - python-pptx wants a name it can show
                deck = Presentation(file)
            slides = list(deck.slides)
            if len(slides) > limits.max_pages:
                raise LimitExceededError(
                    "too_many_pages", n_pages=len(slides), limit=limits.max_pages
                )
            for n, slide in enumerate(slides, 1):
                found = _slide_blocks(slide, n)
                if not found and (pictures := _pictures(slide)):
                    text, code = recogniser.text_of_images(pictures)
                    if code is not None:
                        problems.append(PartProblem(n, code))
                    elif text:
                        found = [Block(text, page=n)]
                blocks += found
            title = ""
            with contextlib.suppress(*_BROKEN):
                title = (deck.core_properties.title or "").strip()
        except _BROKEN as error:
            raise ParseFailedError("damaged", format="PPTX") from error
        if not blocks:
            if problems:
                raise NoTextError("scanned", n_pages=len(slides))
            raise NoTextError("empty_document")
        if not title or title == "PowerPoint Presentation":
            title = next((b.heading[0] for b in blocks if b.heading), blocks[0].text.split("\n")[0])
        return ParsedDocument(
            self.format, title[:120], tuple(blocks), n_pages=len(slides), problems=tuple(problems)
        )


def _slide_blocks(slide: Slide, n: int) -> list[Block]:
    shape = slide.shapes.title
    title = " ".join(_text_of(shape.element).split()) if shape is not None else ""
    body = [
        text
        for element in _frames(slide.shapes._spTree)  # noqa: SLF001 - shapes in groups too
        if (shape is None or element is not shape.element) and (text := _text_of(element))
    ]
    heading = (title,) if title else ()
    blocks = [Block(title, page=n)] if title and not body else []
    if body:
        blocks.append(Block("\n".join(body), page=n, heading=heading))
    if slide.has_notes_slide:
        frame = slide.notes_slide.notes_text_frame
        notes = _text_of(frame._txBody) if frame is not None else ""  # noqa: SLF001
        if notes:
            blocks.append(Block(notes, page=n, heading=heading))
    return blocks


def _frames(tree: etree._Element) -> Iterator[etree._Element]:
    """Yield what carries text, groups opened, in the order it is stored."""
    stack = list(reversed(tree))
    while stack:
        element = stack.pop()
        if element.tag == qn("p:grpSp"):
            stack.extend(reversed(element))
        elif element.tag in (qn("p:sp"), qn("p:graphicFrame"), qn("p:cxnSp")):
            yield element


def _text_of(element: etree._Element) -> str:
    """Return paragraphs as lines; the cells of a table row share one."""
    lines: list[str] = []
    rows = list(element.iter(qn("a:tr")))
    if rows:
        for row in rows:
            cells = [" ".join(_paragraphs(cell)) for cell in row.iter(qn("a:tc"))]
            if any(cells):
                lines.append(" | ".join(cells))
        return "\n".join(lines)
    return "\n".join(_paragraphs(element))


def _paragraphs(element: etree._Element) -> list[str]:
    found = []
    for paragraph in element.iter(qn("a:p")):
        pieces = [
            (node.text or "") if node.tag == qn("a:t") else " "
            for node in paragraph.iter(qn("a:t"), qn("a:br"))
        ]
        text = " ".join("".join(pieces).split())
        if text:
            found.append(text)
    return found


def _pictures(slide: Slide) -> list[bytes]:
    found = []
    for element in slide.shapes._spTree.iter(qn("a:blip")):  # noqa: SLF001
        relation = element.get(qn("r:embed"))
        if relation and relation in slide.part.rels and not slide.part.rels[relation].is_external:
            found.append(slide.part.related_part(relation).blob)
    return found
