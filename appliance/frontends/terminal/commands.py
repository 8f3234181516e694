"""Lines of the chat: a question, or a slash command with its Chinese aliases; pure.

A command begins with ``/`` or the full-width ``／``. What looks like a path or a fraction
(``/etc/fstab``, ``1/2``) is a question.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# name: aliases; the first alias is the Chinese name shown in Chinese help.
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": ("帮助", "?", "h"),
    "docs": ("文档", "documents"),
    "use": ("使用", "选用", "collection"),
    "sources": ("来源", "出处"),
    "open": ("打开", "查看"),
    "why": ("为什么", "检索"),
    "strict": ("严格",),
    "lang": ("语言", "language"),
    "retry": ("重试", "再问"),
    "status": ("状态",),
    "verbose": ("统计",),
    "privacy": ("隐私", "清除", "clear"),
    "bye": ("退出", "再见", "exit", "quit", "q"),
}

ARGUMENTS = {"use": "C", "open": "N", "strict": "on|off", "lang": "zh|en|auto"}

_NAMES = {alias: name for name, aliases in COMMANDS.items() for alias in (name, *aliases)}


@dataclass(frozen=True)
class Command:
    """A known command and the rest of its line."""

    name: str
    argument: str


@dataclass(frozen=True)
class Unknown:
    """A slash and a word that is no command, with the nearest that is."""

    typed: str
    suggestion: str


@dataclass(frozen=True)
class Ask:
    """A question."""

    text: str


Line = Command | Unknown | Ask


def parse(line: str) -> Line | None:
    """Return what a line asks for; None for an empty one."""
    text = _spaced(line.replace("\u3000", " ").strip())
    if not text:
        return None
    if text[0] not in "/／":
        return Ask(text)
    word, _, rest = text[1:].partition(" ")
    name = word.lower()
    if name in _NAMES:
        return Command(_NAMES[name], rest.strip())
    if not name or "/" in name or any(char.isdigit() for char in name):
        return Ask(text)
    return Unknown(f"/{word}", f"/{_nearest(name)}")


def completions(text: str, collections: Callable[[], Sequence[str]]) -> list[str]:
    """Return the lines that ``text`` may become, for the Tab key.

    Args:
        text: what stands before the cursor.
        collections: names that ``/use`` takes, asked for only when they are needed.
    """
    if text[:1] not in ("/", "／"):
        return []
    word, space, rest = text[1:].partition(" ")
    if not space:
        names = [name for item, aliases in COMMANDS.items() for name in (item, aliases[0])]
        return [text[0] + name for name in names if name.startswith(word.lower())]
    if _NAMES.get(word.lower()) != "use":
        return []
    return [f"{text[0]}{word} {name}" for name in collections() if name.startswith(rest)]


def shown(name: str, lang: str) -> str:
    """Return a command as help lists it, with its argument."""
    word = COMMANDS[name][0] if lang == "zh" else name
    return f"/{word} {ARGUMENTS[name]}" if name in ARGUMENTS else f"/{word}"


def _spaced(text: str) -> str:
    """Return ``/打开2`` as ``/打开 2``: no space is typed between Chinese and a number."""
    head = text.rstrip("0123456789")
    if head != text and head[:1] in "/／" and head[1:].lower() in _NAMES:
        return f"{head} {text[len(head) :]}"
    return text


def _nearest(name: str) -> str:
    found = difflib.get_close_matches(name, list(_NAMES), n=1, cutoff=0.3)
    return found[0] if found else "help"
