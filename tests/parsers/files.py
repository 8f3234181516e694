"""Files of every kind and every way to be broken, made on the spot."""

from __future__ import annotations

import io
import random
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pypdfium2 as pdfium
from docx import Document
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from fpdf import FPDF
from fpdf.enums import AccessPermission


def pdf(path: Path, pages: Sequence[str], *, password: str | None = None) -> Path:
    """One text a page; an empty text makes a page without a text layer."""
    document = FPDF()
    document.set_font("helvetica", size=12)
    if password is not None:
        document.set_encryption("owner", password, permissions=AccessPermission.none())
    for text in pages:
        document.add_page()
        if text:
            document.multi_cell(0, 8, text)
        else:
            document.rect(20, 20, 100, 100, style="F")
    document.output(str(path))
    return path


def docx(path: Path, parts: Sequence[tuple[str, int | None]]) -> Path:
    """(text, heading level or None for a paragraph) in order, then a small table."""
    document = Document()
    for text, level in parts:
        if level is None:
            document.add_paragraph(text)
        else:
            document.add_heading(text, level)
    table = document.add_table(rows=1, cols=2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "第一节", "8:10"
    document.save(str(path))
    return path


def docx_of(path: Path, *parts: str) -> Path:
    """A DOCX whose body is the given XML, prefix ``w`` bound."""
    document = Document()
    body = document.element.body
    for part in parts:
        body.insert(len(body) - 1, parse_xml(part.replace(">", f" {nsdecls('w')}>", 1)))
    document.save(str(path))
    return path


def docx_bomb(path: Path, inflated_bytes: int) -> Path:
    """A valid DOCX whose text member unpacks to ``inflated_bytes`` of spaces."""
    plain = io.BytesIO()
    Document().save(plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for info in source.infolist():
            if info.filename != "word/document.xml":
                out.writestr(info, source.read(info))
        with out.open("word/document.xml", "w") as member:
            for _ in range(inflated_bytes // (1 << 20)):
                member.write(b" " * (1 << 20))
    return path


def docx_entities(path: Path) -> Path:
    """A DOCX whose XML declares entities that expand each other."""
    plain = io.BytesIO()
    Document().save(plain)
    lines = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY e0 "ha">{lines}]><d>&e9;</d>'
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w") as out:
        for info in source.infolist():
            is_text = info.filename == "word/document.xml"
            out.writestr(info.filename, bomb if is_text else source.read(info))
    return path


def locked_office() -> bytes:
    """The head of an Office file with a password: an OLE container with the encrypted package."""
    name = "EncryptedPackage".encode("utf-16-le")
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 1016 + name + b"\0" * 1000


def change_member(path: Path, name: str, old: bytes, new: bytes) -> None:
    """Replace bytes in one member of a zip archive; fails when they are not there."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    assert old in members[name]
    members[name] = members[name].replace(old, new)
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)


def spoil_member(path: Path, name: str, rng: random.Random) -> None:
    """Overwrite one or two bytes in one member of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        whole = archive.read(name)
    spoiled = bytearray(whole)
    for _ in range(rng.randint(1, 2)):
        spoiled[rng.randrange(len(spoiled))] = rng.choice(b"wtx0 9abcsp")
    change_member(path, name, whole, bytes(spoiled))


def pdf_flate_bomb(path: Path, inflated_bytes: int) -> Path:
    """A one-page PDF whose content stream inflates to ``inflated_bytes`` of drawing commands."""
    unit = b"BT /F1 12 Tf 72 720 Td (x) Tj ET\n"
    packer = zlib.compressobj(9)
    packed = b"".join(
        packer.compress(unit * 4096) for _ in range(inflated_bytes // (4096 * len(unit)))
    )
    packed += packer.flush()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(packed) + packed + b"\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    raw, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(raw))
        raw += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    start = len(raw)
    raw += b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % o for o in offsets)
    raw += b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % start
    path.write_bytes(raw)
    return path


def n_pdf_pages(path: Path) -> int:
    """Pages as pdfium counts them; proves that a generated file is a real PDF."""
    document = pdfium.PdfDocument(path)
    try:
        return len(document)
    finally:
        document.close()
