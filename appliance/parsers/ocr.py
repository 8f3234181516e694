"""Text in pictures, by RapidOCR when the optional extra ``ocr`` is installed.

Its models (PP-OCRv6 small, Chinese and English) come inside its wheel, so nothing is fetched. It
runs in the limited child like every parser; the extra adds about 280 MB of packages, which is why
a box does without it unless asked.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from appliance.errors import ParseFailedError
from appliance.parsers.base import Limits

_TIME_SHARE = 0.7
"""Of the time a file may take, after which no further picture is begun."""

_LEAST_SCORE = 0.5
"""Confidence below which a line is taken for noise; RapidOCR's own default for text."""

_MOST_PIXELS = 40_000_000
"""An A3 page at 300 dpi is 17 million."""

_DETECT_SIDE = 960
"""Pixels of the longer side of the picture that lines are looked for in."""

_LEAST_SIDE = 24
"""Pixels; smaller pictures are bullets and lines."""

_recogniser: Any = None


def is_installed() -> bool:
    """Whether the extra is there."""
    return all(importlib.util.find_spec(name) is not None for name in ("rapidocr", "onnxruntime"))


class Recogniser:
    """Reads pictures of one file until its share of the time is used up."""

    def __init__(self, limits: Limits) -> None:
        self.is_on = limits.ocr == "auto" and is_installed()
        self.code = "page_ocr_memory" if limits.ocr == "short" else "page_scanned"
        self._until = time.monotonic() + limits.max_seconds * _TIME_SHARE

    def text_of_images(self, images: Sequence[bytes]) -> tuple[str, str | None]:
        """Return the text of encoded pictures in order, and a code when they were not read."""
        texts = []
        for raw in images:
            try:
                pixels = decode_image(raw)
            except ParseFailedError:
                continue
            text, code = self.text_of(pixels)
            if code is not None:
                return "", code
            texts.append(text)
        return "\n".join(text for text in texts if text), None

    def text_of(self, pixels: npt.NDArray[np.uint8]) -> tuple[str, str | None]:
        """Return the text of a picture, and a code when it was not read.

        Args:
            pixels: shape (height, width, 3), RGB.
        """
        if not self.is_on:
            return "", self.code
        if time.monotonic() > self._until:
            return "", "page_ocr_time"
        if min(pixels.shape[:2]) < _LEAST_SIDE:
            return "", None
        try:
            found = _engine()(np.ascontiguousarray(pixels[:, :, ::-1]))
        except Exception as error:
            # Their error classes share no base but this one.
            if type(error).__module__.split(".")[0] not in ("onnxruntime", "cv2", "rapidocr"):
                raise
            if any(word in str(error) for word in ("bad_alloc", "llocat", "memory")):
                # The worker reads the file once more, without OCR.
                raise MemoryError from error
            raise ParseFailedError("page_ocr_failed") from error
        if found.txts is None:
            return "", None
        lines = [
            (box, text)
            for box, text, score in zip(found.boxes, found.txts, found.scores, strict=True)
            if score >= _LEAST_SCORE and text.strip()
        ]
        return _in_reading_order(lines), None


def decode_image(raw: bytes) -> npt.NDArray[np.uint8]:
    """Return the pixels of a picture file as RGB.

    Raises:
        ParseFailedError: damaged, not a picture, or far too large.
    """
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = _MOST_PIXELS
    try:
        with Image.open(io.BytesIO(raw)) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise ParseFailedError("image_too_large", n_pixels=image.width * image.height)
            return np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise ParseFailedError("damaged", format="image") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ParseFailedError("image_too_large", n_pixels=_MOST_PIXELS) from error


def _engine() -> Any:  # noqa: ANN401 - RapidOCR ships no types
    """Return the recogniser, loaded once a child."""
    global _recogniser  # noqa: PLW0603 - one model a process
    if _recogniser is None:
        from rapidocr import RapidOCR

        logging.getLogger("RapidOCR").setLevel(logging.ERROR)
        _recogniser = RapidOCR(
            params={
                "Global.log_level": "error",
                "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                # Lines are looked for in a smaller picture and read in the whole one: an A4 page
                # at 200 dpi takes 0.4 GB instead of 0.9 (our measurement, x86-64, 2026-12).
                "Det.limit_type": "max",
                "Det.limit_side_len": _DETECT_SIDE,
                "Rec.rec_batch_num": 2,
            }
        )
    return _recogniser


def _in_reading_order(lines: Sequence[tuple[npt.NDArray[np.float32], str]]) -> str:
    """Join lines from top to bottom; boxes at one height are one line, from left to right."""
    rows: list[list[tuple[float, float, float, str]]] = []
    for box, text in sorted(lines, key=lambda item: float(np.mean(item[0][:, 1]))):
        middle, height = float(np.mean(box[:, 1])), float(np.ptp(box[:, 1]))
        item = (float(np.min(box[:, 0])), middle, height, text.strip())
        if rows and middle - rows[-1][0][1] < 0.5 * max(height, rows[-1][0][2]):
            rows[-1].append(item)
        else:
            rows.append([item])
    return "\n".join(" ".join(text for *_, text in sorted(row)) for row in rows)
