"""The bounded waiting room: by priority, then the client that had least, then first come.

Pure: no thread, no clock. The engine holds its lock around every call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _Entry(Generic[T]):
    item: T
    priority: int
    client: str
    number: int
    is_follower: bool


class WaitingRoom(Generic[T]):
    """Items in the order in which they will be served.

    A client's turns are counted from the moment it has something here until nothing of it waits
    or runs, so a client with twenty requests and one with a single request alternate. Requests
    without a client's name are each a client of their own.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry[T]] = []
        self._served: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, item: T, priority: int, client: str, *, is_follower: bool = False) -> None:
        """Put ``item`` in; the caller checked the bound.

        Args:
            item: what waits.
            priority: lower goes first.
            client: whose it is.
            is_follower: it continues something that was served already, and goes before others.
        """
        self._number += 1
        name = client or f"\0{self._number}"
        self._entries.append(_Entry(item, priority, name, self._number, is_follower))

    def remove(self, item: T) -> bool:
        """Take ``item`` out wherever it stands; False when it is not here."""
        for at, entry in enumerate(self._entries):
            if entry.item is item:
                del self._entries[at]
                self._forget(entry.client)
                return True
        return False

    def pop(self) -> tuple[T, str]:
        """Return the next item and the name to give back to ``done``."""
        entry = min(self._entries, key=lambda entry: self._key(entry, self._served))
        self._entries.remove(entry)
        self._served[entry.client] += 1
        self._running[entry.client] += 1
        return entry.item, entry.client

    def done(self, client: str) -> None:
        """A request of ``client`` that was popped has ended."""
        self._running[client] -= 1
        self._forget(client)

    def ordered(self) -> list[T]:
        """Return all items, next first, if nobody else came."""
        served, left, order = Counter(self._served), list(self._entries), []
        while left:
            entry = min(left, key=lambda entry: self._key(entry, served))
            left.remove(entry)
            served[entry.client] += 1
            order.append(entry.item)
        return order

    def _key(self, entry: _Entry[T], served: Counter[str]) -> tuple[int, bool, int, int]:
        return (entry.priority, not entry.is_follower, served[entry.client], entry.number)

    def _forget(self, client: str) -> None:
        if self._running[client] <= 0 and not any(e.client == client for e in self._entries):
            del self._served[client]
            del self._running[client]
