"""What a parser produces and the limits it works under."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from appliance.errors import Fact
from appliance.units import MIB

OcrMode = Literal["auto", "off", "short"]
"""``short``: it was tried and needed more memory than the file may use."""


@dataclass(frozen=True)
class Block:
    """A run of text with one place in the source.

    ``page`` is 1-based and set only by formats that have pages (slides count as pages).
    ``heading`` is the path of headings above the block, outermost first. ``line_from`` and
    ``line_to`` are 1-based lines of the source for line-oriented formats. ``place`` is what takes
    the part of a page elsewhere, as the format's own programs write it: cells ``B2:F9``, a time
    ``00:01:05-00:01:20``, ``Cell 3`` of a notebook.
    """

    text: str
    page: int | None = None
    heading: tuple[str, ...] = ()
    line_from: int | None = None
    line_to: int | None = None
    place: str | None = None


@dataclass(frozen=True)
class PartProblem:
    """A part that gave no usable text; ``code`` is a message code such as ``page_scanned``.

    ``page`` is set in formats that have pages, ``member`` for a file inside an archive or e-mail;
    ``facts`` are what else the sentence names.
    """

    page: int | None
    code: str
    member: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """Hard limits of one parse; the child enforces them, the parent kills it on time."""

    max_file_bytes: int = 200 * MIB
    max_seconds: float = 300.0
    max_memory_bytes: int = 1024 * MIB
    max_pages: int = 5000
    max_inflated_bytes: int = 512 * MIB
    max_text_chars: int = 100_000_000
    max_nesting: int = 3
    ocr: OcrMode = "auto"


@dataclass(frozen=True)
class ParsedDocument:
    """Everything a parser learned. ``problems`` non-empty makes the document *partial*."""

    format: str
    title: str
    blocks: tuple[Block, ...]
    n_pages: int | None = None
    encoding: str | None = None
    problems: tuple[PartProblem, ...] = ()


class Parser(Protocol):
    """One format. ``parse`` runs only inside the limited child process."""

    format: str
    suffixes: tuple[str, ...]

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """Read the file.

        Raises:
            ParseFailedError, LimitExceededError, NoTextError: see their codes.
        """
        ...
