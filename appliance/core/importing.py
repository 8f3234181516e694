"""Documents from a stick or any folder into the inbox: looked at first, copied whole, reported.

The source is only ever read: nothing is written, moved or marked on it. Every file that is not
taken is named with the reason. A copy that is stopped leaves whole files and can be run again: what
is there already is known by its bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from appliance.errors import Fact, LimitExceededError, NotFoundError, StoreFullError
from appliance.parsers.registry import SUFFIXES
from appliance.system import files

_BLOCK = 1 << 20
_SPARE_BYTES = 256 << 20
"""Left free on the disk of the inbox: the store grows too."""

_SKIPPED_FOLDERS = frozenset({"System Volume Information", "$RECYCLE.BIN", "lost+found"})


@dataclass(frozen=True)
class Found:
    """A file of the source with its path below it."""

    path: Path
    relative: Path
    size_bytes: int


@dataclass
class Report:
    """What an import did; ``left_out`` holds (path, code, facts)."""

    source: str
    target: str
    copied: list[str] = field(default_factory=list)
    already_there: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str, dict[str, Fact]]] = field(default_factory=list)
    n_bytes: int = 0


def look(source: Path, *, max_files: int, max_file_bytes: int, report: Report) -> list[Found]:
    """Return the documents below ``source`` in path order; what is left out goes to ``report``.

    Links are not followed: they may lead anywhere on the box.

    Raises:
        NotFoundError: ``import_no_folder``.
        LimitExceededError: ``import_too_many``; nothing was copied.
    """
    if not source.is_dir():
        raise NotFoundError("import_no_folder", path=str(source))
    found: list[Found] = []

    def unreadable(error: OSError) -> None:
        name = os.path.relpath(error.filename or source, source)
        report.left_out.append((name, "file_unreadable", {}))

    for folder, names, members in os.walk(source, onerror=unreadable):
        names[:] = sorted(
            n for n in names if not n.startswith((".", "~$")) and n not in _SKIPPED_FOLDERS
        )
        for name in sorted(members):
            path = Path(folder) / name
            relative = path.relative_to(source)
            shown = os.fsencode(relative).decode("utf-8", "replace")
            if name.startswith((".", "~$")):
                continue
            if path.is_symlink() or not path.is_file():
                report.left_out.append((shown, "import_link", {}))
            elif path.suffix.lower() not in SUFFIXES:
                facts: dict[str, Fact] = {
                    "suffix": path.suffix.lower() or "?",
                    "supported": " ".join(sorted(SUFFIXES)),
                }
                report.left_out.append((shown, "unsupported_format", facts))
            elif (size := path.stat().st_size) > max_file_bytes:
                limit: dict[str, Fact] = {"size": size, "limit": max_file_bytes}
                report.left_out.append((shown, "file_too_large", limit))
            else:
                found.append(Found(path, relative, size))
    if len(found) > max_files:
        raise LimitExceededError("import_too_many", n_files=len(found), limit=max_files)
    return found


def import_folder(
    source: Path,
    inbox: Path,
    *,
    max_files: int,
    max_file_bytes: int,
    on_progress: Callable[[int, int, str], None] = lambda _done, _total, _name: None,
) -> Report:
    """Copy the documents below ``source`` to ``inbox/import/NAME``, folders kept.

    Args:
        source: a mounted stick or any folder.
        inbox: the inbox.
        max_files: most documents; more are refused before anything is copied.
        max_file_bytes: larger files are left out.
        on_progress: called with (copied, total, path) before each file.

    Raises:
        NotFoundError, LimitExceededError: see ``look``.
        StoreFullError: the documents do not fit; nothing was copied.
    """
    source = source.resolve()
    target = inbox / "import" / (source.name or "disk")
    report = Report(str(source), str(target))
    if inbox.resolve() in (source, *source.parents):
        raise NotFoundError("import_no_folder", path=str(source))
    found = look(source, max_files=max_files, max_file_bytes=max_file_bytes, report=report)
    inbox.mkdir(parents=True, exist_ok=True)
    needed = sum(item.size_bytes for item in found)
    if needed + _SPARE_BYTES > shutil.disk_usage(inbox).free:
        raise StoreFullError("import_no_space", needed=needed, path=str(inbox))
    for n, item in enumerate(found):
        shown = os.fsencode(item.relative).decode("utf-8", "replace")
        on_progress(n, len(found), shown)
        try:
            if _copy(item.path, target / item.relative):
                report.copied.append(shown)
                report.n_bytes += item.size_bytes
            else:
                report.already_there.append(shown)
        except OSError as error:
            # A worn stick fails in places; the rest of it is still good.
            report.left_out.append((shown, "file_io_error", {"cause": error.strerror or "?"}))
    return report


def _copy(path: Path, wanted: Path) -> bool:
    """Copy one file whole; returns False when its bytes are there under that name already."""
    if wanted.exists() and files.sha256_of(wanted) == files.sha256_of(path):
        return False
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb") as content, files.new_file_beside(wanted) as target:
        while block := content.read(_BLOCK):
            target.write(block)
        target.commit()
    return True
