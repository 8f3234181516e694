"""Zip archives that documents come in: bombs and encryption found before a library opens them."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.errors import LimitExceededError, ParseFailedError
from appliance.parsers.base import Limits

if TYPE_CHECKING:
    from lxml import etree

OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

_READ_BYTES = 1 << 20
_ENCRYPTED_STREAM = "EncryptedPackage".encode("utf-16-le")

BROKEN_ZIP = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    UnicodeDecodeError,
    ValueError,
)
"""What ``zipfile`` raises for bytes that are no whole archive."""


def check_office(path: str, limits: Limits, name: str) -> None:
    """Refuse what is no sound Office file: encrypted, an old binary one, a bomb, damaged.

    Raises:
        ParseFailedError, LimitExceededError: the reason; see ``check_archive``.
    """
    demand_no_ole(path)
    check_archive(path, limits, name, is_office=True)


def demand_no_ole(path: str) -> None:
    """Refuse an OLE container: Office keeps files with a password in one, and its old formats.

    Raises:
        ParseFailedError: ``encrypted`` or ``old_office``.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - the path may not be valid Unicode
        if file.read(8) != OLE_MAGIC:
            return
        is_encrypted = _ENCRYPTED_STREAM in file.read()
    raise ParseFailedError("encrypted" if is_encrypted else "old_office")


def check_archive(path: str, limits: Limits, name: str, *, is_office: bool = False) -> None:
    """Unpack every member once without keeping it, and refuse bombs before a library does.

    The sizes an archive declares are the attacker's, so the bytes are counted as they come out.

    Raises:
        LimitExceededError: ``archive_bomb`` when more than ``max_inflated_bytes`` come out.
        ParseFailedError: not a zip archive, damaged, or encrypted.
    """
    total = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.flag_bits & 1:
                    raise ParseFailedError("encrypted")
                with archive.open(info) as member:
                    is_first = True
                    while block := member.read(_READ_BYTES):
                        total += len(block)
                        if total > limits.max_inflated_bytes:
                            raise LimitExceededError(
                                "archive_bomb", limit=limits.max_inflated_bytes
                            )
                        # Office never writes a document type; entity bombs need one.
                        if (
                            is_office
                            and is_first
                            and info.filename.endswith((".xml", ".rels"))
                            and b"<!DOCTYPE" in block[:4096]
                        ):
                            raise ParseFailedError("damaged", format=name)
                        is_first = False
    except BROKEN_ZIP as error:
        raise ParseFailedError("damaged", format=name) from error


def read_xml(archive: zipfile.ZipFile, member: str) -> etree._Element:
    """Return the root of one member; no entity is expanded and nothing is fetched.

    Raises:
        KeyError: no such member.
        etree.XMLSyntaxError: not XML.
    """
    # The daemon reads this module for its names; six megabytes of lxml are the worker's.
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    return etree.fromstring(archive.read(member), parser)


def read_bytes(path: str) -> bytes:
    """Return a file's content."""
    return Path(path).read_bytes()
