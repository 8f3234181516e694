"""The catalogue file ``assets/models.yaml`` as typed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from appliance.errors import ModelError, NotFoundError
from appliance.system.assets import asset

Use = Literal["generation", "embedding"]
SourceKind = Literal["hub", "modelscope", "index"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class WheelPart:
    """One wheel that holds one piece of a model file; sizes in bytes."""

    package: str
    version: str
    member: str
    wheel_bytes: int
    wheel_sha256: str
    platform: str | None = None


@dataclass(frozen=True)
class HubSource:
    """One file of a repository on a model hub."""

    kind: Literal["hub", "modelscope"]
    repo: str
    file: str


@dataclass(frozen=True)
class IndexSource:
    """A file spread over wheels of a package index, in order; maybe to be repacked."""

    parts: tuple[WheelPart, ...]
    repack: Literal["e5"] | None = None
    raw_bytes: int | None = None
    raw_sha256: str | None = None
    kind: Literal["index"] = "index"


Source = HubSource | IndexSource


@dataclass(frozen=True)
class Entry:
    """One model. Without ``sha256`` the hub's own digest is pinned at the first pull."""

    name: str
    use: Use
    file: str
    licence: str
    sources: tuple[Source, ...]
    n_bytes: int | None = None
    sha256: str | None = None
    is_starter: bool = False
    ram_mib: int | None = None
    about_en: str = ""
    about_zh: str = ""


@dataclass(frozen=True)
class Catalogue:
    """All entries by name, in the file's order."""

    entries: Mapping[str, Entry]

    def entry(self, name: str) -> Entry:
        """Return the entry called ``name``.

        Raises:
            NotFoundError: there is none; facts list the known names.
        """
        found = self.entries.get(name)
        if found is None:
            raise NotFoundError("model_unknown", name=name, known=", ".join(self.entries))
        return found

    def by_digest(self, sha256: str) -> Entry | None:
        """Return the entry whose file has this digest."""
        return next((e for e in self.entries.values() if e.sha256 == sha256), None)

    @property
    def starters(self) -> list[Entry]:
        """Entries that a fresh box is set up with."""
        return [entry for entry in self.entries.values() if entry.is_starter]


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Return the catalogue in ``path``; without one, that of this installation.

    Raises:
        ModelError: it cannot be read or an entry makes no sense (code ``catalogue_invalid``).
    """
    path = path or asset("models.yaml")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        entries = [_entry(item) for item in document["models"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ModelError("catalogue_invalid", path=str(path), cause=str(error)) from error
    return Catalogue({entry.name: entry for entry in entries})


def _entry(item: dict[str, Any]) -> Entry:
    name, digest = item["name"], item.get("sha256")
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(item["file"]):
        raise ValueError(f"{name}: a name is small letters, digits, dot, dash, underscore")
    if digest is not None and not _DIGEST.fullmatch(digest):
        raise ValueError(f"{name}: sha256 is 64 hexadecimal digits")
    if item["use"] not in ("generation", "embedding"):
        raise ValueError(f"{name}: use is generation or embedding")
    about = item.get("about", {})
    return Entry(
        name=name,
        use=cast("Use", item["use"]),
        file=item["file"],
        licence=item["licence"],
        sources=tuple(_source(name, source) for source in item["sources"]),
        n_bytes=item.get("n_bytes"),
        sha256=digest,
        is_starter=bool(item.get("starter", False)),
        ram_mib=item.get("ram_mib"),
        about_en=about.get("en", ""),
        about_zh=about.get("zh", ""),
    )


def _source(name: str, item: dict[str, Any]) -> Source:
    kind = item["kind"]
    if kind in ("hub", "modelscope"):
        return HubSource(kind, item["repo"], item["file"])
    if kind == "index":
        parts = tuple(WheelPart(**part) for part in item["parts"])
        return IndexSource(parts, item.get("repack"), item.get("raw_bytes"), item.get("raw_sha256"))
    raise ValueError(f"{name}: unknown kind of source {kind}")
