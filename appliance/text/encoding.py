"""Bytes to text when nobody says in which encoding: UTF-8, UTF-16, GB18030, Big5, windows-1252.

Order of evidence: a byte order mark; the NUL pattern of UTF-16; strict UTF-8 (other text hardly
ever passes); then GB18030, Big5 and UTF-16 without a mark, decoded strictly and judged by how much
of the result is everyday Chinese; then windows-1252, for Latin text with a few accents and curly
quotes. A file cut in the middle of a character is still text: the last bytes are replaced and the
decoder says so.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

_SAMPLE_CHARS = 20_000
_CHINESE = 0.15
"""Share of everyday characters that shows Chinese: real text has about a third, noise under 3 %."""

_HIGH_RUN = re.compile(rb"[\x80-\xff]{4}")
_HIGH_PAIR = re.compile(rb"[\x80-\xff]{2}")

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
    if chinese := _chinese_utf16(raw):
        return _lenient(raw, chinese)
    if raw.count(0) > len(raw) // 1000:
        return None
    utf8 = _cut(raw, "utf-8")
    if utf8 is not None:
        return utf8 if _is_text(utf8.text) else None
    candidates = [c for c in (_cut(raw, "gb18030"), _cut(raw, "big5")) if c is not None]
    if _is_latin(raw, is_alone=not candidates):
        return _cut(raw, "cp1252")
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


def _chinese_utf16(raw: bytes) -> str | None:
    """Chinese text in UTF-16 without a mark: judged by what it says, as its bytes show nothing.

    Other encodings read as UTF-16 give characters from all over the table, hardly one everyday.
    """
    if len(raw) % 2 or len(raw) < 8:
        return None
    sample = raw[: _SAMPLE_CHARS * 2]
    for encoding in ("utf-16-le", "utf-16-be"):
        text = sample.decode(encoding, "ignore")
        n_odd = sum(1 for char in text if not _is_usual(char))
        if _everyday_share(text) > _CHINESE and n_odd <= len(text) // 50:
            return encoding
    return None


def _is_usual(char: str) -> bool:
    """Whether a character belongs to Chinese or Latin text."""
    point = ord(char)
    return (
        0x20 <= point < 0x250
        or char in "\t\n\r\f"
        or 0x2000 <= point < 0x2700
        or 0x3000 <= point < 0x3130
        or 0x3400 <= point < 0xA000
        or 0xF900 <= point < 0xFB00
        or 0xFE30 <= point < 0xFFF0
    )


def _is_latin(raw: bytes, *, is_alone: bool) -> bool:
    """Whether bytes look like windows-1252: mostly ASCII, few others, none of its five gaps.

    Accented letters and curly quotes stand alone or in short runs, Chinese in long ones. When the
    bytes would also pass as Chinese (``is_alone`` false) a single pair of them counts as Chinese.
    """
    sample = raw[: _SAMPLE_CHARS * 2]
    n_high = sum(byte > 0x7F for byte in sample)
    has_gap = any(byte in sample for byte in b"\x81\x8d\x8f\x90\x9d")
    run = _HIGH_RUN if is_alone else _HIGH_PAIR
    return n_high <= len(sample) // 4 and not has_gap and run.search(sample) is None


def _everyday_share(text: str) -> float:
    sample = text[:_SAMPLE_CHARS]
    wide = [char for char in sample if ord(char) > 0x7F]
    return sum(char in _EVERYDAY for char in wide) / len(wide) if wide else 0.0


def _is_text(text: str) -> bool:
    sample = text[:_SAMPLE_CHARS]
    n_control = sum(1 for char in sample if ord(char) < 32 and char not in "\t\n\r\f\v\x1b")
    return n_control <= len(sample) // 200
