"""A terminal program on the wire: copies between its own terminal and a line, as picocom does.

python wire.py LINE
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import tty


def main(path: str) -> None:
    """Copy until the line or the terminal goes away."""
    tty.setraw(0)
    line = os.open(path, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    with contextlib.suppress(OSError):
        while True:
            ready, _, _ = select.select([0, line], [], [])
            if 0 in ready:
                os.write(line, os.read(0, 4096))
            if line in ready:
                os.write(1, os.read(line, 4096))


if __name__ == "__main__":
    main(sys.argv[1])
