"""What every way of fetching shares: progress, cancel, digests, room on the disk, whole files."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from appliance.errors import DownloadError, ModelError
from appliance.system.files import sync_folder

BLOCK = 1 << 20
_MARGIN = 64 << 20


@dataclass(frozen=True)
class Progress:
    """``n_done`` of ``n_total`` bytes of a model; ``source`` says where they come from now."""

    model: str
    source: str
    n_done: int
    n_total: int | None


# The local disk refused; another source would not help.
LOCAL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


class SourceFailedError(Exception):
    """One source cannot give the file; the message says why, and the next one is tried."""


@dataclass
class Transfer:
    """One pull on its way.

    Args:
        model: catalogue name.
        folder: where unfinished files are kept; only this pull uses it.
        report: called with every progress, from the pulling thread.
        cancel: set it to stop; what was fetched is kept.
    """

    model: str
    folder: Path
    report: Callable[[Progress], None]
    cancel: threading.Event = field(default_factory=threading.Event)
    source: str = ""
    n_total: int | None = None

    def done(self, n_bytes: int) -> None:
        """Report ``n_bytes`` and leave if the pull was cancelled.

        Raises:
            DownloadError: it was (code ``download_cancelled``).
        """
        self.report(Progress(self.model, self.source, n_bytes, self.n_total))
        self.demand_running()

    def demand_running(self) -> None:
        """Leave if the pull was cancelled; see ``done``."""
        if self.cancel.is_set():
            raise DownloadError("download_cancelled", model=self.model)


def demand_room(folder: Path, n_bytes: int, model: str) -> None:
    """Refuse before anything is written when ``n_bytes`` will not fit.

    Raises:
        ModelError: code ``disk_full``; facts name needed and free bytes.
    """
    n_free = shutil.disk_usage(folder).free
    if n_bytes + _MARGIN > n_free:
        raise ModelError(
            "disk_full", model=model, path=str(folder), n_needed=n_bytes + _MARGIN, n_free=n_free
        )


def put_in_place(finished: Path, target: Path) -> None:
    """Move a complete file to its name so that a power cut leaves the old state or the new one."""
    with finished.open("rb") as file:
        os.fsync(file.fileno())
    finished.replace(target)
    sync_folder(target.parent)
