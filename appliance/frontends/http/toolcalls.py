"""Tool calls out of an answer's text, piece by piece; pure.

The form is that of Hermes and Qwen, which most chat templates teach:

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

A model that is held to a schema writes no tags, and a small one forgets them now and then. So an
answer that *begins* with ``{"name": ...``, bare
or after ``<tools>``, ``<function_call>`` or a ``json`` fence, is a call too if the name is that of
a tool it was given (``parameters`` is Llama's word for ``arguments``). What turns out to be no call
is given back as the text it was, so that nothing the model said is lost.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_LOOSE_OPENERS = ("<tools>", "<function_call>", "```json", "```", "{")
_LOOSE_CLOSERS = re.compile(r"\s*(</tools>|</function_call>|```)?\s*\Z")
_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


@dataclass(frozen=True)
class CallStart:
    """Call ``index`` begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    """A piece of the JSON of call ``index``'s arguments."""

    index: int
    text: str


Piece = str | CallStart | CallArguments


class CallSplitter:
    """Text in, text and calls out.

    Args:
        names: the tools that were offered.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._held = ""
        self._mode = "start"
        self._arguments: _ObjectEnd | None = None
        self._opened = ""
        self.n_calls = 0

    def feed(self, text: str) -> Iterator[Piece]:
        """Yield what is certain now."""
        self._held += text
        while True:
            before = (self._mode, self._held)
            yield from self._step(is_end=False)
            if (self._mode, self._held) == before:
                return

    def finish(self) -> Iterator[Piece]:
        """Yield what was held back; nothing more will come."""
        while True:
            before = (self._mode, self._held)
            yield from self._step(is_end=True)
            if (self._mode, self._held) == before:
                break
        if self._held:
            yield self._held
            self._held = ""

    def _step(self, *, is_end: bool) -> Iterator[Piece]:
        if self._mode == "start":
            self._look_at_start(is_end=is_end)
        elif self._mode == "text":
            yield from self._text(is_end=is_end)
        elif self._mode in ("call", "loose"):
            yield from self._call(is_end=is_end)
        elif self._mode == "arguments":
            yield from self._more_arguments()
        elif self._mode == "after":
            self._after(is_end=is_end)

    def _look_at_start(self, *, is_end: bool) -> None:
        """Decide whether the answer begins with a call whose tags were forgotten."""
        said = self._held.lstrip()
        for opener in _LOOSE_OPENERS:
            if said.startswith(opener):
                if opener == "```" and not is_end and "```json".startswith(said):
                    return
                self._mode = "loose"
                return
            if not is_end and opener.startswith(said):
                return
        self._mode = "text"

    def _text(self, *, is_end: bool) -> Iterator[Piece]:
        at = self._held.find(_OPEN)
        if at >= 0:
            if before := self._held[:at].rstrip():
                yield before
            self._opened = self._held[len(before) : at + len(_OPEN)]
            self._held = self._held[at + len(_OPEN) :]
            self._mode = "call"
            return
        # White space before a call belongs to the call.
        n_sure = len(self._held[: _certain(self._held, _OPEN)].rstrip())
        if is_end:
            n_sure = 0 if self.n_calls and not self._held.strip() else len(self._held)
            self._held = self._held if n_sure else ""
        shown, self._held = self._held[:n_sure], self._held[n_sure:]
        if shown:
            yield shown

    def _call(self, *, is_end: bool) -> Iterator[Piece]:
        """Look for the call's name; give the text back when it is none."""
        is_loose = self._mode == "loose"
        body, prefix = self._held, ""
        if is_loose:
            prefix = next((o for o in _LOOSE_OPENERS[:-1] if body.lstrip().startswith(o)), "")
            body = body.lstrip()[len(prefix) :] if prefix else body
        head = _HEAD.match(body)
        if head is not None:
            name = _unquoted(head["name"])
            if name is not None and (not is_loose or name in self._names):
                yield self._start(name)
                self._held = body[head.end() :]
                self._arguments = _ObjectEnd()
                self._mode = "arguments"
                return
            yield from self._given_back(prefix if is_loose else self._opened, body)
            return
        whole = body.find(_CLOSE) if not is_loose else -1
        if whole >= 0:
            yield from self._whole(body[:whole], _CLOSE, body[whole + len(_CLOSE) :])
        elif is_end and not is_loose:
            yield from self._whole(body, "", "")
        elif is_end or (is_loose and not _could_begin(body, self._names)):
            yield from self._given_back("", self._held)

    def _whole(self, text: str, closing: str, rest: str) -> Iterator[Piece]:
        """A call in another order of keys, or something else between the tags."""
        try:
            call = json.loads(text)
            name, arguments = call["name"], call.get("arguments", call.get("parameters", {}))
        except (ValueError, TypeError, LookupError, AttributeError):
            yield self._opened + text + closing
        else:
            start = self._start(str(name))
            yield start
            is_text = isinstance(arguments, str)
            said = arguments if is_text else json.dumps(arguments, ensure_ascii=False)
            yield CallArguments(start.index, said)
        self._held, self._mode = rest, "text"

    def _start(self, name: str) -> CallStart:
        start = CallStart(self.n_calls, f"call_{secrets.token_hex(12)}", name)
        self.n_calls += 1
        return start

    def _given_back(self, opened: str, text: str) -> Iterator[Piece]:
        self._held, self._mode = "", "text"
        yield opened + text

    def _more_arguments(self) -> Iterator[Piece]:
        end = self._arguments.feed(self._held) if self._arguments is not None else None
        text = self._held if end is None else self._held[:end]
        self._held = self._held[len(text) :]
        if text:
            yield CallArguments(self.n_calls - 1, text)
        if end is not None:
            self._mode = "after"

    def _after(self, *, is_end: bool) -> None:
        """Swallow the brace and the tag that close a call; then text or the next call follows."""
        rest = self._held.lstrip()
        rest = rest[1:].lstrip() if rest.startswith("}") else rest
        for closer in (_CLOSE, "</tools>", "</function_call>", "```"):
            if rest.startswith(closer):
                self._held, self._mode = rest[len(closer) :].lstrip("\n"), "text"
                return
        is_closing = any(
            c.startswith(rest) for c in (_CLOSE, "</tools>", "</function_call>", "```")
        )
        if is_end or (rest and not is_closing):
            self._held = "" if _LOOSE_CLOSERS.match(rest) else rest
            self._mode = "text"


class _ObjectEnd:
    """Finds where a JSON object ends in text that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_text = False
        self._is_escaped = False

    def feed(self, text: str) -> int | None:
        """Return the offset after the object's last brace, None while it goes on."""
        for at, char in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._is_text:
                self._is_escaped = char == "\\"
                self._is_text = char != '"'
            elif char == '"':
                self._is_text = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return at + 1
        return None


def _certain(text: str, tag: str) -> int:
    """Return how much of ``text`` cannot be the beginning of ``tag``."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return len(text) - length
    return len(text)


def _could_begin(body: str, names: Collection[str]) -> bool:
    """Whether ``body`` could still become the beginning of a call of one of ``names``."""
    said = "".join(body.split())
    heads = (
        f'{{"name":"{name}","{word}":{{' for name in names for word in ("arguments", "parameters")
    )
    return any(head.startswith(said) for head in heads)


def _unquoted(text: str) -> str | None:
    try:
        return str(json.loads(text))
    except ValueError:
        return None
