"""One entry of a message table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sentence:
    """What happened and what to do next, in both languages; ``{fact}`` fields are filled in."""

    en: str
    zh: str
    en_next: str = ""
    zh_next: str = ""
