"""Which parser reads a file; the name decides, the parser checks that the bytes agree."""

from __future__ import annotations

import importlib
from pathlib import PurePath

from appliance.errors import UnsupportedFormatError
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
}

SUFFIXES: frozenset[str] = frozenset(_PARSERS)


def parser_for(name: str) -> Parser:
    """Return the parser for a file name.

    Raises:
        UnsupportedFormatError: no parser for that suffix.
    """
    suffix = PurePath(name).suffix.lower()
    if suffix not in _PARSERS:
        raise UnsupportedFormatError(suffix=suffix or "?", supported=" ".join(sorted(SUFFIXES)))
    module, class_name = _PARSERS[suffix]
    found: Parser = getattr(importlib.import_module(f"appliance.parsers.{module}"), class_name)()
    return found
