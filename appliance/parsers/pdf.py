"""PDF through pypdfium2, page by page; a page without a text layer is named, not hidden."""

from __future__ import annotations

import re

import pypdfium2 as pdfium

from appliance.errors import LimitExceededError, NoTextError, ParseFailedError
from appliance.parsers.base import Block, Limits, PageProblem, ParsedDocument

_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD in fpdfview.h


class PdfParser:
    """``.pdf``; one block a page."""

    format = "pdf"
    suffixes = (".pdf",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        try:
            document = pdfium.PdfDocument(path)
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
        problems: list[PageProblem] = []
        n_chars = 0
        for number in range(1, n_pages + 1):
            try:
                text = self._page_text(document, number - 1)
            except pdfium.PdfiumError:
                problems.append(PageProblem(number, "page_damaged"))
                continue
            n_chars += len(text)
            if n_chars > limits.max_text_chars:
                raise LimitExceededError("too_much_text", limit=limits.max_text_chars)
            if not text.strip():
                problems.append(PageProblem(number, "page_scanned"))
            elif _is_garbage(text):
                problems.append(PageProblem(number, "page_garbled"))
            else:
                blocks.append(Block(text, page=number))
        if not blocks:
            if all(problem.code == "page_damaged" for problem in problems):
                raise ParseFailedError("damaged", format="PDF")
            raise NoTextError("scanned", n_pages=n_pages)
        title = (document.get_metadata_value("Title") or "").strip()
        return ParsedDocument(
            self.format,
            (title or blocks[0].text.strip().split("\n")[0])[:120],
            tuple(blocks),
            n_pages=n_pages,
            problems=tuple(problems),
        )

    def _page_text(self, document: pdfium.PdfDocument, index: int) -> str:
        page = document[index]
        try:
            text_page = page.get_textpage()
            try:
                return tidy(text_page.get_text_bounded())
            finally:
                text_page.close()
        finally:
            page.close()


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


def _is_garbage(text: str) -> bool:
    """Whether a text layer is unreadable: fonts without a character map give these."""
    sample = [char for char in text if not char.isspace()][:2000]
    bad = sum(
        1 for char in sample if char == "\ufffd" or 0xE000 <= ord(char) <= 0xF8FF or ord(char) < 32
    )
    return bool(sample) and bad > len(sample) * 0.3
