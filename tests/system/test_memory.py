from __future__ import annotations

from pathlib import Path

import numpy as np

from appliance.system.memory import machine_memory, process_memory, release_unused

SMAPS = """\
55d0c8a00000-55d0c8a21000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                 100 kB
Pss:                  90 kB
7f0000000000-7f001d000000 r--s 00000000 08:01 1234                       /models/qwen 0.5b.gguf
Size:             475136 kB
Rss:              400000 kB
7f0020000000-7f0020001000 r--s 00000000 08:01 99                         /models/old.gguf (deleted)
Rss:                4000 kB
7f0030000000-7f0030001000 r-xp 00000000 08:01 77                         /usr/lib/libc.so.6
Rss:                 900 kB
"""


def test_process_memory_tells_mapped_models_apart(tmp_path: Path) -> None:
    path = tmp_path / "smaps"
    path.write_text(SMAPS, encoding="ascii")

    found = process_memory(path)

    assert found.model_files == 404_000 * 1024
    assert found.resident == 405_000 * 1024


def test_process_memory_of_this_process_agrees_with_statm() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])

    found = process_memory()

    assert abs(found.resident - pages * 4096) < 0.1 * found.resident
    # Other tests may have left a model mapped here; it is never more than all there is.
    assert 0 <= found.model_files < found.resident


def test_machine_memory_reads_total_and_available(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 4000 kB\nMemFree: 1 kB\nMemAvailable: 3000 kB\n", encoding="ascii")

    found = machine_memory(path)

    assert (found.total, found.available) == (4_096_000, 3_072_000)


def test_release_unused_gives_freed_memory_back() -> None:
    # Pieces below malloc's threshold for mappings of their own, with one kept above them.
    pieces = [np.ones(8_000) for _ in range(800)]
    kept = np.ones(8_000)
    before = process_memory().resident
    del pieces

    release_unused()

    assert before - process_memory().resident > 30_000_000
    assert kept[0] == 1
