"""The kiosk page: its files, what protects them, and the questions it suggests.

The page is served from a fixed table of names, so that no request's path ever becomes a path on
disk. Its policy allows nothing but this box: no inline script or style, no other host, no frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest

from starlette.responses import Response

from appliance.core import Core, DocumentRow, PassageRow
from appliance.errors import NotFoundError
from appliance.messages import Lang
from appliance.messages.screen import say
from appliance.system.assets import asset
from appliance.text.lang import detect_lang

_HTML = "text/html; charset=utf-8"
_CSS = "text/css; charset=utf-8"
_JS = "text/javascript; charset=utf-8"

PAGES = {"/": "index.html"}
"""Addresses a person opens, and the file in ``assets/kiosk`` that each shows."""

FILES = {
    "index.html": _HTML,
    "kiosk.css": _CSS,
    "kiosk.js": _JS,
    "answer.js": _JS,
    "box.js": _JS,
    "keyboard.js": _JS,
    "privacy.js": _JS,
    "words.js": _JS,
    "icon.svg": "image/svg+xml",
}
"""Every file of the page and its media type."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}

_N_DOCUMENTS = 24
"""Newest documents that questions are taken from."""

_N_EACH = 8
"""Candidates one document gives."""

_QUESTION = re.compile(
    r"^[\s#>*-]*(?:[0-9]+[.、)）])?\s*(?:(?:Q|q|Ｑ|问|Question)[0-9]*[:：.、])?\s*(.+?[?？])\s*$"
)
_NUMBERING = re.compile(
    r"^(?:第?[0-9一二三四五六七八九十百]+[章节条部分.、)）\s]+[0-9.]*)?[#*\s-]*"
)
_SHORTEST, _LONGEST = 4, 48


def page_file(name: str) -> Response:
    """Return one file of the page.

    Raises:
        NotFoundError: ``route_not_found``, the page has no such file.
    """
    if name not in FILES:
        raise NotFoundError("route_not_found", path=f"/kiosk/{name}")
    media_type = FILES[name]
    # A page that is kept would show one visitor's words to the next; its parts hold none.
    cache = "no-store" if media_type == _HTML else "no-cache"
    content = (asset("kiosk") / name).read_bytes()
    headers = {**_HEADERS, "cache-control": cache, "content-type": media_type}
    return Response(content, headers=headers)


def suggestions(core: Core, lang: Lang, n_wanted: int) -> list[str]:
    """Return up to ``n_wanted`` questions that the loaded documents can answer.

    Questions that a document asks itself come first, then its headings made into questions. The
    documents take turns, newest first; those in ``lang`` before the others.
    """
    same: list[list[str]] = []
    other: list[list[str]] = []
    for document in core.documents()[:_N_DOCUMENTS]:
        passages = core.passages(document.id)
        asked = list(islice(_candidates(document, passages), _N_EACH))
        text = " ".join(passage.text for passage in passages[:4])
        (same if detect_lang(text) == lang else other).append(asked)
    turns = [*zip_longest(*same), *zip_longest(*other)]
    found = dict.fromkeys(question for turn in turns for question in turn if question)
    return list(found)[:n_wanted]


def _candidates(document: DocumentRow, passages: Sequence[PassageRow]) -> Iterator[str]:
    for passage in passages:
        for line in passage.text.splitlines():
            match = _QUESTION.match(line)
            if match and _SHORTEST < len(match[1]) <= _LONGEST:
                yield match[1]
    for passage in passages:
        # The innermost heading says most; the outer ones lead to it.
        heading = (passage.heading or "").rsplit(" > ", 1)[-1]
        topic = _NUMBERING.sub("", heading).strip()
        if 2 <= len(topic) <= _LONGEST // 2 and topic != document.title:
            yield say("suggest_topic", detect_lang(topic), topic=topic)
    if document.title:
        yield say("suggest_topic", detect_lang(document.title), topic=document.title[:_LONGEST])
