"""A terminal program on the wire: copies between its own terminal and a line, as picocom does.

    python wire.py LINE [--mute] [--gb18030]

``--mute`` keeps the terminal's answers (where its cursor is) back: a dumb terminal has none.
``--gb18030`` makes it a terminal of that encoding.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import sys
import tty

ANSWER = re.compile(rb"\x1b\[\d+;\d+R")


def main(path: str, options: list[str]) -> None:
    """Copy until the line or the terminal goes away."""
    tty.setraw(0)
    line = os.open(path, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    encoding = "gb18030" if "--gb18030" in options else "utf-8"
    typed = codecs.getincrementaldecoder("utf-8")("replace")
    shown = codecs.getincrementaldecoder(encoding)("replace")
    with contextlib.suppress(OSError):
        while True:
            ready, _, _ = select.select([0, line], [], [])
            if 0 in ready:
                keys = os.read(0, 4096)
                if "--mute" in options:
                    keys = ANSWER.sub(b"", keys)
                os.write(line, typed.decode(keys).encode(encoding))
            if line in ready:
                os.write(1, shown.decode(os.read(line, 4096)).encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
