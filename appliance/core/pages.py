"""The page that a citation points at: a picture for PDF, text with an anchor for the rest."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.core.citations import locate
from appliance.errors import NotFoundError
from appliance.parsers.base import Limits
from appliance.parsers.process import render_page
from appliance.store import PassageRow, Store

_AROUND = 2
"""Passages shown before and after one of a format without pages."""

_STYLE = (
    "body{font:1.1rem/1.7 sans-serif;max-width:45rem;margin:1rem auto;padding:0 1rem}"
    "h2{font-size:1rem;color:#555}section{margin:1rem 0;white-space:pre-wrap}"
    "mark{background:#fd0}"
)


@dataclass(frozen=True)
class Page:
    """What to show; ``is_located`` says whether the quote was found again and is marked."""

    content: bytes
    kind: Literal["image/png", "text/html; charset=utf-8"]
    is_located: bool


class Pages:
    """Shows pages of the documents of one store."""

    def __init__(self, store: Store, inbox: bytes, limits: Limits) -> None:
        self._store = store
        self._inbox = inbox
        self._limits = limits

    def page(
        self, document_id: int, number: int, quote: str = "", *, as_text: bool = False
    ) -> Page:
        """Return a page.

        Args:
            document_id: the document.
            number: page or slide, from 1; of a format without pages the passage, from 1.
            quote: text to find and mark.
            as_text: give text for a PDF too.

        Raises:
            NotFoundError: no such document or page, or its file is gone.
        """
        document = self._store.document(document_id)
        passages = self._store.passages(document_id)
        if document.format == "pdf" and not as_text:
            path = self._path_of(document_id)
            png, is_located = render_page(path, number, quote, self._limits)
            return Page(png, "image/png", is_located)
        shown = _chosen(passages, number, has_pages=document.n_pages is not None)
        if not shown:
            most = document.n_pages or len(passages)
            raise NotFoundError("page_not_found", page=number, n_pages=most)
        body, is_located = _sections(shown, quote)
        title = html.escape(f"{document.paths[0] if document.paths else document.title}")
        text = (
            f"<!doctype html><html><head><meta charset='utf-8'><title>{title}</title>"
            f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>"
        )
        return Page(text.encode(), "text/html; charset=utf-8", is_located)

    def _path_of(self, document_id: int) -> bytes:
        for file in self._store.files():
            if file.document_id == document_id:
                return os.path.join(self._inbox, file.path)  # noqa: PTH118 - bytes
        raise NotFoundError("document_not_found", name=str(document_id))


def _chosen(passages: Sequence[PassageRow], number: int, *, has_pages: bool) -> list[PassageRow]:
    if has_pages:
        return [passage for passage in passages if passage.page == number]
    at = number - 1
    if not 0 <= at < len(passages):
        return []
    return list(passages[max(0, at - _AROUND) : at + _AROUND + 1])


def _sections(passages: Sequence[PassageRow], quote: str) -> tuple[str, bool]:
    """Return the passages as HTML, shared sentences once, the quote marked where it stands."""
    pieces: list[tuple[PassageRow, str]] = []
    end: int | None = None
    for passage in passages:
        overlap = max(0, end - passage.char_from) if end is not None else 0
        pieces.append((passage, passage.text[overlap:]))
        end = passage.char_to
    whole = "\n".join(text for _, text in pieces)
    span = locate(whole, quote) if quote else None
    sections, at, heading = [], 0, None
    for passage, text in pieces:
        if passage.heading and passage.heading != heading:
            sections.append(f"<h2>{html.escape(passage.heading)}</h2>")
        heading = passage.heading
        shown = _marked(text, span, at)
        sections.append(f"<section id='p{passage.ordinal + 1}'>{shown}</section>")
        at += len(text) + 1
    return "".join(sections), span is not None


def _marked(text: str, span: tuple[int, int] | None, at: int) -> str:
    if span is None:
        return html.escape(text)
    begin, end = max(0, span[0] - at), min(len(text), span[1] - at)
    if begin >= end:
        return html.escape(text)
    before, inside, after = text[:begin], text[begin:end], text[end:]
    return f"{html.escape(before)}<mark id='quote'>{html.escape(inside)}</mark>{html.escape(after)}"
