"""How fast pinyin candidates come: every prefix of the test list, as a person types it.

python bench/pinyin.py
"""

from __future__ import annotations

import time
from pathlib import Path

from appliance.text import ime

LIST = Path(__file__).parent.parent / "tests" / "text" / "pinyin.txt"


def main() -> None:
    """Print the quantiles."""
    begun = time.perf_counter()
    ime.candidates("a", 1)
    print(f"reading the word list, once: {time.perf_counter() - begun:.1f} s")
    took = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        letters = line.split("\t")[1]
        for end in range(1, len(letters) + 1):
            begun = time.perf_counter()
            ime.candidates(letters[:end], 9)
            took.append((time.perf_counter() - begun) * 1000)
    took.sort()
    print(f"{len(took)} queries: median {took[len(took) // 2]:.2f} ms, ", end="")
    print(f"95 % below {took[int(len(took) * 0.95)]:.2f} ms, longest {took[-1]:.1f} ms")


if __name__ == "__main__":
    main()
