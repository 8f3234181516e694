"""What this process and the machine use of memory, from /proc."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s*(.*)$")


@dataclass(frozen=True)
class ProcessMemory:
    """Resident bytes of a process; ``model_files`` is the part that is mapped ``.gguf`` files.

    Mapped weights are the kernel's to drop and count to the page cache; they are told apart so that
    the box's own use can be named.
    """

    resident: int
    model_files: int


@dataclass(frozen=True)
class MachineMemory:
    """Bytes of RAM in the machine, and what could still be had without swapping."""

    total: int
    available: int


def process_memory(smaps: Path = Path("/proc/self/smaps")) -> ProcessMemory:
    """Return the resident memory of a process, read from its smaps."""
    resident = model_files = 0
    is_model = False
    with smaps.open("rb") as lines:
        for line in lines:
            if line.startswith(b"Rss:"):
                size = int(line.split()[1]) * 1024
                resident += size
                model_files += size if is_model else 0
            elif found := _MAPPING.match(line):
                is_model = found[1].removesuffix(b" (deleted)").endswith(b".gguf")
    return ProcessMemory(resident, model_files)


_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h


def prefer_small_heap() -> None:
    """Have glibc keep less of what is freed; call before threads start.

    Large blocks become mappings of their own, which go back to the kernel when freed, however large
    the blocks before them were; and threads share two heaps. That took 6 to 9 MiB off the idle
    daemon with the starter models (five starts, x86-64, glibc 2.36, 2026-12-01).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 128 * 1024)
        mallopt(_M_ARENA_MAX, 2)


def release_unused() -> None:
    """Hand memory that was freed back to the kernel; a few milliseconds.

    glibc keeps what loading a model or reading a document freed: 4 MB after the starter models
    (x86-64, glibc 2.36, 2026-12-01). Other C libraries have no such call and need none.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def machine_memory(meminfo: Path = Path("/proc/meminfo")) -> MachineMemory:
    """Return the machine's memory."""
    found: dict[str, int] = {}
    for line in meminfo.read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = int(rest.split()[0]) * 1024
    return MachineMemory(found["MemTotal"], found["MemAvailable"])
