"""Flip random bytes in sound files of every format and read them: never a hang, never a death.

    python -m tests.faults.flip_bytes --flips 5000 --seed 1

Every file must end with text or with a code that has a sentence; ``parse_crashed`` counts as one,
because it cost only the child, and the table shows how many there were.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from appliance.errors import IngestError
from appliance.parsers.base import Limits
from appliance.parsers.process import ParserProcess
from appliance.units import MIB

LIMITS = Limits(
    max_seconds=20.0, max_memory_bytes=512 * MIB, max_inflated_bytes=64 * MIB, ocr="off"
)


def flip_all(
    parser: ParserProcess, sound: Mapping[str, bytes], folder: Path, n_flips: int, seed: int
) -> Counter[str]:
    """Return how often each outcome came, over ``n_flips`` files with 1 to 20 bytes changed."""
    rng = random.Random(seed)
    codes: Counter[str] = Counter()
    names = sorted(sound)
    for n in range(n_flips):
        name = names[n % len(names)]
        raw = bytearray(sound[name])
        for _ in range(rng.randint(1, 20)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        path = folder / name
        path.write_bytes(raw)
        try:
            document = parser.parse(bytes(path), name, LIMITS)
        except IngestError as error:
            codes[error.code] += 1
        else:
            codes["partial" if document.problems else "ready"] += 1
    return codes


def main() -> int:
    """Run and print the table; 0 when nothing hung and the worker still answers."""
    from tests.parsers import matrix

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--flips", type=int, default=5000)
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    parser = ParserProcess()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        codes = flip_all(parser, matrix.valid(), Path(folder), args.flips, args.seed)
        sound = Path(folder) / "sound.txt"
        sound.write_text("还在。", encoding="utf-8")
        is_alive = parser.parse(bytes(sound), sound.name, LIMITS).blocks[0].text == "还在。"
    parser.close()
    for code, n in codes.most_common():
        print(f"{n:6}  {code}")
    hangs = codes["parse_timeout"]
    print(f"{args.flips} flips in {time.monotonic() - started:.0f} s, {hangs} hangs")
    return 0 if is_alive and not hangs else 1


if __name__ == "__main__":
    sys.exit(main())
