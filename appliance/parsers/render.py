"""One page of a PDF as a picture, with a quoted span marked; runs in the limited child."""

from __future__ import annotations

import io

import pypdfium2 as pdfium
from PIL import Image, ImageDraw

from appliance.errors import NotFoundError, ParseFailedError

_DPI = 130
_MOST_SIDE = 2600
_MARK = (255, 221, 0, 96)
_MARGIN_PT = 1.5

Box = tuple[float, float, float, float]


def page_png(path: str, number: int, quote: str) -> tuple[bytes, bool]:
    """Return a page as PNG and whether the quote was found and marked on it.

    Args:
        path: of the PDF.
        number: of the page, from 1.
        quote: text of that page; white space does not matter. Empty marks nothing.

    Raises:
        ParseFailedError: not a PDF that can be opened.
        NotFoundError: ``page_not_found``.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115, PTH123 - pdfium closes it with the document
        document = pdfium.PdfDocument(file, autoclose=True)
    except pdfium.PdfiumError as error:
        raise ParseFailedError("damaged", format="PDF") from error
    try:
        if not 1 <= number <= len(document):
            raise NotFoundError("page_not_found", page=number, n_pages=len(document))
        page = document[number - 1]
        width, height = page.get_size()
        scale = min(_DPI / 72, _MOST_SIDE / max(width, height, 1.0))
        picture = page.render(scale=scale, rev_byteorder=True).to_pil().convert("RGB")
        boxes = _lines(_boxes(page, quote)) if quote else []
        if boxes:
            veil = Image.new("RGBA", picture.size, (0, 0, 0, 0))
            draw = ImageDraw.Draw(veil)
            for left, bottom, right, top in boxes:
                corners = (
                    (left - _MARGIN_PT) * scale,
                    (height - top - _MARGIN_PT) * scale,
                    (right + _MARGIN_PT) * scale,
                    (height - bottom + _MARGIN_PT) * scale,
                )
                draw.rectangle(corners, fill=_MARK)
            picture = Image.alpha_composite(picture.convert("RGBA"), veil).convert("RGB")
        out = io.BytesIO()
        picture.save(out, "PNG")
        return out.getvalue(), bool(boxes)
    finally:
        document.close()


def _boxes(page: pdfium.PdfPage, quote: str) -> list[Box]:
    """Return the boxes of the quote's characters in points, from the bottom left."""
    text_page = page.get_textpage()
    try:
        text = text_page.get_text_range()
        places = [n for n, char in enumerate(text) if not _is_skipped(char)]
        squeezed = "".join(text[n] for n in places)
        wanted = "".join(char for char in quote if not _is_skipped(char))
        at = squeezed.find(wanted) if wanted else -1
        if at < 0:
            return []
        found = (text_page.get_charbox(n) for n in places[at : at + len(wanted)])
        return [box for box in found if box[2] > box[0] and box[3] > box[1]]
    finally:
        text_page.close()


def _is_skipped(char: str) -> bool:
    # Line ends are hyphenated and joined when the text is taken out.
    return char.isspace() or char in "-\u00ad\ufffe\x02"


def _lines(boxes: list[Box]) -> list[Box]:
    """Join the boxes of characters that stand on one line."""
    lines: list[Box] = []
    for left, bottom, right, top in boxes:
        if lines:
            before = lines[-1]
            overlap = min(before[3], top) - max(before[1], bottom)
            if overlap > 0.3 * (top - bottom) and left >= before[0]:
                lines[-1] = (
                    before[0],
                    min(before[1], bottom),
                    max(before[2], right),
                    max(before[3], top),
                )
                continue
        lines.append((left, bottom, right, top))
    return lines
