"""Files become passages, passages become vectors; durable, resumable, one file at a time.

The worker looks at the store for pending work, newest file first, and moves each file one state
further per transaction (docs/architecture.md draws the states). It may be killed at any instant:
what was committed stays, what was running is done again. A file that keeps killing the daemon is
given up after ``_MOST_ATTEMPTS`` starts.

Embedding runs whenever no file waits, in batches the engine takes at ingestion priority, so that a
question never waits for more than one of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from appliance.config import Config, IngestConfig
from appliance.engine.base import Embedder, Priority
from appliance.errors import (
    ApplianceError,
    ContextOverflowError,
    EngineError,
    Fact,
    IngestError,
    LimitExceededError,
    ModelError,
    ParseFailedError,
    StoreError,
    StoreFullError,
)
from appliance.parsers import ocr
from appliance.parsers.base import Limits, ParsedDocument
from appliance.parsers.process import ParserProcess
from appliance.parsers.registry import SUFFIXES
from appliance.store import FileRow, ParsedMeta, Store
from appliance.system.clock import Clock
from appliance.text.chunk import NewPassage, chunk, estimate_tokens

_log = logging.getLogger(__name__)

_MOST_ATTEMPTS = 3
_HASH_BLOCK = 1 << 20
_EMBED_BATCH = 16
_RETRY_S = 5.0
_REBUILD = "rebuild_vectors_of"
"""Where the store keeps the embedder whose vectors the owner allowed to replace."""

_EMBED_CONTEXT = 480
"""Tokens of a passage no estimate may exceed: E5 reads 512, prefix and specials included."""


@dataclass(frozen=True)
class Progress:
    """How far reading and embedding are; ``waiting_for`` is a code when work stands still."""

    n_files_waiting: int
    n_files: int
    n_passages_waiting: int
    passages_per_s: float | None
    eta_s: float | None
    current: str | None
    waiting_for: str | None


_PARSE_GRACE_S = 10.0
"""Starting and ending the child come on top of its time limit."""


class IngestWorker:
    """The thread that reads and embeds. ``poke`` tells it that the store has new work."""

    def __init__(
        self,
        config: Config,
        store: Store,
        embedder: Embedder,
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._store = store
        self._embedder = embedder
        self._clock = clock
        self._on_change = on_change
        self._parser = ParserProcess()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._n_steps = 0
        self._parse_ends_by = 0.0
        self._is_embedding = False
        self._current: str | None = None
        self._waiting_for: str | None = None
        self._standing: tuple[str, dict[str, Fact]] | None = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="ingest")
        self._thread.start()

    def stop(self) -> None:
        """Stop at the next safe point, ending a running parse; idempotent."""
        self._stopping.set()
        self._wake.set()
        self._parser.close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def poke(self) -> None:
        """Look for work now."""
        self._wake.set()

    def rebuild(self) -> int:
        """Make every document and vector anew, with the embedder there is; returns how many files.

        Durable: a restart goes on with it. What is there stays searchable until it is replaced.
        """
        self._store.set_meta(_REBUILD, self._store.embedder_id() or "")
        # What the owner removed stays removed.
        known = [file for file in self._store.files() if file.state != "ignored"]
        for file in known:
            self._store.requeue_file(file.path)
        self.poke()
        return len(known)

    def reembed(self) -> int:
        """Make every vector anew with the embedder there is; returns how many passages.

        Nothing is read again. Vectors of another embedder go first, so that none is compared with
        a query it does not understand; keywords answer until the new ones are there.
        """
        self._store.reset_vectors(self._embedder.embedder_id)
        self._store.set_meta(_REBUILD, "")
        self.poke()
        return self._store.count_pending_embeddings()

    def steps(self) -> int:
        """A counter that moves while the thread lives and gets on.

        A parse counts as getting on: the child has a time limit of its own, which may be longer
        than the service manager's patience. So does waiting for the engine, whose counter tells.
        """
        now = self._clock.monotonic()
        if now < self._parse_ends_by:
            return self._n_steps + 1 + int(now)
        return self._n_steps

    @property
    def waits_for_engine(self) -> bool:
        """Whether the thread stands still because answers come before its passages."""
        return self._is_embedding

    def progress(self) -> Progress:
        """Return a snapshot."""
        n_waiting, n_files = self._store.count_files()
        n_passages = self._store.count_pending_embeddings()
        rate = self._rate()
        return Progress(
            n_files_waiting=n_waiting,
            n_files=n_files,
            n_passages_waiting=n_passages,
            passages_per_s=rate,
            eta_s=n_passages / rate if rate and n_passages else None,
            current=self._current,
            waiting_for=self._waiting_for,
        )

    def _rate(self) -> float | None:
        recent = list(self._recent)
        if len(recent) < 2:
            return None
        seconds = recent[-1][0] - recent[0][0]
        return sum(n for _, n in recent[1:]) / seconds if seconds > 0 else None

    def _run(self) -> None:
        is_first = True
        while not self._stopping.is_set():
            self._n_steps += 1
            self._wake.clear()
            try:
                if is_first:
                    self._retry_failed()
                    is_first = False
                is_busy = self._one()
                self._stand_still(None)
            except (StoreError, EngineError, ModelError) as error:
                # A full disk or a loading model ends by itself; work goes on where it stopped.
                self._stand_still(error)
                is_busy = False
            except OSError as error:
                # The system, not a file: no process, memory, descriptor or space to be had.
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                self._stand_still(
                    StoreFullError(path=str(self._config.data))
                    if is_full
                    else IngestError("ingest_short", cause=os.strerror(error.errno or errno.EIO))
                )
                is_busy = False
            if not is_busy:
                self._clock.wait(self._wake, _RETRY_S if self._waiting_for else 1.0)

    def _stand_still(self, reason: ApplianceError | None) -> None:
        """Show why work stands still, None for not; logged when it changes, not every retry."""
        code = reason.code if reason is not None else None
        if code != self._waiting_for and not self._stopping.is_set():
            if reason is not None:
                _log.warning("ingest waits: %s", reason)
            else:
                _log.info("ingest goes on")
        self._waiting_for = code
        # A model that is loading, or missing, is the engine's to report.
        is_ours = isinstance(reason, (StoreError, IngestError))
        self._standing = (reason.code, reason.facts) if reason is not None and is_ours else None

    def standing(self) -> tuple[str, dict[str, Fact]] | None:
        """Return why reading or embedding stands still as (code, facts), None when it does not."""
        return self._standing

    def _retry_failed(self) -> None:
        """Queue failed files again whose reason is gone: a limit was raised, a format came."""
        limits = self._limits()
        for file in self._store.files():
            if file.error_code is not None and is_cured(file, limits):
                _log.info("%s: %s no longer holds", file.display, file.error_code)
                self._store.requeue_file(file.path)
        if limits.ocr == "auto" and ocr.is_installed():
            self._retry_scans()

    def _retry_scans(self) -> None:
        """Queue documents with pages that could not be read before OCR was installed."""
        waiting = {
            row.id
            for row in self._store.documents()
            if any(problem["code"] in _SCANNED for problem in row.problems)
        }
        for file in self._store.files():
            if file.document_id in waiting:
                self._store.requeue_file(file.path)

    def _one(self) -> bool:
        """Do one piece of work; returns whether there was any."""
        for file in self._store.pending_files(limit=64):
            if self._stopping.is_set():
                return False
            if self._is_settled(file):
                self._read(file)
                self._on_change()
                return True
        return self._embed()

    # Reading

    def _is_settled(self, file: FileRow) -> bool:
        """Whether the file stood still for ``inbox.settle_s``; gone files are forgotten."""
        path = self._path(file)
        try:
            found = os.stat(path)  # noqa: PTH116 - bytes
        except FileNotFoundError:
            self._store.forget_file(file.path)
            self._on_change()
            return False
        except OSError:
            return True  # reading it will say why
        if (found.st_size, found.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
            self._store.note_file(file.path, found.st_size, found.st_mtime_ns)
            return False
        age_s = self._clock.time() - found.st_mtime_ns / 1e9
        if 0 <= age_s < self._config.inbox.settle_s:
            return False
        if file.state == "seen":
            self._store.set_file_state(file.path, "settled")
        return True

    def _read(self, file: FileRow) -> None:
        self._current = file.display
        try:
            attempts = self._store.begin_attempt(file.path)
            if attempts > _MOST_ATTEMPTS:
                raise ParseFailedError("parse_gave_up", attempts=_MOST_ATTEMPTS)
            self._take_in(file)
        except IngestError as error:
            if self._stopping.is_set():
                # A clean stop is not the file's doing, however often it comes.
                self._store.undo_attempt(file.path)
                return
            if error.code == "file_vanished":
                self._store.forget_file(file.path)
                return
            _log.info("%s: %s", file.display, error)
            self._store.fail_file(file.path, error.code, error.facts)
        except (StoreError, OSError):
            # Nor is a full disk or a box without memory. If the store cannot even note that, the
            # attempt counts, and the file's next change sets the count to zero.
            with contextlib.suppress(StoreError):
                self._store.undo_attempt(file.path)
            raise
        finally:
            self._current = None

    def _take_in(self, file: FileRow) -> None:
        path = self._path(file)
        limits = self._limits()
        digest, size = self._hash(path, limits)
        self._store.set_file_state(file.path, "hashed")
        if not file.is_asked_for and self._store.link_existing(file.path, digest, file) is not None:
            return
        name = os.fsdecode(os.path.basename(file.path))  # noqa: PTH119 - bytes
        self._parse_ends_by = self._clock.monotonic() + limits.max_seconds + _PARSE_GRACE_S
        try:
            document = self._parser.parse(path, name, limits)
        finally:
            self._parse_ends_by = 0.0
        passages = self._chunk(document)
        if self._hash(path, limits)[0] != digest:
            # It changed while it was read; the new content is read as a change of its own.
            try:
                found = os.stat(path)  # noqa: PTH116 - bytes
            except OSError as error:
                raise ParseFailedError("file_vanished") from error
            self._store.renote_file(file.path, found.st_size, found.st_mtime_ns)
            return
        self._store.commit_document(file.path, digest, size, _meta(document), passages, noted=file)

    def _hash(self, path: bytes, limits: Limits) -> tuple[bytes, int]:
        digest, size = hashlib.sha256(), 0
        try:
            # Not blocking: a pipe put in the file's place must not hold the thread for ever.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as content:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise ParseFailedError("file_unreadable")
                while block := content.read(_HASH_BLOCK):
                    size += len(block)
                    if size > limits.max_file_bytes:
                        size = max(size, os.fstat(content.fileno()).st_size)
                        raise LimitExceededError(
                            "file_too_large", size=size, limit=limits.max_file_bytes
                        )
                    if self._stopping.is_set():
                        raise ParseFailedError("stopped")
                    digest.update(block)
        except FileNotFoundError as error:
            raise ParseFailedError("file_vanished") from error
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            if error.errno == errno.EIO:
                raise ParseFailedError("file_io_error", cause=str(error)) from error
            raise ParseFailedError("file_unreadable") from error
        return digest.digest(), size

    def _chunk(self, document: ParsedDocument) -> list[NewPassage]:
        most = min(self._config.ingest.chunk_tokens, _EMBED_CONTEXT)
        return chunk(
            document.blocks, max_tokens=most, overlap_tokens=most // 8, count=estimate_tokens
        )

    def _limits(self) -> Limits:
        return limits_of(self._config.ingest)

    def _path(self, file: FileRow) -> bytes:
        return os.path.join(os.fsencode(self._config.inbox_dir), file.path)  # noqa: PTH118 - bytes

    # Embedding

    def _embed(self) -> bool:
        batch = self._store.pending_embeddings(_EMBED_BATCH)
        if not batch:
            # Documents without a passage, or whose last vector came before a crash.
            return self._store.finish_documents() > 0
        embedder_id = self._embedder.embedder_id
        indexed_with = self._store.embedder_id()
        if indexed_with is not None and indexed_with != embedder_id:
            if self._store.get_meta(_REBUILD) != indexed_with:
                raise StoreError("embedder_changed", indexed_with=indexed_with)
            self._store.reset_vectors(embedder_id)
            self._store.set_meta(_REBUILD, "")
            batch = self._store.pending_embeddings(_EMBED_BATCH)
        self._is_embedding = True
        try:
            vectors = self._vectors([text for _, text in batch])
        finally:
            self._is_embedding = False
        self._store.add_vectors(embedder_id, [pid for pid, _ in batch], vectors)
        self._recent.append((self._clock.monotonic(), len(batch)))
        self._on_change()
        return True

    def _vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one unit vector per text; shape (len(texts), n_embd).

        The size of a passage is an estimate made before the embedder was there. A text that turns
        out too long for it (formulas, tables of symbols, encoded data) is embedded in halves, whose
        mean stands for it, so that nothing is cut off and no other document waits for it.
        """
        try:
            return self._embedder.embed(texts, "passage", Priority.INGEST_EMBED)
        except ContextOverflowError:
            if len(texts) > 1:
                return np.concatenate([self._vectors([text]) for text in texts])
            (text,) = texts
            if len(text) < 2:
                raise
            middle = len(text) // 2
            space = text.rfind(" ", len(text) // 4, middle) + 1
            cut = space or middle
            parts = self._vectors([text[:cut]]) * cut + self._vectors([text[cut:]]) * (
                len(text) - cut
            )
            length = float(np.linalg.norm(parts)) or 1.0
            return np.asarray(parts / length, dtype=np.float32)


def limits_of(ingest: IngestConfig) -> Limits:
    """Return the limits of one parse as configured."""
    return Limits(
        max_file_bytes=ingest.max_file_bytes,
        max_seconds=ingest.max_seconds,
        max_memory_bytes=ingest.max_memory_bytes,
        max_pages=ingest.max_pages,
        max_inflated_bytes=ingest.max_inflated_bytes,
        ocr=ingest.ocr,
    )


_SCANNED = frozenset({"page_scanned", "image_needs_ocr"})
"""Codes of pages and members that OCR, once installed, can read."""

_LIMIT_OF: dict[str, Callable[[Limits], float]] = {
    "file_too_large": lambda limits: limits.max_file_bytes,
    "too_many_pages": lambda limits: limits.max_pages,
    "archive_bomb": lambda limits: limits.max_inflated_bytes,
    "parse_timeout": lambda limits: limits.max_seconds,
    "parse_memory": lambda limits: limits.max_memory_bytes // (1 << 20),
}
"""The limit that a code is about, in the unit of the number its sentence names."""

_NAMED_AS: dict[str, str] = {"parse_timeout": "seconds", "parse_memory": "limit_mib"}


def is_cured(file: FileRow, limits: Limits) -> bool:
    """Whether the reason why a file failed no longer holds under the limits in force."""
    code = file.error_code
    if code in ("scanned", "image_needs_ocr"):
        return limits.ocr == "auto" and ocr.is_installed()
    if code == "unsupported_format":
        return PurePath(file.display).suffix.lower() in SUFFIXES
    if code not in _LIMIT_OF:
        return False
    then: Fact = file.error_facts.get(_NAMED_AS.get(code, "limit"))
    return isinstance(then, (int, float)) and _LIMIT_OF[code](limits) > then


def _meta(document: ParsedDocument) -> ParsedMeta:
    return ParsedMeta(
        format=document.format,
        title=document.title,
        encoding=document.encoding,
        n_pages=document.n_pages,
        problems=tuple(dataclasses.asdict(problem) for problem in document.problems),
    )
