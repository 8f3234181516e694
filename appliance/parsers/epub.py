"""EPUB: the chapters in reading order, each page of it read as HTML."""

from __future__ import annotations

import posixpath
import urllib.parse
import zipfile

from lxml import etree

from appliance.errors import LimitExceededError, NoTextError, ParseFailedError
from appliance.parsers.archive import BROKEN_ZIP, check_archive, read_xml
from appliance.parsers.base import Block, Limits, ParsedDocument, PartProblem
from appliance.parsers.html import blocks_of, decode_page

_CONTAINER = "META-INF/container.xml"
_FONT_KEYS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_PAGE_TYPES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})


class EpubParser:
    """``.epub``; the chapter is the outermost heading."""

    format = "epub"
    suffixes = (".epub",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        check_archive(path, limits, "EPUB")
        try:
            with zipfile.ZipFile(path) as archive:
                return self._read(archive, limits)
        except (*BROKEN_ZIP, KeyError, AttributeError, etree.XMLSyntaxError) as error:
            raise ParseFailedError("damaged", format="EPUB") from error

    def _read(self, archive: zipfile.ZipFile, limits: Limits) -> ParsedDocument:
        names = set(archive.namelist())
        if _is_locked(archive, names):
            raise ParseFailedError("encrypted")
        root_file = read_xml(archive, _CONTAINER).find(".//{*}rootfile")
        if root_file is None:
            raise ParseFailedError("damaged", format="EPUB")
        package_path = root_file.get("full-path", "")
        package = read_xml(archive, package_path)
        base = posixpath.dirname(package_path)
        title_node = package.find(".//{http://purl.org/dc/elements/1.1/}title")
        title = (title_node.text or "").strip() if title_node is not None else ""
        items = {
            item.get("id", ""): (_resolved(base, item.get("href", "")), item.get("media-type", ""))
            for item in package.iterfind(".//{*}manifest/{*}item")
        }
        labels = _labels(archive, package, items)
        spine = [ref.get("idref", "") for ref in package.iterfind(".//{*}spine/{*}itemref")]
        if len(spine) > limits.max_pages:
            raise LimitExceededError("too_many_pages", n_pages=len(spine), limit=limits.max_pages)
        blocks: list[Block] = []
        problems: list[PartProblem] = []
        for ref in spine:
            name, kind = items.get(ref, ("", ""))
            if kind and kind not in _PAGE_TYPES:
                continue
            if name not in names:
                problems.append(PartProblem(None, "member_missing", member=name or ref))
                continue
            found, _ = blocks_of(decode_page(archive.read(name))[0])
            # A page without a heading of its own goes under the contents' name for it.
            chapter = labels.get(name)
            for block in found:
                heading = block.heading or ((chapter,) if chapter and chapter != title else ())
                blocks.append(Block(block.text, heading=heading))
        if not blocks:
            raise NoTextError("empty_document")
        return ParsedDocument(
            self.format,
            (title or blocks[0].text.split("\n")[0])[:120],
            tuple(blocks),
            problems=tuple(problems),
        )


def _is_locked(archive: zipfile.ZipFile, names: set[str]) -> bool:
    """Whether more than fonts is encrypted: fonts are only hidden from copying."""
    if "META-INF/encryption.xml" not in names:
        return False
    methods = read_xml(archive, "META-INF/encryption.xml").iterfind(".//{*}EncryptionMethod")
    return any(method.get("Algorithm") not in _FONT_KEYS for method in methods)


def _labels(
    archive: zipfile.ZipFile, package: etree._Element, items: dict[str, tuple[str, str]]
) -> dict[str, str]:
    """Return the contents' name of each page, from the NCX of EPUB 2 or the nav of EPUB 3."""
    labels: dict[str, str] = {}
    by_name = set(archive.namelist())
    nav = next(
        (
            items[item.get("id", "")][0]
            for item in package.iterfind(".//{*}manifest/{*}item")
            if "nav" in item.get("properties", "").split()
        ),
        None,
    )
    ncx = next((name for name, kind in items.values() if kind == "application/x-dtbncx+xml"), None)
    if ncx in by_name and ncx is not None:
        for point in read_xml(archive, ncx).iterfind(".//{*}navPoint"):
            text, content = point.find("./{*}navLabel/{*}text"), point.find("./{*}content")
            if text is not None and content is not None:
                page = _resolved(posixpath.dirname(ncx), content.get("src", ""))
                labels.setdefault(page, " ".join((text.text or "").split()))
    elif nav in by_name and nav is not None:
        for link in read_xml(archive, nav).iterfind(".//{*}a"):
            page = _resolved(posixpath.dirname(nav), link.get("href", ""))
            labels.setdefault(page, " ".join("".join(link.itertext()).split()))
    return labels


def _resolved(base: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(base, urllib.parse.unquote(href.split("#")[0])))
