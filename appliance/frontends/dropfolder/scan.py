"""Two pictures of the inbox in, differences out; pure but for the walk itself.

What is skipped: names that begin with a dot or ``~$`` or end in ``.part``, ``.tmp``, ``.swp``,
``.crdownload`` or ``~`` (copies and downloads on their way), our own status files, and all that is
neither a file nor a folder. Links are followed only to plain files inside the inbox: a link to a
folder could loop, and one that leads out of the inbox would publish what nobody dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from appliance.core import FileRow

_TEMPORARY_ENDS = (b".part", b".tmp", b".crdownload", b".swp", b"~")
_OWN = frozenset({b"_STATUS.txt", b"_status.json", b"_IMPORT.txt"})


@dataclass(frozen=True)
class Found:
    """A file on disk; ``identity`` is (device, inode), which a rename keeps."""

    size_bytes: int
    mtime_ns: int
    identity: tuple[int, int]


@dataclass(frozen=True)
class Difference:
    """What must be done so that the store knows what the folder holds."""

    noted: tuple[bytes, ...] = ()
    gone: tuple[bytes, ...] = ()
    moved: tuple[tuple[bytes, bytes], ...] = ()


@dataclass
class Picture:
    """All files below the inbox by relative path, and folders that could not be read."""

    files: dict[bytes, Found] = field(default_factory=dict)
    unreadable: list[bytes] = field(default_factory=list)


def is_skipped(name: bytes) -> bool:
    """Whether a file or folder of that name is none of our business."""
    return name.startswith((b".", b"~$")) or name.lower().endswith(_TEMPORARY_ENDS) or name in _OWN


def take(inbox: bytes) -> Picture:
    """Walk the inbox.

    Raises:
        OSError: the inbox itself cannot be read; a sub-folder that cannot is listed instead.
    """
    picture = Picture()
    root = os.path.realpath(inbox)
    folders: list[bytes] = [b""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(os.path.join(inbox, folder)))  # noqa: PTH118 - bytes
        except OSError:
            if not folder:
                raise
            picture.unreadable.append(folder)
            continue
        for entry in entries:
            if is_skipped(entry.name):
                continue
            path = os.path.join(folder, entry.name)  # noqa: PTH118 - bytes
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                    continue
                if entry.is_symlink() and not _leads_inside(entry.path, root):
                    continue
                if entry.is_file():
                    stat = entry.stat()
                    picture.files[path] = Found(
                        stat.st_size, stat.st_mtime_ns, (stat.st_dev, stat.st_ino)
                    )
            except OSError:
                # It vanished between listing and looking, or is a link that leads in a circle.
                continue
    return picture


def _leads_inside(path: bytes, root: bytes) -> bool:
    return os.path.realpath(path).startswith(root + b"/")


def compare(
    known: Iterable[FileRow],
    picture: Picture,
    remembered: Mapping[bytes, tuple[int, int]],
) -> Difference:
    """Return what changed.

    Args:
        known: the store's files.
        picture: what is on disk.
        remembered: identities of the last walk by path, to tell a rename from a new file; without
            it a rename is a removal and an addition, which costs a hash but no second parse.
    """
    rows = {row.path: row for row in known}
    below_unreadable = tuple(folder + b"/" for folder in picture.unreadable)
    gone = {
        path
        for path in rows
        # Nothing is known about files below a folder that cannot be read; they are kept.
        if path not in picture.files and not path.startswith(below_unreadable)
    }
    new = {path for path in picture.files if path not in rows}
    by_identity = {remembered[path]: path for path in gone if path in remembered}
    moved: list[tuple[bytes, bytes]] = []
    for path in sorted(new):
        found = picture.files[path]
        old = by_identity.pop(found.identity, None)
        if old is None:
            continue
        row = rows[old]
        if (row.size_bytes, row.mtime_ns) == (found.size_bytes, found.mtime_ns):
            moved.append((old, path))
            gone.discard(old)
            new.discard(path)
    changed = {
        path
        for path, found in picture.files.items()
        if path in rows
        and (rows[path].size_bytes, rows[path].mtime_ns) != (found.size_bytes, found.mtime_ns)
    }
    return Difference(tuple(sorted(new | changed)), tuple(sorted(gone)), tuple(moved))


def is_readable_again(file: FileRow, inbox: bytes, picture: Picture) -> bool:
    """Whether a file that might not be read may be now: ``chmod`` changes neither size nor time."""
    return (
        file.error_code == "file_unreadable"
        and file.path in picture.files
        and os.access(os.path.join(inbox, file.path), os.R_OK)  # noqa: PTH118 - bytes
    )
