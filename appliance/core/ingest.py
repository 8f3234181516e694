"""Files become passages, passages become vectors; durable, resumable, one file at a time.

The worker looks at the store for pending work, newest file first, and moves each file one state
further per transaction (docs/architecture.md draws the states). It may be killed at any instant:
what was committed stays, what was running is done again. A file that keeps killing the daemon is
given up after ``_MOST_ATTEMPTS`` starts.

Embedding runs whenever no file waits, in batches the engine takes at ingestion priority, so that a
question never waits for more than one of them.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from appliance.config import Config
from appliance.engine.base import Embedder, Priority
from appliance.errors import (
    EngineError,
    IngestError,
    LimitExceededError,
    ModelError,
    ParseFailedError,
    StoreError,
    StoreFullError,
)
from appliance.parsers.base import Limits, ParsedDocument
from appliance.parsers.process import ParserProcess
from appliance.store import FileRow, ParsedMeta, Store
from appliance.system.clock import Clock
from appliance.text.chunk import NewPassage, chunk, estimate_tokens

_log = logging.getLogger(__name__)

_MOST_ATTEMPTS = 3
_HASH_BLOCK = 1 << 20
_EMBED_BATCH = 16
_RETRY_S = 5.0
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
        self._current: str | None = None
        self._waiting_for: str | None = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="ingest")
        self._thread.start()

    def stop(self) -> None:
        """Stop at the next safe point, ending a running parse; idempotent."""
        self._stopping.set()
        self._wake.set()
        self._parser.kill()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._parser.kill()

    def poke(self) -> None:
        """Look for work now."""
        self._wake.set()

    def steps(self) -> int:
        """A counter that moves while the thread lives and gets on."""
        return self._n_steps

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
        while not self._stopping.is_set():
            self._n_steps += 1
            self._wake.clear()
            try:
                is_busy = self._one()
                if is_busy:
                    self._waiting_for = None
            except (StoreError, EngineError, ModelError) as error:
                if self._stopping.is_set():
                    break
                # A full disk or a loading model ends by itself; work goes on where it stopped.
                self._waiting_for = error.code
                _log.warning("ingest waits: %s", error)
                is_busy = False
            if not is_busy:
                self._clock.wait(self._wake, _RETRY_S if self._waiting_for else 1.0)

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
            stat = os.stat(path)  # noqa: PTH116 - bytes
        except FileNotFoundError:
            self._store.forget_file(file.path)
            self._on_change()
            return False
        except OSError:
            return True  # reading it will say why
        if (stat.st_size, stat.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
            self._store.note_file(file.path, stat.st_size, stat.st_mtime_ns)
            return False
        age_s = self._clock.time() - stat.st_mtime_ns / 1e9
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
        except StoreFullError:
            self._store.undo_attempt(file.path)
            raise
        except IngestError as error:
            if self._stopping.is_set():
                return
            if error.code == "file_vanished":
                self._store.forget_file(file.path)
                return
            _log.info("%s: %s", file.display, error)
            self._store.fail_file(file.path, error.code, error.facts)
        finally:
            self._current = None

    def _take_in(self, file: FileRow) -> None:
        path = self._path(file)
        limits = self._limits()
        digest, size = self._hash(path, limits)
        self._store.set_file_state(file.path, "hashed")
        if self._store.link_existing(file.path, digest, file) is not None:
            return
        name = os.fsdecode(os.path.basename(file.path))  # noqa: PTH119 - bytes
        document = self._parser.parse(path, name, limits)
        passages = self._chunk(document)
        if self._hash(path, limits)[0] != digest:
            # It changed while it was read; the new content is read as a change of its own.
            stat = os.stat(path)  # noqa: PTH116 - bytes
            self._store.renote_file(file.path, stat.st_size, stat.st_mtime_ns)
            return
        self._store.commit_document(file.path, digest, size, _meta(document), passages, noted=file)

    def _hash(self, path: bytes, limits: Limits) -> tuple[bytes, int]:
        digest, size = hashlib.sha256(), 0
        try:
            with open(path, "rb") as content:  # noqa: PTH123 - bytes
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
        ingest = self._config.ingest
        return Limits(
            max_file_bytes=ingest.max_file_bytes,
            max_seconds=ingest.max_seconds,
            max_memory_bytes=ingest.max_memory_bytes,
            max_pages=ingest.max_pages,
            max_inflated_bytes=ingest.max_inflated_bytes,
        )

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
            self._waiting_for = "embedder_changed"
            return False
        vectors = self._embedder.embed(
            [text for _, text in batch], "passage", Priority.INGEST_EMBED
        )
        self._store.add_vectors(embedder_id, [pid for pid, _ in batch], vectors)
        self._recent.append((self._clock.monotonic(), len(batch)))
        self._on_change()
        return True


def _meta(document: ParsedDocument) -> ParsedMeta:
    return ParsedMeta(
        format=document.format,
        title=document.title,
        encoding=document.encoding,
        n_pages=document.n_pages,
        problems=tuple({"page": p.page, "code": p.code} for p in document.problems),
    )
