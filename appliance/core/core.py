"""The facade: the only object a front end receives.

Front ends take every type they need from this package (``appliance.core``); they never import the
engine, the store or a parser.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from appliance.config import Config
from appliance.core.chat import Assistant, Question, Turn
from appliance.core.conversations import Conversations
from appliance.core.ingest import IngestWorker, Progress, limits_of
from appliance.core.pages import Page, Pages
from appliance.core.retrieve import Retriever, SearchResult
from appliance.core.selftest import SelfTest
from appliance.core.switch import ModelSwitch
from appliance.engine.base import Engine, EngineStatus, Generation, GenerationRequest, Priority
from appliance.engine.embedding import shortened
from appliance.errors import (
    BadRequestError,
    Fact,
    LimitExceededError,
    NotFoundError,
    StoreFullError,
)
from appliance.store import EVERYWHERE, DocumentRow, FileRow, PassageRow, Scope, Store
from appliance.system import files
from appliance.system.clock import Clock

_log = logging.getLogger(__name__)

DOCUMENTS_MODEL = "documents"
"""Model name under which the OpenAI API answers from the documents."""

_COPY_BYTES = 1024 * 1024


class Core:
    """Questions, search, documents and status of one box; any thread may call any method.

    The daemon builds the parts and owns their lives; the facade only joins them.
    """

    def __init__(
        self, config: Config, store: Store, engine: Engine, ingest: IngestWorker, clock: Clock
    ) -> None:
        self.config = config
        self._store = store
        self._engine = engine
        self._ingest = ingest
        self._clock = clock
        self._started = clock.monotonic()
        self._retriever = Retriever(store, engine, config.search)
        self.conversations = Conversations(store, keep=config.assistant.keep_history)
        self._assistant = Assistant(
            engine, self._retriever, self.conversations, config.assistant, clock
        )
        self.selftest = SelfTest(store, self._assistant, config.search, config.assistant)
        self.switch = ModelSwitch(config, engine)
        self._pages = Pages(store, os.fsencode(config.inbox_dir), limits_of(config.ingest))
        self._problems: dict[str, tuple[str, dict[str, Fact]]] = {}

    # Questions

    def ask(self, question: Question) -> Turn:
        """Return the turn that answers from the documents; see ``Assistant.ask``."""
        return self._assistant.ask(question)

    def generate(self, request: GenerationRequest) -> Generation:
        """Queue a bare model request; see ``Engine.generate``."""
        return self._engine.generate(request)

    def embed(
        self,
        texts: Sequence[str],
        kind: Literal["query", "passage"] = "passage",
        n_dimensions: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Return unit vectors for texts; see ``Embedder.embed`` and ``embedding.shortened``."""
        vectors = self._engine.embed(texts, kind, Priority.QUERY_EMBED)
        return shortened(vectors, n_dimensions, self._engine.embedder_id)

    def count_embed_tokens(self, text: str) -> int:
        """Return tokens of ``text`` as the embedder counts them."""
        return self._engine.count_embed_tokens(text)

    def search(
        self,
        query: str,
        *,
        k: int = 8,
        collection: str | None = None,
        scope: Scope = EVERYWHERE,
    ) -> SearchResult:
        """Return passages for a query; works while models load, by keywords alone."""
        return self._retriever.search(query, k=k, collection=collection, scope=scope)

    # Documents

    def documents(self) -> list[DocumentRow]:
        """Return every document that has passages, newest first."""
        return self._store.documents()

    def files(self) -> list[FileRow]:
        """Return every file the box knows of, with its state and reason."""
        return self._store.files()

    def document(self, document_id: int) -> DocumentRow:
        """Return one document.

        Raises:
            NotFoundError: no such document.
        """
        return self._store.document(document_id)

    def passages(self, document_id: int) -> list[PassageRow]:
        """Return a document's passages in reading order."""
        return self._store.passages(document_id)

    def page(
        self, document_id: int, number: int, quote: str = "", *, as_text: bool = False
    ) -> Page:
        """Return the page a citation points at, the quote marked; see ``Pages.page``."""
        return self._pages.page(document_id, number, quote, as_text=as_text)

    def collections(self) -> list[str]:
        """Return the names of sub-folders that hold files, sorted."""
        return sorted({file.collection for file in self._store.files() if file.collection})

    def find_file(self, name: str) -> FileRow:
        """Return the file called ``name``: its shown path, or the bare name if only one has it.

        Raises:
            NotFoundError: no file, or several, answer to that name.
        """
        known = self._store.files()
        exact = [file for file in known if file.display == name or os.fsencode(name) == file.path]
        by_name = [file for file in known if PurePosixPath(file.display).name == name]
        for found in (exact, by_name):
            if len(found) == 1:
                return found[0]
        raise NotFoundError("document_not_found", name=name)

    def remove(self, name: str) -> FileRow:
        """Forget a file's text; it stays in the folder and is ignored until its bytes change."""
        file = self.find_file(name)
        self._store.ignore_file(file.path)
        self._ingest.poke()
        return file

    def reindex(self, name: str) -> FileRow:
        """Read a file again, also one that was removed or failed."""
        file = self.find_file(name)
        self._store.requeue_file(file.path)
        self._ingest.poke()
        return file

    def reindex_all(self) -> int:
        """Read every file again and make every vector anew; returns the number of files."""
        return self._ingest.rebuild()

    def reembed(self) -> int:
        """Make every vector anew without reading files again; returns the number of passages."""
        return self._ingest.reembed()

    def vacuum(self) -> tuple[int, int]:
        """Give freed space back; returns the store's bytes before and after."""
        return self._store.vacuum()

    def upload(self, name: str, content: BinaryIO, collection: str = "") -> str:
        """Write an upload into the inbox, whole or not at all; never over another file.

        Returns:
            The path inside the inbox that it got, ``name (2).ext`` if the name was taken.

        Raises:
            BadRequestError: the name or collection is no plain file or folder name.
            LimitExceededError: larger than ``http.max_upload_bytes``.
            StoreFullError: no space left.
        """
        for part in [name, *PurePosixPath(collection).parts]:
            is_plain = part == PurePosixPath(part).name and part not in ("", ".", "..")
            if not is_plain or part.startswith(".") or "\\" in part or not part.isprintable():
                raise BadRequestError("upload_bad_name", name=part)
        folder = self.config.inbox_dir / collection
        folder.mkdir(parents=True, exist_ok=True)
        limit = self.config.http.max_upload_bytes
        try:
            with files.new_file_beside(folder / name) as target:
                size = 0
                while block := content.read(_COPY_BYTES):
                    size += len(block)
                    if size > limit:
                        raise LimitExceededError("file_too_large", size=size, limit=limit)
                    target.write(block)
                path = target.commit()
        except OSError as error:
            raise StoreFullError(path=str(folder)) from error
        return path.relative_to(self.config.inbox_dir).as_posix()

    def apply(
        self,
        moved: Sequence[tuple[bytes, bytes]],
        gone: Sequence[bytes],
        noted: Sequence[tuple[bytes, int, int]],
    ) -> None:
        """Make the store's list of files follow the folder's.

        Args:
            moved: (old, new) paths of renamed files.
            gone: paths that are no longer there.
            noted: (path, bytes, mtime in ns) of new or changed files.
        """
        if moved or gone or noted:
            self._store.apply_listing(moved, gone, noted)
            self._ingest.poke()

    # State

    def progress(self) -> Progress:
        """Return how far reading and embedding are."""
        return self._ingest.progress()

    def stats(self) -> dict[str, Any]:
        """Return the counts of ``kb stats``."""
        return self._store.stats()

    def check(self) -> list[str]:
        """Return inconsistencies of the store; an empty list is a healthy one."""
        return self._store.check()

    def report(self, name: str, code: str | None, facts: dict[str, Fact] | None = None) -> None:
        """Set or clear (``code`` None) a standing problem that ``status`` shows."""
        if code is None:
            if self._problems.pop(name, None) is not None:
                _log.info("%s: fine again", name)
        elif self._problems.get(name) != (code, facts or {}):
            _log.warning("%s: %s %s", name, code, facts)
            self._problems[name] = (code, facts or {})

    def problems(self) -> list[tuple[str, dict[str, Fact]]]:
        """Return standing problems as (code, facts)."""
        found = list(self._problems.values())
        standing = self._ingest.standing()
        if standing is not None and standing[0] not in (code for code, _ in found):
            found.append(standing)
        return found

    def engine_status(self) -> EngineStatus:
        """Return a snapshot of the engine."""
        return self._engine.status()

    def steps(self) -> tuple[int, int]:
        """Return the progress counters of engine and ingest worker for the watchdog."""
        engine = self._engine.steps()
        return engine, engine if self._ingest.waits_for_engine else self._ingest.steps()
