"""HTML: what a reader of the page would see, under its headings."""

from __future__ import annotations

import codecs
import contextlib
import re
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser, LexborNode

from appliance.errors import NoTextError, ParseFailedError
from appliance.parsers.base import Block, Limits, ParsedDocument
from appliance.text.encoding import decode

_HIDDEN_TAGS = (
    "script,style,noscript,template,head > :not(title),svg,iframe,object,"
    "[hidden],[aria-hidden=true]"
)
_HIDDEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)"
    r"|(?:font-size|opacity)\s*:\s*0*(?:0|\.0+|0\.0+)(?![.\d])",
    re.IGNORECASE,
)
_DECLARED = re.compile(rb"""charset\s*=\s*["']?\s*([A-Za-z0-9_-]{2,20})""", re.IGNORECASE)
_BLOCK_TAGS = frozenset(
    """
    p div section article main header footer nav aside li ul ol dl dt dd table tr blockquote
    pre figure figcaption form fieldset address details summary body h1 h2 h3 h4 h5 h6 hr br
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_HEADING = re.compile(r"^h[1-6]$")
# Codecs of web pages; Python knows others by name (punycode, unicode_escape) that are not.
_TEXT_CODEC = re.compile(
    r"^(?:utf-8|gb18030|big5|big5hkscs|hz|shift_jis|cp932|euc_|iso2022_jp|iso8859-|cp\d|koi8)"
)


class HtmlParser:
    """``.html``; comments, scripts and hidden elements are not part of the document."""

    format = "html"
    suffixes = (".html", ".htm", ".xhtml")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:  # noqa: ARG002
        """See ``Parser.parse``."""
        raw = Path(path).read_bytes()
        text, encoding = decode_page(raw)
        blocks, title = blocks_of(text)
        if not blocks:
            raise NoTextError("empty_document")
        return ParsedDocument(self.format, title[:120], tuple(blocks), encoding=encoding)


def decode_page(raw: bytes) -> tuple[str, str]:
    """Decode as browsers do: a mark first, then what the page says, then what the bytes say."""
    decoded = decode(raw)
    found = _DECLARED.search(raw[:4096])
    declared = _declarable(found.group(1).decode("ascii")) if found else None
    # Strict UTF-8 with characters in it is hardly ever an accident, whatever the page claims.
    is_certain = decoded is not None and (
        decoded.encoding.startswith("utf-") and decoded.n_replaced == 0 and not raw.isascii()
    )
    if declared and not is_certain:
        with contextlib.suppress(UnicodeDecodeError):
            return raw.decode(declared), declared
    if decoded is None:
        raise ParseFailedError("not_text")
    return decoded.text, decoded.encoding


def _declarable(name: str) -> str | None:
    """Return the codec for the name in a page, None for one that cannot be meant.

    Follows the Encoding Standard where it matters: gb2312 and gbk mean their superset, latin-1
    means windows-1252, and a page whose declaration is readable as ASCII is not in UTF-16.
    """
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return None
    if codec in ("gb2312", "gbk"):
        return "gb18030"
    if codec in ("iso8859-1", "ascii"):
        return "cp1252"
    return codec if _TEXT_CODEC.match(codec) else None


def blocks_of(html: str) -> tuple[list[Block], str]:
    """Return the visible text of a page as blocks under their headings, and the page's title."""
    tree = LexborHTMLParser(html)
    title_node = tree.css_first("title")
    title = " ".join(title_node.text().split()) if title_node else ""
    for node in tree.css(_HIDDEN_TAGS):
        node.decompose()
    for node in tree.css("[style]"):
        if _HIDDEN_STYLE.search(node.attributes.get("style") or ""):
            node.decompose()
    body = tree.body
    if body is None:
        return [], title
    headings: list[tuple[int, str]] = []
    blocks: list[Block] = []
    pieces: list[str] = []

    def flush() -> None:
        text = re.sub(r"[ \t\xa0]+", " ", "".join(pieces))
        text = re.sub(r" ?\n ?", "\n", text).strip()
        text = re.sub(r"\n{2,}", "\n", text)
        pieces.clear()
        if text:
            blocks.append(Block(text, heading=tuple(h for _, h in headings)))

    # Depth first without recursion: hostile pages nest tens of thousands of elements.
    stack: list[tuple[LexborNode, bool]] = [(body, False)]
    while stack:
        node, is_closing = stack.pop()
        tag = node.tag or ""
        if is_closing:
            pieces.append("\n" if tag != "td" and tag != "th" else " | ")
            if tag in ("p", "li", "table", "pre", "blockquote", "section", "article", "dd"):
                flush()
            continue
        if tag == "-text":
            text = node.text(deep=False) or ""
            pieces.append(text if _in_pre(node) else re.sub(r"\s+", " ", text))
            continue
        if tag.startswith(("-", "_", "!")):
            continue
        if _HEADING.match(tag):
            flush()
            level, text = int(tag[1]), " ".join(node.text(separator=" ").split())
            if text:
                headings = [h for h in headings if h[0] < level]
                headings.append((level, text))
            continue
        if tag in _BLOCK_TAGS:
            pieces.append("\n")
            stack.append((node, True))
        elif tag in ("td", "th"):
            stack.append((node, True))
        children = list(node.iter(include_text=True))
        stack.extend((child, False) for child in reversed(children))
    flush()
    if not title and blocks:
        title = next((b.heading[0] for b in blocks if b.heading), blocks[0].text.split("\n")[0])
    return blocks, title


def _in_pre(node: LexborNode) -> bool:
    parent = node.parent
    return parent is not None and parent.tag == "pre"
