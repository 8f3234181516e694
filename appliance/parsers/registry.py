"""Which parser reads a file: its first bytes decide where they are certain, else its name."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import PurePath

from appliance.errors import UnsupportedFormatError
from appliance.parsers.archive import BROKEN_ZIP, OLE_MAGIC
from appliance.parsers.base import Parser

# Imported on first use: a worker that reads text files never loads a PDF library.
_PARSERS: dict[str, tuple[str, str]] = {
    ".txt": ("plain", "PlainParser"),
    ".text": ("plain", "PlainParser"),
    ".log": ("plain", "PlainParser"),
    ".md": ("plain", "MarkdownParser"),
    ".markdown": ("plain", "MarkdownParser"),
    ".html": ("html", "HtmlParser"),
    ".htm": ("html", "HtmlParser"),
    ".xhtml": ("html", "HtmlParser"),
    ".pdf": ("pdf", "PdfParser"),
    ".docx": ("docx", "DocxParser"),
    ".docm": ("docx", "DocxParser"),
    ".pptx": ("pptx", "PptxParser"),
    ".pptm": ("pptx", "PptxParser"),
    ".ppsx": ("pptx", "PptxParser"),
    ".xlsx": ("tables", "SheetParser"),
    ".xlsm": ("tables", "SheetParser"),
    ".xlsb": ("tables", "SheetParser"),
    ".xls": ("tables", "SheetParser"),
    ".ods": ("tables", "SheetParser"),
    ".csv": ("tables", "CsvParser"),
    ".tsv": ("tables", "CsvParser"),
    ".odt": ("odf", "OdfParser"),
    ".ott": ("odf", "OdfParser"),
    ".odp": ("odf", "OdfParser"),
    ".otp": ("odf", "OdfParser"),
    ".epub": ("epub", "EpubParser"),
    ".rtf": ("rtf", "RtfParser"),
    ".eml": ("nested", "EmailParser"),
    ".ipynb": ("notebook", "NotebookParser"),
    ".srt": ("subtitles", "SubtitleParser"),
    ".vtt": ("subtitles", "SubtitleParser"),
    ".zip": ("nested", "ZipParser"),
    ".png": ("image", "ImageParser"),
    ".jpg": ("image", "ImageParser"),
    ".jpeg": ("image", "ImageParser"),
    ".bmp": ("image", "ImageParser"),
    ".webp": ("image", "ImageParser"),
    ".tif": ("image", "ImageParser"),
    ".tiff": ("image", "ImageParser"),
}

SUFFIXES: frozenset[str] = frozenset(_PARSERS)

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", ".pdf"),
    (b"{\\rtf", ".rtf"),
    (b"\x89PNG\r\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
)
_ZIP_MAGIC = b"PK\x03\x04"
_ZIP_MARKS: tuple[tuple[str, str], ...] = (
    ("word/", ".docx"),
    ("ppt/", ".pptx"),
    ("xl/", ".xlsx"),
    ("META-INF/container.xml", ".epub"),
)
_ODF_KINDS = {"text": ".odt", "presentation": ".odp", "spreadsheet": ".ods"}


def parser_for(name: str, path: str | None = None) -> Parser:
    """Return the parser for a file.

    Args:
        name: its name, which decides where its bytes say nothing certain.
        path: where its bytes are; None to go by the name alone.

    Raises:
        UnsupportedFormatError: no parser for that suffix.
    """
    suffix = PurePath(name).suffix.lower()
    if suffix not in _PARSERS:
        raise UnsupportedFormatError(suffix=suffix or "?", supported=" ".join(sorted(SUFFIXES)))
    module, class_name = _PARSERS[_true_suffix(path, suffix) if path is not None else suffix]
    found: Parser = getattr(importlib.import_module(f"appliance.parsers.{module}"), class_name)()
    return found


def _true_suffix(path: str, suffix: str) -> str:
    """Return the suffix that the first bytes stand for; the given one if they stand for none."""
    with open(path, "rb") as file:  # noqa: PTH123 - the path may not be valid Unicode
        head = file.read(16)
    for magic, found in _MAGIC:
        if head.startswith(magic):
            # A picture may be named by any of its kinds, and they share one parser.
            return suffix if _PARSERS[suffix] == _PARSERS[found] else found
    if head.startswith(OLE_MAGIC):
        # The sheet parser knows old workbooks; every Office parser can tell what else it is.
        return suffix if _PARSERS[suffix][0] in ("docx", "pptx", "tables") else ".docx"
    if head.startswith(_ZIP_MAGIC):
        return _zip_suffix(path, suffix)
    return suffix


def _zip_suffix(path: str, suffix: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            mimetype = (
                archive.open("mimetype").read(100).decode("ascii") if ("mimetype" in names) else ""
            )
    except BROKEN_ZIP:
        return suffix
    found = ".zip"
    for kind, odf in _ODF_KINDS.items():
        if f"opendocument.{kind}" in mimetype:
            found = odf
    for mark, office in _ZIP_MARKS:
        if found == ".zip" and any(name.startswith(mark) for name in names):
            found = office
    # A macro workbook keeps its own suffix: the same parser reads it.
    return suffix if _PARSERS[suffix] == _PARSERS[found] else found
