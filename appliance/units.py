"""Units as types, so that a token count is never passed where bytes are meant."""

from __future__ import annotations

from typing import NewType

Bytes = NewType("Bytes", int)
Tokens = NewType("Tokens", int)
Ms = NewType("Ms", float)
Cols = NewType("Cols", int)

MIB = 1024 * 1024
GIB = 1024 * MIB


def human_bytes(n: int) -> str:
    """Return ``n`` bytes in the largest binary unit that keeps it readable, e.g. ``1.4 GiB``."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{int(size)} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
