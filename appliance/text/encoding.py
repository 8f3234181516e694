"""Bytes to text when nobody says in which encoding: UTF-8, UTF-16, GB18030 or Big5.

Order of evidence: a byte order mark; the NUL pattern of UTF-16; strict UTF-8 (other text hardly
ever passes); then GB18030 against Big5, decoded strictly and judged by how much of the result is
everyday Chinese. A file cut in the middle of a character is still text: the last bytes are replaced
and the decoder says so.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

_SAMPLE_CHARS = 20_000

# The most frequent characters of written Chinese, simplified and traditional forms; frequency lists
# agree on these. They cover about a third of running text, and wrong decodings hold hardly any.
_EVERYDAY = frozenset(
    "的一是不了在人有我他这这中大来上个国到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可"
    "里后小么心多天而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从"
    "動學國們這個來說時會對過後麼開點無從為與電話資訊請網頁書館圖間問題處長實際應該並將場關體機業務產據"
    "，。、；：？！“”（）《》「」"
)


@dataclass(frozen=True)
class Decoded:
    """Text with the encoding it was in; ``n_replaced`` counts characters that could not be read."""

    text: str
    encoding: str
    n_replaced: int = 0


def decode(raw: bytes) -> Decoded | None:
    """Return the text of ``raw``, or None when it is not text (binary)."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if raw.startswith(mark):
            return _lenient(raw, encoding)
    if wide := _utf16_without_mark(raw):
        return _lenient(raw, wide)
    if raw.count(0) > len(raw) // 1000:
        return None
    utf8 = _cut(raw, "utf-8")
    if utf8 is not None:
        return utf8 if _is_text(utf8.text) else None
    candidates = [c for c in (_cut(raw, "gb18030"), _cut(raw, "big5")) if c is not None]
    if candidates:
        best = max(candidates, key=lambda c: _everyday_share(c.text))
        if _is_text(best.text):
            return best
    # Damaged in places: take the encoding that loses least, if that is little.
    damaged = min(
        (_lenient(raw, e) for e in ("utf-8", "gb18030", "big5")), key=lambda d: d.n_replaced
    )
    is_readable = damaged.n_replaced <= len(damaged.text) // 50
    return damaged if is_readable and _is_text(damaged.text) else None


def _cut(raw: bytes, encoding: str) -> Decoded | None:
    """Decode strictly, forgiving only a character cut off at the very end."""
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    try:
        text = decoder.decode(raw, final=False)
    except UnicodeDecodeError:
        return None
    pending = decoder.getstate()[0]
    return Decoded(text + ("\ufffd" if pending else ""), encoding, 1 if pending else 0)


def _lenient(raw: bytes, encoding: str) -> Decoded:
    text = raw.decode(encoding, "replace")
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    return Decoded(text.removeprefix("\ufeff"), name, text.count("\ufffd"))


def _utf16_without_mark(raw: bytes) -> str | None:
    """Latin text in UTF-16 has a NUL in every other place."""
    sample = raw[:4000]
    if len(sample) < 4 or len(raw) % 2:
        return None
    half = len(sample) // 2
    low, high = sample[0::2].count(0), sample[1::2].count(0)
    if high > half * 0.3 and low < half * 0.05:
        return "utf-16-le"
    if low > half * 0.3 and high < half * 0.05:
        return "utf-16-be"
    return None


def _everyday_share(text: str) -> float:
    sample = text[:_SAMPLE_CHARS]
    wide = [char for char in sample if ord(char) > 0x7F]
    return sum(char in _EVERYDAY for char in wide) / len(wide) if wide else 0.0


def _is_text(text: str) -> bool:
    sample = text[:_SAMPLE_CHARS]
    n_control = sum(1 for char in sample if ord(char) < 32 and char not in "\t\n\r\f\v\x1b")
    return n_control <= len(sample) // 200
