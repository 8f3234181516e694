"""PDF through pypdfium2, page by page; a page without a text layer is named, not hidden."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import numpy.typing as npt
import pypdfium2 as pdfium

from appliance.errors import LimitExceededError, NoTextError, ParseFailedError
from appliance.parsers import ocr
from appliance.parsers.base import Block, Limits, ParsedDocument, PartProblem

_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD in fpdfview.h

_OCR_DPI = 200
_OCR_MOST_SIDE = 4000
"""Pixels of the longer side of a page that is read as a picture; A3 at 200 dpi is 3307."""


class PdfParser:
    """``.pdf``; one block a page."""

    format = "pdf"
    suffixes = (".pdf",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        try:
            # A stream, not a name: a member of an archive lies in memory and has none.
            file = open(path, "rb")  # noqa: SIM115, PTH123 - pdfium closes it with the document
            document = pdfium.PdfDocument(file, autoclose=True)
        except pdfium.PdfiumError as error:
            if (
                getattr(error, "err_code", None) == _PASSWORD_ERROR
                or "password" in str(error).lower()
            ):
                raise ParseFailedError("encrypted") from error
            raise ParseFailedError("damaged", format="PDF") from error
        try:
            return self._read(document, limits)
        finally:
            document.close()

    def _read(self, document: pdfium.PdfDocument, limits: Limits) -> ParsedDocument:
        n_pages = len(document)
        if n_pages == 0:
            raise ParseFailedError("damaged", format="PDF")
        if n_pages > limits.max_pages:
            raise LimitExceededError("too_many_pages", n_pages=n_pages, limit=limits.max_pages)
        blocks: list[Block] = []
        problems: list[PartProblem] = []
        n_chars = 0
        recogniser = ocr.Recogniser(limits)
        for number in range(1, n_pages + 1):
            try:
                text, code = self._page(document, number - 1, recogniser)
            except pdfium.PdfiumError:
                text, code = "", "page_damaged"
            n_chars += len(text)
            if n_chars > limits.max_text_chars:
                raise LimitExceededError("too_much_text", limit=limits.max_text_chars)
            if code is not None:
                problems.append(PartProblem(number, code))
            elif text:
                blocks.append(Block(text, page=number))
        if not blocks:
            if problems and all(problem.code == "page_damaged" for problem in problems):
                raise ParseFailedError("damaged", format="PDF")
            if not problems:
                raise NoTextError("empty_document")
            raise NoTextError("scanned", n_pages=n_pages)
        title = (document.get_metadata_value("Title") or "").strip()
        return ParsedDocument(
            self.format,
            (title or blocks[0].text.strip().split("\n")[0])[:120],
            tuple(blocks),
            n_pages=n_pages,
            problems=tuple(problems),
        )

    def _page(
        self, document: pdfium.PdfDocument, index: int, recogniser: ocr.Recogniser
    ) -> tuple[str, str | None]:
        """Return a page's text and why there is none; an empty page is no problem."""
        page = document[index]
        try:
            text_page = page.get_textpage()
            try:
                text = tidy(text_page.get_text_bounded())
            finally:
                text_page.close()
            code = None
            if not text.strip():
                if next(iter(page.get_objects(max_depth=1)), None) is None:
                    return "", None
                code = recogniser.code
            elif is_garbage(text):
                code = "page_garbled"
            if code is None or not recogniser.is_on:
                return ("", code) if code else (text, None)
            seen, trouble = recogniser.text_of(_picture(page))
            # A page of drawings alone has no text to miss.
            return seen, trouble or (code if code == "page_garbled" and not seen else None)
        finally:
            page.close()


def _picture(page: pdfium.PdfPage) -> npt.NDArray[np.uint8]:
    """Return a page as pixels, RGB."""
    scale = min(_OCR_DPI / 72, _OCR_MOST_SIDE / max(*page.get_size(), 1.0))
    bitmap = page.render(scale=scale, rev_byteorder=True)
    try:
        pixels: npt.NDArray[np.uint8] = np.array(bitmap.to_numpy()[:, :, :3])
        return pixels
    finally:
        bitmap.close()


def tidy(text: str) -> str:
    """Undo line breaks that belong to the page, not the text.

    Lines are joined where a sentence goes on: without a space between Chinese characters, with one
    otherwise; a hyphen at a line's end is kept unless a lower-case letter follows.
    """
    text = (
        text.replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\ufffe", "-\n")
        .replace("\x02", "-\n")
    )
    text = re.sub(r"[\x00-\x08\x0b-\x1f]", "", text)
    lines = [line.strip() for line in text.split("\n")]
    out: list[str] = []
    for line in lines:
        if not line:
            out.append("")
            continue
        if out and out[-1] and not _ends_paragraph(out[-1], line):
            previous = out[-1]
            if previous.endswith("-") and line[0].islower():
                out[-1] = previous[:-1] + line
            elif ord(previous[-1]) > 0x2E7F or ord(line[0]) > 0x2E7F:
                out[-1] = previous + line
            else:
                out[-1] = f"{previous} {line}"
        else:
            out.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def _ends_paragraph(previous: str, line: str) -> bool:
    if previous[-1] in "。！？!?；;：:.":
        return True
    if re.match(r"^([-•·*●◆■]|\(?\d{1,3}[.)、]|[一二三四五六七八九十]+、|第.{1,4}[章节条])", line):
        return True
    # A short line is a heading or a table cell, not a line that was broken for width.
    width = sum(2 if ord(char) > 0x2E7F else 1 for char in previous)
    return width < 40


def is_garbage(text: str) -> bool:
    """Whether a text layer is unreadable.

    Fonts without a character map give private or undefined characters; a subset font whose map was
    lost gives control characters, or symbols of many scripts that never stand together.
    """
    sample = [char for char in text if not char.isspace()][:2000]
    if not sample:
        return False
    bad = sum(
        1
        for char in sample
        if char == "\ufffd" or unicodedata.category(char) in ("Co", "Cn", "Cc", "Cs")
    )
    if bad > len(sample) * 0.3:
        return True
    # Readable text is made of letters, digits and marks; a shifted map makes it mostly symbols.
    odd = sum(1 for char in sample if unicodedata.category(char) in ("Sk", "Sm", "So", "Lm", "Mn"))
    return len(sample) >= 50 and odd > len(sample) * 0.5
