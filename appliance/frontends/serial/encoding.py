"""What bytes on a line mean: UTF-8, or GB18030 as older terminals in China send it; pure."""

from __future__ import annotations

import codecs
from typing import Literal

Encoding = Literal["auto", "utf-8", "gb18030"]

_LONGEST = 4
"""Bytes of the longest character in either encoding."""

_MOST_HELD = 64
"""Bytes that wait for a decision; a long run of two-byte characters is a script of its own."""


class TextCodec:
    """Decodes what comes in and encodes what goes out.

    With ``auto`` a line begins as UTF-8. The first bytes that cannot be UTF-8 but can be GB18030
    switch both directions to GB18030, until ``reset``.
    """

    def __init__(self, encoding: Encoding = "auto") -> None:
        self._wanted: Encoding = encoding
        self._rest = b""
        self.reset()

    def reset(self) -> None:
        """Begin anew, as with another terminal at the far end."""
        self.encoding = "utf-8" if self._wanted == "auto" else self._wanted
        self._may_switch = self._wanted == "auto"
        self._rest = b""

    def decode(self, data: bytes) -> str:
        """Return the characters that are complete and certain; the others wait for more bytes."""
        self._rest += data
        found: list[str] = []
        while self._rest:
            text, n_read, is_broken = self._valid_start(self._rest)
            if is_broken and self._may_switch:
                # GB18030 pairs may pass as two-byte UTF-8: "图" is the bytes of a Greek sign.
                start = n_read - _ambiguous_tail(text)
                verdict = self._is_gb18030(self._rest[start:])
                if verdict is None:
                    # Half a character so far; the next byte tells.
                    found.append(self._rest[:start].decode("utf-8"))
                    self._rest = self._rest[start:]
                    break
                if verdict:
                    found.append(self._rest[:start].decode("utf-8"))
                    self._rest = self._rest[start:]
                    self.encoding, self._may_switch = "gb18030", False
                    continue
            if is_broken:
                found.append(text + "\ufffd")
                self._rest = self._rest[n_read + 1 :]
                continue
            n_held = _ambiguous_tail(text) if self._may_switch else 0
            if n_held > _MOST_HELD:
                n_held = 0
            found.append(self._rest[: n_read - n_held].decode(self.encoding))
            self._rest = self._rest[n_read - n_held :]
            break
        return "".join(found)

    def _valid_start(self, data: bytes) -> tuple[str, int, bool]:
        """Return the valid text data begins with, its bytes, and whether what follows is broken."""
        decoder = codecs.getincrementaldecoder(self.encoding)()
        try:
            text = decoder.decode(data)
        except UnicodeDecodeError as error:
            return data[: error.start].decode(self.encoding), error.start, True
        n_pending = len(decoder.getstate()[0])
        return text, len(data) - n_pending, False

    def encode(self, text: str) -> bytes:
        """Return text for the far end; what it cannot show becomes a question mark."""
        return text.encode(self.encoding, "replace")

    @staticmethod
    def _is_gb18030(data: bytes) -> bool | None:
        """Whether the bytes begin with a character that is text in GB18030; None: not yet known."""
        try:
            text = codecs.getincrementaldecoder("gb18030")().decode(data[:_LONGEST])
        except UnicodeDecodeError as error:
            text = data[: error.start].decode("gb18030")
            return bool(text) and text[0].isprintable()
        if not text:
            return None
        return text[0].isprintable()


def _ambiguous_tail(text: str) -> int:
    """Return bytes of the characters at the end that are two bytes of UTF-8 and may be GB18030."""
    n_bytes = 0
    for char in reversed(text):
        if not "\x80" <= char <= "\u07ff":
            break
        n_bytes += 2
    return n_bytes
