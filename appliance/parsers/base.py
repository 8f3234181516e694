"""What a parser produces and the limits it works under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from appliance.units import MIB


@dataclass(frozen=True)
class Block:
    """A run of text with one place in the source.

    ``page`` is 1-based and set only by formats that have pages (slides count as pages).
    ``heading`` is the path of headings above the block, outermost first. ``line_from`` and
    ``line_to`` are 1-based lines of the source for line-oriented formats.
    """

    text: str
    page: int | None = None
    heading: tuple[str, ...] = ()
    line_from: int | None = None
    line_to: int | None = None


@dataclass(frozen=True)
class PageProblem:
    """A page that gave no usable text; ``code`` is a message code such as ``page_scanned``."""

    page: int
    code: str


@dataclass(frozen=True)
class Limits:
    """Hard limits of one parse; the child enforces them, the parent kills it on time."""

    max_file_bytes: int = 200 * MIB
    max_seconds: float = 300.0
    max_memory_bytes: int = 1024 * MIB
    max_pages: int = 5000
    max_inflated_bytes: int = 512 * MIB
    max_text_chars: int = 100_000_000


@dataclass(frozen=True)
class ParsedDocument:
    """Everything a parser learned. ``problems`` non-empty makes the document *partial*."""

    format: str
    title: str
    blocks: tuple[Block, ...]
    n_pages: int | None = None
    encoding: str | None = None
    problems: tuple[PageProblem, ...] = ()


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
