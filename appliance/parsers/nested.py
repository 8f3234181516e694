"""Files inside files: zip archives and e-mails with what is attached to them."""

from __future__ import annotations

import dataclasses
import email
import email.policy
import os
import re
import time
import zipfile
from email.message import EmailMessage
from pathlib import PurePosixPath

from appliance.errors import (
    IngestError,
    LimitExceededError,
    NoTextError,
    ParseFailedError,
    UnsupportedFormatError,
)
from appliance.parsers.archive import BROKEN_ZIP, read_bytes
from appliance.parsers.base import Block, Limits, ParsedDocument, PartProblem
from appliance.parsers.html import blocks_of

_READ_BYTES = 1 << 20
_TIME_SHARE = 0.8
"""Of the time a file may take, after which no further member is begun."""

_FATAL = frozenset({"archive_bomb", "parse_memory"})


class _Collected:
    """Blocks and problems of the members so far, within what the whole file may cost."""

    def __init__(self, limits: Limits) -> None:
        self.blocks: list[Block] = []
        self.problems: list[PartProblem] = []
        self.first_error: IngestError | None = None
        self._limits = limits
        self._left = limits.max_inflated_bytes
        self._until = time.monotonic() + limits.max_seconds * _TIME_SHARE
        self._n_chars = 0

    def spend(self, n_bytes: int) -> None:
        """Count bytes that came out of the archive.

        Raises:
            LimitExceededError: ``archive_bomb``.
        """
        self._left -= n_bytes
        if self._left < 0:
            raise LimitExceededError("archive_bomb", limit=self._limits.max_inflated_bytes)

    def add_text(self, blocks: list[Block]) -> None:
        """Keep text of the outer file itself."""
        self._n_chars += sum(len(block.text) for block in blocks)
        if self._n_chars > self._limits.max_text_chars:
            raise LimitExceededError("too_much_text", limit=self._limits.max_text_chars)
        self.blocks += blocks

    def add(self, name: str, content: bytes) -> None:
        """Read one member; what cannot be read is a problem of the whole, with its name."""
        if time.monotonic() > self._until:
            return self.fail(
                name, LimitExceededError("member_time", seconds=self._limits.max_seconds)
            )
        if not content:
            return self.fail(name, NoTextError("empty_file"))
        if self._limits.max_nesting <= 1 and name.lower().endswith((".zip", ".eml")):
            return self.fail(name, LimitExceededError("nested_too_deep"))
        inner = dataclasses.replace(
            self._limits,
            max_inflated_bytes=max(self._left, 1),
            max_nesting=self._limits.max_nesting - 1,
            max_seconds=max(1.0, self._until - time.monotonic()),
        )
        try:
            document = parse_bytes(name, content, inner)
        except IngestError as error:
            if error.code in _FATAL:
                raise
            return self.fail(name, error)
        self.add_text(
            [
                dataclasses.replace(block, heading=(name, *block.heading))
                for block in document.blocks
            ]
        )
        for problem in document.problems:
            inside = f"{name}/{problem.member}" if problem.member else name
            self.problems.append(dataclasses.replace(problem, member=inside))
        return None

    def fail(self, name: str, error: IngestError) -> None:
        """Note a member that gave nothing."""
        if self.first_error is None:
            self.first_error = error
        self.problems.append(PartProblem(None, error.code, name, error.facts))


def parse_bytes(name: str, content: bytes, limits: Limits) -> ParsedDocument:
    """Return the document that these bytes are.

    They lie in memory under a name of the kernel's: no text of a document touches a disk.

    Raises:
        IngestError: as ``Parser.parse``.
    """
    from appliance.parsers.registry import parser_for

    descriptor = os.memfd_create("appliance-member")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        path = f"/proc/self/fd/{descriptor}"
        return parser_for(name, path).parse(path, limits)
    finally:
        os.close(descriptor)


