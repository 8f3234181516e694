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
from appliance.system.clock import Clock

_log = logging.getLogger(__name__)

_GATHER_S = 0.2
"""Events within this time are one look: a copied folder is thousands of them."""


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
                if self._clock.wait(self._wake, self._rescan_s):
                    self._clock.wait(self._stopping, _GATHER_S)
        finally:
            self._unwatch()

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
        """Ignore mere reading, which the worker itself does all the time."""
        if event.event_type not in ("opened", "closed_no_write"):
            self._wake.set()
