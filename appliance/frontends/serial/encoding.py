"""What bytes on a line mean: UTF-8, or GB18030 as older terminals in China send it; pure."""

from __future__ import annotations

import codecs
from typing import Literal

Encoding = Literal["auto", "utf-8", "gb18030"]

_LONGEST = 4
"""Bytes of the longest character in either encoding."""


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
        """Return the characters that are complete; a part of one waits for the rest."""
        found: list[str] = []
        self._rest += data
        while self._rest:
            try:
                text, used = codecs.getincrementaldecoder(self.encoding)().decode(self._rest), None
            except UnicodeDecodeError as error:
                text = self._rest[: error.start].decode(self.encoding)
                used = error.start
                if self._may_switch and self._is_gb18030(self._rest[used:]):
                    found.append(text)
                    self.encoding, self._may_switch = "gb18030", False
                    self._rest = self._rest[used:]
                    continue
                found.append(text + "\ufffd")
                self._rest = self._rest[used + 1 :]
                continue
            found.append(text)
            n_read = len(text.encode(self.encoding, "surrogatepass"))
            self._rest = self._rest[n_read:]
            if len(self._rest) >= _LONGEST:
                # Cannot happen with a sound codec; never keep more than one character.
                found.append("\ufffd")
                self._rest = self._rest[1:]
                continue
            break
        return "".join(found)

    def encode(self, text: str) -> bytes:
        """Return text for the far end; what it cannot show becomes a question mark."""
        return text.encode(self.encoding, "replace")

    @staticmethod
    def _is_gb18030(data: bytes) -> bool:
        """Whether the bytes begin with a two- or four-byte character that is text in GB18030."""
        if len(data) < 2:
            return False
        try:
            text = codecs.getincrementaldecoder("gb18030")().decode(data[:_LONGEST])
        except UnicodeDecodeError:
            return False
        return bool(text) and text[0].isprintable()
