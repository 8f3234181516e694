"""Blocks of a document to passages that remember where they come from.

A passage never crosses a page or a heading; inside, it ends at a Chinese or English sentence end.
Neighbouring passages of one block share up to ``overlap`` characters of whole sentences, so that an
answer that straddles a border is whole in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

_SENTENCE_END = re.compile(r"[。！？!?；;]+[”’」』）)\"']*|\.(?=\s|$)|\n+")


class SourceBlock(Protocol):
    """What chunking needs of a parser's block."""

    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def page(self) -> int | None: ...  # noqa: D102
    @property
    def heading(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def line_from(self) -> int | None: ...  # noqa: D102
    @property
    def line_to(self) -> int | None: ...  # noqa: D102
    @property
    def place(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True)
class NewPassage:
    """A passage about to be stored.

    ``char_from`` and ``char_to`` are offsets into the document's text, that is all blocks joined by
    a newline. ``heading`` is the path of headings joined by `` > ``.
    """

    ordinal: int
    text: str
    page: int | None
    heading: str | None
    line_from: int | None
    line_to: int | None
    char_from: int
    char_to: int
    place: str | None = None


def sentences(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of every sentence; together they cover ``text``."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        spans.append((start, match.end()))
        start = match.end()
    if start < len(text):
        spans.append((start, len(text)))
    return spans


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of embedder tokens.

    One per CJK character, symbol, and digit, one per 3 other characters. E5's SentencePiece takes
    about 0.7 tokens per Chinese character and 0.25 per Latin letter, but about one per symbol of
    mathematics, box drawing or punctuation, and 0.6 per digit.
    """
    n_single = sum(1 for char in text if not (char.isalpha() or char == " ") or char > "\u2e7f")
    return n_single + (len(text) - n_single + 2) // 3


def chunk(
    blocks: Iterable[SourceBlock],
    *,
    max_tokens: int = 256,
    overlap_tokens: int = 32,
    count: Callable[[str], int] = estimate_tokens,
) -> list[NewPassage]:
    """Return the passages of a document, each of at most ``max_tokens`` as ``count`` sees them.

    Neighbouring blocks with the same page and heading are joined first: short paragraphs make poor
    passages alone. Text is never dropped; a "sentence" longer than ``max_tokens`` is cut in pieces.
    """
    passages: list[NewPassage] = []
    offset = 0
    for text, block, line_to in _joined(blocks):
        for start, end in _windows(text, max_tokens, overlap_tokens, count):
            piece = text[start:end]
            stripped = piece.strip()
            if not stripped:
                continue
            lead = start + len(piece) - len(piece.lstrip())
            line_from = (
                None if block.line_from is None else block.line_from + text.count("\n", 0, lead)
            )
            last_line = (
                None
                if line_from is None
                else min(
                    line_from + stripped.count("\n"), line_to if line_to is not None else 1 << 60
                )
            )
            passages.append(
                NewPassage(
                    ordinal=len(passages),
                    text=stripped,
                    page=block.page,
                    heading=" > ".join(block.heading) or None,
                    line_from=line_from,
                    line_to=last_line,
                    char_from=offset + lead,
                    char_to=offset + lead + len(stripped),
                    place=block.place,
                )
            )
        offset += len(text) + 1
    return passages


def _joined(blocks: Iterable[SourceBlock]) -> Iterable[tuple[str, SourceBlock, int | None]]:
    """Join neighbours with the same place; gaps of lines are kept so that line numbers hold."""
    texts: list[str] = []
    first: SourceBlock | None = None
    line_to: int | None = None
    for block in blocks:
        same_place = (
            first is not None
            and first.page == block.page
            and first.heading == block.heading
            and first.place == block.place
        )
        if (
            same_place
            and first is not None
            and (block.line_from is None) == (first.line_from is None)
        ):
            gap = 0
            if block.line_from is not None and line_to is not None:
                gap = max(0, block.line_from - line_to - 1)
            texts.append("\n" * gap + block.text)
            line_to = block.line_to
            continue
        if first is not None:
            yield "\n".join(texts), first, line_to
        texts, first, line_to = [block.text], block, block.line_to
    if first is not None:
        yield "\n".join(texts), first, line_to


def _windows(
    text: str, max_tokens: int, overlap_tokens: int, count: Callable[[str], int]
) -> list[tuple[int, int]]:
    spans: list[tuple[int, int, int]] = []
    for start, end in sentences(text):
        size = count(text[start:end])
        if size <= max_tokens:
            spans.append((start, end, size))
            continue
        spans.extend(_pieces(text, start, end, max_tokens, count))
    windows: list[tuple[int, int]] = []
    i = 0
    while i < len(spans):
        total, j = 0, i
        while j < len(spans) and total + spans[j][2] <= max_tokens:
            total += spans[j][2]
            j += 1
        windows.append((spans[i][0], spans[j - 1][1]))
        if j == len(spans):
            break
        back, shared = j, 0
        while back - 1 > i and shared + spans[back - 1][2] <= overlap_tokens:
            back -= 1
            shared += spans[back][2]
        i = back
    return windows


def _pieces(
    text: str, start: int, end: int, max_tokens: int, count: Callable[[str], int]
) -> list[tuple[int, int, int]]:
    """Cut one over-long sentence: at a comma or space if one is near the end, else anywhere."""
    pieces: list[tuple[int, int, int]] = []
    while start < end:
        stop = min(end, start + max_tokens * 3)
        while count(text[start:stop]) > max_tokens:
            stop = start + max(1, (stop - start) * 3 // 4)
        if stop < end:
            soft = max(text.rfind(mark, start + (stop - start) // 2, stop) for mark in "，,、 \t")
            if soft > start:
                stop = soft + 1
        pieces.append((start, stop, count(text[start:stop])))
        start = stop
    return pieces


def document_text(blocks: Sequence[SourceBlock]) -> str:
    """Return the text that ``char_from`` and ``char_to`` count in."""
    return "\n".join(text for text, _, _ in _joined(blocks))
