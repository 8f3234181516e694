"""RTF: text without its formatting; hidden runs are taken out first."""

from __future__ import annotations

import re

from striprtf.striprtf import rtf_to_text

from appliance.errors import NoTextError, ParseFailedError
from appliance.parsers.archive import read_bytes
from appliance.parsers.base import Block, Limits, ParsedDocument
from appliance.parsers.plain import paragraphs

# Pictures and embedded objects are most of many files, and no text.
_PICTURE = re.compile(
    r"\{(?:\\\*)?\\(?:pict|objdata|themedata|colorschememapping|datastore)\b[^{}]*\}"
)
_HIDDEN = re.compile(r"\{[^{}]*\\v(?![a-z0-9])[^{}]*\}")


class RtfParser:
    """``.rtf``; lines of the text that comes out are the provenance."""

    format = "rtf"
    suffixes = (".rtf",)

    def parse(self, path: str, limits: Limits) -> ParsedDocument:  # noqa: ARG002
        """See ``Parser.parse``."""
        raw = read_bytes(path)
        if not raw.lstrip(b"\xef\xbb\xbf\r\n\t ").startswith(b"{\\rtf"):
            raise ParseFailedError("damaged", format="RTF")
        # The format is ASCII; bytes above it are text in the file's code page.
        source = _ascii(raw)
        source = _HIDDEN.sub("", _PICTURE.sub("", source))
        try:
            text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
        except (ValueError, IndexError, LookupError, OverflowError, KeyError) as error:
            raise ParseFailedError("damaged", format="RTF") from error
        text = text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n")
        lines = [line.rstrip() for line in text.split("\n")]
        blocks = tuple(
            Block(part, line_from=first, line_to=last) for part, first, last in paragraphs(lines, 1)
        )
        if not blocks:
            raise NoTextError("empty_document")
        return ParsedDocument(self.format, blocks[0].text.split("\n")[0][:120], blocks)


def _ascii(raw: bytes) -> str:
    """Return the source with bytes above ASCII written as escapes, as the format wants them."""
    return re.sub(
        r"[\x80-\xff]", lambda match: f"\\'{ord(match.group()):02x}", raw.decode("latin-1")
    )
