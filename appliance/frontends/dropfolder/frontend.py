"""The watch loop: inotify says when to look, a periodic comparison makes sure nothing was missed.

An event never carries the truth: it only wakes the loop, which compares folder and store as a
whole. So lost events, an overflowing queue, a folder mounted over and changes made while the box
was off are all the same case.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from appliance.core import Core
from appliance.errors import NotFoundError, StoreError
from appliance.frontends.dropfolder import scan
from appliance.frontends.dropfolder.report import StatusFiles
from appliance.system.clock import Clock

_log = logging.getLogger(__name__)

_QUIET_S = 0.2
"""A look waits until no event came for this long: a copied folder is thousands of them."""

_MOST_GATHER_S = 3.0
"""But not longer than this, so that a folder that never rests is read too."""

_STATUS_S = 5.0
"""Seconds between two looks at how far the work is, while there is some."""


class Inbox:
    """Keeps the store's list of files equal to the folder's."""

    def __init__(self, core: Core, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._folder = core.config.inbox_dir
        self._rescan_s = core.config.inbox.rescan_s
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._observer: BaseObserver | None = None
        self._identities: dict[bytes, tuple[int, int]] = {}
        self._looking = threading.Lock()
        self._status = StatusFiles(self._folder)

    def start(self) -> None:
        """Start watching; an inbox that cannot be read is reported and tried again."""
        self._thread = threading.Thread(target=self._run, name="inbox")
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; idempotent."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def rescan(self) -> None:
        """Compare folder and store now; they agree when this returns. Callable from any thread."""
        self._look()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                self._watch()
                self._look()
                self._wait_for_change()
        finally:
            self._unwatch()

    def _wait_for_change(self) -> None:
        """Wait for the next look, writing meanwhile how far the work is."""
        until = self._clock.monotonic() + self._rescan_s
        while not self._stopping.is_set():
            is_busy = self._tell()
            left = until - self._clock.monotonic()
            if left <= 0:
                return
            if self._clock.wait(self._wake, min(left, _STATUS_S) if is_busy else left):
                break
        most = self._clock.monotonic() + _MOST_GATHER_S
        while not self._stopping.is_set() and self._clock.monotonic() < most:
            self._wake.clear()
            if not self._clock.wait(self._wake, _QUIET_S):
                return

    def _tell(self) -> bool:
        """Write the status files; returns whether work is left."""
        try:
            progress = self._core.progress()
            self._status.write(self._core.files(), self._core.documents(), progress)
        except StoreError as error:
            # The next look reports it.
            _log.info("no status files: %s", error)
            return False
        return bool(progress.n_files_waiting or progress.n_passages_waiting)

    def _look(self) -> None:
        with self._looking:
            self._compare()

    def _compare(self) -> None:
        try:
            picture = scan.take(os.fsencode(self._folder))
        except OSError as error:
            self._core.report(
                "inbox",
                "inbox_unreadable",
                {"path": str(self._folder), "cause": error.strerror or str(error)},
            )
            self._unwatch()
            return
        if picture.unreadable:
            folder = os.fsdecode(picture.unreadable[0])
            self._core.report(
                "inbox",
                "inbox_unreadable",
                {"path": str(self._folder / folder), "cause": os.strerror(13)},
            )
        else:
            self._core.report("inbox", None)
        known = self._core.files()
        difference = scan.compare(known, picture, self._identities)
        self._identities = {path: found.identity for path, found in picture.files.items()}
        try:
            self._core.apply(difference.moved, difference.gone, self._noted(difference, picture))
            for file in known:
                if scan.is_readable_again(file, os.fsencode(self._folder), picture):
                    with contextlib.suppress(NotFoundError):
                        self._core.reindex(os.fsdecode(file.path))
        except StoreError as error:
            # A full disk, most likely. Nothing was changed, and the next look finds the same.
            self._core.report("inbox store", error.code, error.facts)
            self._identities = {}
        else:
            self._core.report("inbox store", None)

    def _noted(
        self, difference: scan.Difference, picture: scan.Picture
    ) -> list[tuple[bytes, int, int]]:
        return [
            (path, picture.files[path].size_bytes, picture.files[path].mtime_ns)
            for path in difference.noted
        ]

    def _watch(self) -> None:
        if self._observer is not None and self._observer.is_alive():
            return
        self._unwatch()
        observer = Observer()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            observer.schedule(_Waker(self._wake), str(self._folder), recursive=True)
            observer.start()
        except OSError as error:
            # No inotify (limit reached, network folder): the periodic look still converges.
            _log.info("no change events for %s: %s", self._folder, error)
            return
        self._observer = observer

    def _unwatch(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None and observer.is_alive():
            observer.stop()
            observer.join()


class _Waker(FileSystemEventHandler):
    """Wakes the loop for every event that may change what the folder holds."""

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Ignore mere reading, which the worker does all the time, and our own status files."""
        if event.event_type in ("opened", "closed_no_write"):
            return
        names = [os.path.basename(os.fsencode(path)) for path in (event.src_path, event.dest_path)]  # noqa: PTH119
        if event.is_directory or not all(scan.is_skipped(name) for name in names if name):
            self._wake.set()