class ZipParser:
    """``.zip`` of documents; the member's name is the outermost heading."""

    format = "zip"
    suffixes = (".zip",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        found = _Collected(limits)
        try:
            with zipfile.ZipFile(path) as archive:
                infos = [info for info in archive.infolist() if _is_wanted(info)]
                if len(infos) > limits.max_pages:
                    raise LimitExceededError(
                        "too_many_members", n_members=len(infos), limit=limits.max_pages
                    )
                for info in infos:
                    self._member(archive, info, found)
        except BROKEN_ZIP as error:
            raise ParseFailedError("damaged", format="ZIP") from error
        if not found.blocks:
            if len(found.problems) == 1 and found.first_error is not None:
                raise found.first_error
            if not found.problems:
                raise NoTextError("empty_document")
            if {problem.code for problem in found.problems} == {"encrypted"}:
                raise ParseFailedError("encrypted")
            raise NoTextError(
                "archive_unread", n_members=len(found.problems), name=found.problems[0].member
            )
        title = found.blocks[0].heading[0]
        return ParsedDocument(
            self.format, title[:120], tuple(found.blocks), problems=tuple(found.problems)
        )

    def _member(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, found: _Collected) -> None:
        name = member_name(info)
        if info.flag_bits & 1:
            found.fail(name, ParseFailedError("encrypted"))
            return
        pieces: list[bytes] = []
        try:
            with archive.open(info) as member:
                while block := member.read(_READ_BYTES):
                    found.spend(len(block))
                    pieces.append(block)
        except BROKEN_ZIP:
            found.fail(name, ParseFailedError("member_damaged"))
            return
        found.add(name, b"".join(pieces))


def _is_wanted(info: zipfile.ZipInfo) -> bool:
    """Whether a member is a document: no folder, nothing that a file manager left behind."""
    parts = PurePosixPath(info.filename).parts
    return not info.is_dir() and not any(
        part.startswith((".", "~$", "__MACOSX")) or part in ("Thumbs.db", "desktop.ini")
        for part in parts
    )


def member_name(info: zipfile.ZipInfo) -> str:
    """Return a member's name as who packed it saw it.

    Without the UTF-8 flag the bytes are in the packer's own encoding, which in China is GBK.
    """
    name = info.filename
    if not info.flag_bits & 0x800:
        raw = name.encode("cp437", "replace")
        for encoding in ("utf-8", "gb18030"):
            try:
                name = raw.decode(encoding)
                break
            except UnicodeDecodeError:
                continue
    return re.sub(r"[\x00-\x1f\x7f]", "", name) or "?"


class EmailParser:
    """``.eml``: the head, what was written, and every attachment that can be read."""

    format = "eml"
    suffixes = (".eml",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        raw = read_bytes(path)
        try:
            message = email.message_from_bytes(raw, policy=email.policy.default)
            subject = str(message.get("subject") or "").strip()
            found = _Collected(limits)
            self._read(message, found)
        except (ValueError, LookupError, AttributeError, TypeError, IndexError, KeyError) as error:
            raise ParseFailedError("damaged", format="EML") from error
        if not found.blocks:
            if found.first_error is not None:
                raise found.first_error
            raise NoTextError("empty_document")
        title = subject or found.blocks[0].text.split("\n")[0]
        return ParsedDocument(
            self.format, title[:120], tuple(found.blocks), problems=tuple(found.problems)
        )

    def _read(self, message: EmailMessage, found: _Collected) -> None:
        head = [
            f"{name}: {value}"
            for name in ("Subject", "From", "To", "Cc", "Date")
            if (value := " ".join(str(message.get(name) or "").split()))
        ]
        if not head and not message.is_multipart():
            raise ParseFailedError("damaged", format="EML")
        if head:
            found.add_text([Block("\n".join(head))])
        body = message.get_body(("plain", "html"))
        if body is not None:
            content = body.get_content()
            if body.get_content_subtype() == "html":
                found.add_text(blocks_of(content)[0])
            elif content.strip():
                found.add_text([Block(content.replace("\r\n", "\n").strip())])
        for n, part in enumerate(message.iter_attachments(), 1):
            name = part.get_filename() or f"attachment-{n}"
            if part.get_content_type() == "message/rfc822":
                name = name if name.lower().endswith(".eml") else f"{name}.eml"
                inner = part.get_payload(0)
                content = inner.as_bytes() if isinstance(inner, EmailMessage) else b""
            else:
                decoded = part.get_payload(decode=True)
                content = decoded if isinstance(decoded, bytes) else b""
            found.spend(len(content))
            try:
                found.add(name, content)
            except UnsupportedFormatError as error:
                found.fail(name, error)
