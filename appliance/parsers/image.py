"""Pictures: the text that can be seen in them."""

from __future__ import annotations

from appliance.errors import LimitExceededError, NoTextError
from appliance.parsers import ocr
from appliance.parsers.archive import read_bytes
from appliance.parsers.base import Block, Limits, ParsedDocument


class ImageParser:
    """``.png``, ``.jpg`` and others; needs the extra ``ocr``."""

    format = "image"
    suffixes = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")

    def parse(self, path: str, limits: Limits) -> ParsedDocument:
        """See ``Parser.parse``."""
        pixels = ocr.decode_image(read_bytes(path))
        recogniser = ocr.Recogniser(limits)
        if not recogniser.is_on:
            is_short = limits.ocr == "short"
            raise NoTextError("page_ocr_memory" if is_short else "image_needs_ocr", page=1)
        text, code = recogniser.text_of(pixels)
        if code is not None:
            raise LimitExceededError(code, page=1)
        if not text:
            raise NoTextError("image_without_text")
        return ParsedDocument(
            self.format, text.split("\n")[0][:120], (Block(text, page=1),), n_pages=1
        )
