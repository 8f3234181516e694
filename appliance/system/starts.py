"""How many starts in a row did not reach a steady box; after enough of them it starts in safe mode.

A marker is written at each start and removed once the box has been steady, or ended on request. A
marker that is still there means the process was killed: a crash in native code, or the watchdog. A
power cut leaves one too, which is no fault of the box, so only markers of this boot count
(``/proc/sys/kernel/random/boot_id``).
"""

from __future__ import annotations

import json
from pathlib import Path

from appliance.system import files

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Starts:
    """The marker in a data folder's run folder.

    Args:
        marker: the file; its folder must exist when ``begin`` is called.
        boot_id: names this boot of the machine.
    """

    def __init__(self, marker: Path, boot_id: str) -> None:
        self._marker = marker
        self._boot_id = boot_id

    def begin(self) -> int:
        """Note a start; returns how many before it, in this boot, did not become steady.

        Raises:
            OSError: the marker cannot be written.
        """
        n_before = self._n_unfinished()
        noted = {"boot": self._boot_id, "n": n_before + 1}
        files.write_whole(self._marker, json.dumps(noted).encode() + b"\n")
        return n_before

    def finish(self) -> None:
        """Note that the box is steady or was told to end."""
        self._marker.unlink(missing_ok=True)

    def _n_unfinished(self) -> int:
        try:
            noted = json.loads(self._marker.read_bytes())
            return int(noted["n"]) if noted["boot"] == self._boot_id else 0
        except (OSError, ValueError, KeyError, TypeError):
            # None yet, or half a file from a power cut: both mean nothing is known against us.
            return 0


def boot_id() -> str:
    """Return what names this boot; the same text everywhere if the system does not say."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
