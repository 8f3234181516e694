"""Tell what a model thinks from what it says: ``<think> ... </think>`` in its stream of text.

The tags may be spread over any number of tokens, so whatever could be the beginning of one is held
back until it is certain. No tag is ever shown, in either channel, wherever the model writes it.
White space around the tags belongs to the tags.
"""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"
_TAGS = (OPEN, CLOSE)
_LONGEST = max(map(len, _TAGS))


class ThoughtSplitter:
    """Text in, ``(said, thought)`` out.

    Args:
        is_thinking: whether the prompt ended inside a thought already.
    """

    def __init__(self, *, is_thinking: bool = False) -> None:
        self.is_thinking = is_thinking
        self._held = ""
        self._trims = False
        self._shown = {False: "", True: ""}

    def feed(self, text: str) -> tuple[str, str]:
        """Return what is certain now to be said and to be thought."""
        self._held += text
        shown = {False: "", True: ""}
        while (found := _first_tag(self._held)) is not None:
            at, tag = found
            shown[self.is_thinking] += self._taken(at, is_end=True)
            self._held = self._held[len(tag) :]
            self.is_thinking = tag == OPEN
            self._trims = True
        shown[self.is_thinking] += self._taken(_certain(self._held), is_end=False)
        return shown[False], shown[True]

    def finish(self) -> tuple[str, str]:
        """Return what was held back; nothing more will come."""
        text = self._taken(len(self._held), is_end=True)
        return ("", text) if self.is_thinking else (text, "")

    def _taken(self, length: int, *, is_end: bool) -> str:
        """Take ``length`` characters off the front and return what of them may be shown."""
        text, rest = self._held[:length], self._held[length:]
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        if self.is_thinking:
            kept = text.rstrip()
            # White space at the end of a thought is shown only if the thought goes on.
            rest = rest if is_end else text[len(kept) :] + rest
            text = kept
        self._held = rest
        return self._without_tags(text)

    def _without_tags(self, text: str) -> str:
        """Drop the end of a tag whose beginning was shown before another tag came between."""
        tail = self._shown[self.is_thinking]
        for tag in _TAGS:
            while (at := (tail + text).find(tag)) >= 0:
                text = text[: max(0, at - len(tail))] + (tail + text)[at + len(tag) :]
        self._shown[self.is_thinking] = (tail + text)[1 - _LONGEST :]
        return text


def _first_tag(text: str) -> tuple[int, str] | None:
    """Return the earliest whole tag and where it begins."""
    found = [(at, tag) for tag in _TAGS if (at := text.find(tag)) >= 0]
    return min(found, default=None)


def _certain(text: str) -> int:
    """Return how much of ``text`` cannot be the beginning of a tag."""
    for at in range(max(0, len(text) + 1 - _LONGEST), len(text)):
        if any(tag.startswith(text[at:]) for tag in _TAGS):
            return at
    return len(text)
