"""One file of every format in every condition, with what must come of it.

``build`` maps a name to (content, outcome): the outcome is ``ready``, ``partial``, or the codes
that a failure may have. Contents are made on the spot from the same facts, so that a test can
also ask whether the text that comes out is the text that went in.
"""

from __future__ import annotations

import io
import json
import random
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import openpyxl
from PIL import Image
from pptx import Presentation
from pptx.util import Inches

from tests.parsers import files

FACT = "图书馆周末五点关门。"
FACT_EN = "The library closes at five on weekends."

Outcome = str | frozenset[str]


def made(write: Callable[[Path], object], suffix: str) -> bytes:
    """Return what ``write`` leaves in a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        write(path)
        return path.read_bytes()


def pptx(*slides: tuple[str, str], notes: str = "", picture: bool = False) -> bytes:
    deck = Presentation()
    for title, body in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = body
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    if picture:
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        slide.shapes.add_picture(io.BytesIO(png()), Inches(1), Inches(1))
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def xlsx(rows: list[list[object]], sheet: str = "课表") -> bytes:
    book = openpyxl.Workbook()
    page = book.active
    page.title = sheet
    for row in rows:
        page.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


ROWS: list[list[object]] = [
    ["2026 年作息", None, None],
    ["节次", "开始", "地点"],
    ["第一节", "8:10", "301 教室"],
    ["第二节", "9:05", "图书馆"],
    ["编号", 20260901, 3.5],
]


def archive(members: dict[str, bytes], *, first: str | None = None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        names = ([first] if first else []) + [name for name in members if name != first]
        for name in names:
            method = zipfile.ZIP_STORED if name == first else zipfile.ZIP_DEFLATED
            packed.writestr(name, members[name], method)
    return out.getvalue()


def gbk_archive(members: dict[str, bytes]) -> bytes:
    """A zip as Windows packs it in China: names in GBK, no flag that says so."""
    body, directory = b"", b""
    for name, content in members.items():
        raw, crc = name.encode("gbk"), zlib.crc32(content)
        sizes = struct.pack("<III", crc, len(content), len(content))
        fixed = struct.pack("<HHHHH", 20, 0, 0, 0, 0x21)
        lengths = struct.pack("<HH", len(raw), 0)
        offset = len(body)
        body += b"PK\x03\x04" + fixed + sizes + lengths + raw + content
        directory += (
            b"PK\x01\x02\x14\x00"
            + fixed
            + sizes
            + lengths
            + struct.pack("<HHHII", 0, 0, 0, 0, offset)
            + raw
        )
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def encrypted_zip(content: bytes) -> bytes:
    """A zip whose member says it is encrypted."""
    raw = bytearray(archive({"a.txt": content}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(mark) + at] |= 1
    return bytes(raw)


def zip_bomb(n_mib: int) -> bytes:
    return archive({"a.txt": b"0" * (n_mib << 20)})


def nested_zip(depth: int) -> bytes:
    content = archive({"a.txt": FACT.encode()})
    for n in range(depth):
        content = archive({f"{n}.zip": content})
    return content


def odf(kind: str, content: str, *, encrypted: bool = False) -> bytes:
    names = " ".join(
        f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for prefix, name in {
            "office": "office",
            "text": "text",
            "table": "table",
            "draw": "drawing",
            "presentation": "presentation",
        }.items()
    )
    lock = "<manifest:encryption-data/>" if encrypted else ""
    space = 'xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'
    manifest = (
        f"<manifest:manifest {space}><manifest:file-entry>{lock}</manifest:file-entry>"
        "</manifest:manifest>"
    )
    inner = f"<office:body>{content}</office:body>"
    body = f"<office:document-content {names}>{inner}</office:document-content>"
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}".encode(),
            "content.xml": body.encode(),
            "META-INF/manifest.xml": manifest.encode(),
        },
        first="mimetype",
    )


ODT = (
    "<office:text><text:h text:outline-level='1'>规定</text:h>"
    f"<text:p>{FACT}<text:s text:c='2'/>完</text:p>"
    "<text:tracked-changes><text:p>删去的字</text:p></text:tracked-changes>"
    "<table:table><table:table-row><table:table-cell><text:p>甲</text:p></table:table-cell>"
    "<table:table-cell><text:p>乙</text:p></table:table-cell></table:table-row></table:table>"
    "</office:text>"
)
ODP = (
    "<office:presentation><draw:page><draw:frame presentation:class='title'><draw:text-box>"
    f"<text:p>开放时间</text:p></draw:text-box></draw:frame><draw:frame><draw:text-box><text:p>{FACT}"
    "</text:p></draw:text-box></draw:frame></draw:page></office:presentation>"
)
_CELL = "<table:table-cell office:value-type='string'><text:p>{}</text:p></table:table-cell>"
_ROWS = "".join(
    f"<table:table-row>{''.join(map(_CELL.format, row))}</table:table-row>"
    for row in (("名称", "时间"), ("图书馆", "五点关门"))
)
ODS = f"<office:spreadsheet><table:table table:name='表'>{_ROWS}</table:table></office:spreadsheet>"


def epub(
    *chapters: tuple[str, str], missing: bool = False, encrypted: bool = False, toc: bool = True
) -> bytes:
    members = {
        "mimetype": b"application/epub+zip",
        "META-INF/container.xml": b"<container>"
        b'<rootfiles><rootfile full-path="OEBPS/content.opf"/></rootfiles></container>',
    }
    if encrypted:
        members["META-INF/encryption.xml"] = (
            b'<encryption><EncryptedData><EncryptionMethod Algorithm="aes256-cbc"/>'
            b"</EncryptedData></encryption>"
        )
    items, refs, points = [], [], []
    for n, (title, text) in enumerate(chapters, 1):
        if not (missing and n == len(chapters)):
            members[f"OEBPS/第{n}章.xhtml"] = f"<html><body><p>{text}</p></body></html>".encode()
        items.append(f'<item id="c{n}" href="第{n}章.xhtml" media-type="application/xhtml+xml"/>')
        refs.append(f'<itemref idref="c{n}"/>')
        points.append(
            f"<navPoint><navLabel><text>{title}</text></navLabel>"
            f'<content src="第{n}章.xhtml"/></navPoint>'
        )
    if toc:
        items.append('<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>')
        members["OEBPS/toc.ncx"] = f"<ncx><navMap>{''.join(points)}</navMap></ncx>".encode()
    members["OEBPS/content.opf"] = (
        '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>书</dc:title></metadata>'
        f"<manifest>{''.join(items)}</manifest><spine>{''.join(refs)}</spine></package>"
    ).encode()
    return archive(members, first="mimetype")


def rtf(text: str) -> bytes:
    """RTF as Word writes Chinese: code page 936, characters as escaped bytes."""
    body = "".join(
        char if char.isascii() else "".join(f"\\'{byte:02x}" for byte in char.encode("gbk"))
        for char in text
    )
    return (
        r"{\rtf1\ansi\ansicpg936\deff0{\fonttbl{\f0\fnil\fcharset134 SimSun;}}\f0 "
        + body
        + r"\par {\v hidden words}{\pict 89504e47}second line\par }"
    ).encode("ascii")


def mail(*attachments: tuple[str, bytes], html: bool = False) -> bytes:
    message = EmailMessage()
    message["Subject"] = "开放时间"
    message["From"] = "a@example.org"
    message["To"] = "b@example.org"
    if html:
        message.set_content(f"<p>{FACT}</p><script>x()</script>", subtype="html")
    else:
        message.set_content(FACT)
    for name, content in attachments:
        message.add_attachment(
            content, maintype="application", subtype="octet-stream", filename=name
        )
    return message.as_bytes()


def notebook(*cells: tuple[str, str]) -> bytes:
    return json.dumps(
        {
            "nbformat": 4,
            "cells": [
                {
                    "cell_type": kind,
                    "source": text,
                    "outputs": [{"text": ["42\n"]}] if kind == "code" else [],
                }
                for kind, text in cells
            ],
        }
    ).encode()


SRT = (
    f"1\n00:00:01,000 --> 00:00:04,000\n<i>{FACT}</i>\n\n"
    "2\n00:02:01,000 --> 00:02:04,500\n第二句。\n"
)
VTT = f"WEBVTT\n\nNOTE nobody\n\n00:01.000 --> 00:04.000 align:start\n{FACT}\n"


def png(size: tuple[int, int] = (200, 60)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "white").save(out, "PNG")
    return out.getvalue()


def failed(*codes: str) -> frozenset[str]:
    return frozenset(codes)


def spoiled(raw: bytes, seed: int, n: int = 40) -> bytes:
    """Return the bytes with ``n`` of them overwritten."""
    rng, out = random.Random(seed), bytearray(raw)
    for _ in range(n):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def valid() -> dict[str, bytes]:
    """One sound file of every format."""
    return {
        "valid.txt": FACT.encode(),
        "valid.md": f"# 规定\n\n{FACT}\n".encode(),
        "valid.html": f"<h1>规定</h1><p>{FACT}</p>".encode(),
        "valid.pdf": made(lambda p: files.pdf(p, [FACT_EN]), ".pdf"),
        "valid.docx": made(lambda p: files.docx(p, [("规定", 1), (FACT, None)]), ".docx"),
        "valid.pptx": pptx(("规定", FACT), notes="备注在此"),
        "valid.xlsx": xlsx([*ROWS, [FACT, None, None]]),
        "valid.csv": f"名称,时间\n图书馆,{FACT}\n".encode("gb18030"),
        "valid.tsv": f"名称\t时间\n图书馆\t{FACT}\n".encode(),
        "valid.ods": odf("spreadsheet", ODS),
        "valid.odt": odf("text", ODT),
        "valid.odp": odf("presentation", ODP),
        "valid.epub": epub(("第一章", FACT), ("第二章", "别的。")),
        "valid.rtf": rtf(FACT),
        "valid.eml": mail(("附件.txt", "附件里的字。".encode())),
        "valid.ipynb": notebook(("markdown", f"# 规定\n{FACT}"), ("code", "print(42)")),
        "valid.srt": SRT.encode(),
        "valid.vtt": VTT.encode(),
        "valid.zip": gbk_archive({"资料/说明.txt": FACT.encode("gbk"), "b.md": b"# B\n\nok\n"}),
    }


def build() -> dict[str, tuple[bytes, Outcome]]:
    """Return every file of the matrix."""
    sound = valid()
    any_damage = failed(
        "damaged",
        "not_text",
        "empty_document",
        "parse_crashed",
        "encrypted",
        "archive_bomb",
        "archive_unread",
        "member_damaged",
        "scanned",
        "unsupported_format",
        "old_office",
    )
    found: dict[str, tuple[bytes, Outcome]] = {name: (raw, "ready") for name, raw in sound.items()}
    found |= {name.replace("valid", "empty"): (b"", failed("empty_file")) for name in sound}
    for name, raw in sound.items():
        # Text survives damage as text; a container may, or says that it did not.
        found[name.replace("valid", "spoiled")] = (spoiled(raw, len(raw)), any_damage)
        found[name.replace("valid", "cut")] = (raw[: len(raw) // 2], any_damage)
    found |= {
        # encrypted
        "locked.pdf": (
            made(lambda p: files.pdf(p, ["x"], password="secret"), ".pdf"),
            failed("encrypted"),
        ),
        "locked.docx": (files.locked_office(), failed("encrypted")),
        "locked.pptx": (files.locked_office(), failed("encrypted")),
        "locked.xlsx": (files.locked_office(), failed("encrypted")),
        "locked.odt": (odf("text", ODT, encrypted=True), failed("encrypted")),
        "locked.epub": (epub(("一", "二"), encrypted=True), failed("encrypted")),
        "locked.zip": (encrypted_zip(b"x" * 100), failed("encrypted")),
        # wrong extension
        "pdf.docx": (sound["valid.pdf"], "ready"),
        "docx.pdf": (sound["valid.docx"], "ready"),
        "xlsx.zip": (sound["valid.xlsx"], "ready"),
        "epub.txt": (sound["valid.epub"], "ready"),
        "rtf.html": (sound["valid.rtf"], "ready"),
        "binary.txt": (bytes(range(256)) * 50, failed("not_text")),
        "text.pdf": (FACT.encode(), failed("damaged")),
        "text.epub": (FACT.encode(), failed("damaged")),
        "old.docx": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 3000, failed("old_office")),
        "program.exe": (b"MZ" + b"\0" * 100, failed("unsupported_format")),
        "json.ipynb": (b'{"cells": 3}', failed("damaged")),
        # nothing inside
        "blank.txt": (b" \n\n", failed("empty_document")),
        "blank.pdf": (made(lambda p: files.pdf(p, [""]), ".pdf"), failed("scanned")),
        "blank.pptx": (pptx(), failed("empty_document")),
        "blank.xlsx": (xlsx([]), failed("empty_document")),
        "blank.zip": (archive({}), failed("empty_document", "damaged")),
        "blank.epub": (epub(), failed("empty_document")),
        "blank.ipynb": (notebook(), failed("empty_document")),
        "blank.png": (png(), failed("image_needs_ocr")),
        # partly readable
        "scan.pdf": (made(lambda p: files.pdf(p, [FACT_EN, ""]), ".pdf"), "partial"),
        "picture.pptx": (pptx(("规定", FACT), picture=True), "partial"),
        "hole.epub": (epub(("一", FACT), ("二", "没有"), missing=True), "partial"),
        "mixed.zip": (
            archive({"a.txt": FACT.encode(), "b.exe": b"MZ", "c.docx": b"broken"}),
            "partial",
        ),
        "attached.eml": (mail(("a.exe", b"MZ"), ("b.pdf", sound["valid.pdf"])), "partial"),
        # nested
        "nested.zip": (nested_zip(1), "ready"),
        "deep.zip": (nested_zip(6), failed("nested_too_deep", "archive_unread")),
        "mail.zip": (archive({"a.eml": sound["valid.eml"]}), "ready"),
        "html.eml": (mail(html=True), "ready"),
        # bombs and giants
        "bomb.zip": (zip_bomb(100), failed("archive_bomb")),
        "bomb.docx": (
            made(lambda p: files.docx_bomb(p, 100 << 20), ".docx"),
            failed("archive_bomb"),
        ),
        "entities.docx": (made(files.docx_entities, ".docx"), failed("damaged")),
        "bomb.odt": (
            odf("text", f"<office:text><text:p>{'0' * (80 << 20)}</text:p></office:text>"),
            failed("archive_bomb"),
        ),
        "bomb.pdf": (
            made(lambda p: files.pdf_flate_bomb(p, 1 << 30), ".pdf"),
            failed("parse_memory", "parse_timeout", "parse_crashed"),
        ),
        "wide.xlsx": (xlsx([["名称"] * 300, ["值"] * 300]), "ready"),
        "long.csv": (("名称,值\n" + "甲,1\n" * 50_000).encode(), "ready"),
        "line.txt": (("长" * 500_000).encode(), "ready"),
        "deep.html": (b"<div>" * 50_000 + FACT.encode(), "ready"),
        "deep.ipynb": (b'{"cells": ' + b"[" * 100_000, failed("damaged")),
        "quotes.csv": (b'"' * 100_001, "ready"),
        "members.zip": (
            archive({f"{n}.txt": b"x" for n in range(6000)}),
            failed("too_many_members"),
        ),
    }
    return found
