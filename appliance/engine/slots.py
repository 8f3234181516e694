"""Slots: the sequences of one context, and which one should serve the next prompt.

``Slot.tokens`` is the truth about the KV cache: exactly the tokens whose cells are in the cache
for this sequence, in order. It changes only after llama.cpp said that a step succeeded or that
cells were removed. Choosing a slot is pure and tested apart from llama.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
TokenArray = npt.NDArray[np.int32]


@dataclass
class Slot(Generic[T]):
    """One sequence. ``work`` is what it serves now, None when it is free."""

    seq_id: int
    tokens: TokenArray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    work: T | None = None
    last_used: int = 0


@dataclass(frozen=True)
class Choice(Generic[T]):
    """Serve in ``slot``; its first ``n_common`` tokens come from ``source``'s sequence.

    When ``source`` is another slot its cells are shared (a sequence copy), not computed again.
    """

    slot: Slot[T]
    source: Slot[T]
    n_common: int


def common_prefix(a: TokenArray, b: TokenArray) -> int:
    """Return how many leading tokens are equal."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


def choose_slot(
    slots: Sequence[Slot[T]],
    prompt: TokenArray,
    *,
    can_share: bool,
    pinned: Sequence[Slot[T]] = (),
) -> Choice[T]:
    """Return where to serve ``prompt``; at least one slot is free.

    The longest common prefix wins. A free slot that holds it is used in place if most of what it
    holds is that prefix (a chat's next turn) or if it is the only free one; otherwise the prefix
    is shared into the free slot that was used longest ago, so that the other chat keeps its cache.

    Args:
        slots: all slots, busy ones included.
        prompt: the prompt's tokens; one token always stays to be computed, for its logits.
        can_share: whether the context can copy a part of one sequence to another.
        pinned: sequences that serve nobody and only lend what they hold.
    """
    limit = len(prompt) - 1
    free = [slot for slot in slots if slot.work is None]
    matches = [(min(common_prefix(slot.tokens, prompt), limit), slot) for slot in slots]
    candidates = matches if can_share else [match for match in matches if match[1].work is None]
    if can_share and pinned:
        lent = [(min(common_prefix(pin.tokens, prompt), limit), pin) for pin in pinned]
        n_lent, lender = max(lent, key=lambda m: m[0])
    else:
        n_lent, lender = 0, slots[0]
    n_common, best = max(candidates, key=lambda m: (m[0], m[1].work is None, m[1].last_used))
    if n_lent > n_common:
        oldest = min(free, key=lambda slot: (len(slot.tokens) > 0, slot.last_used))
        return Choice(oldest, lender, n_lent)
    oldest = min(free, key=lambda slot: (len(slot.tokens) > 0, slot.last_used))
    if n_common == 0:
        return Choice(oldest, oldest, 0)
    if best.work is None and (2 * n_common >= len(best.tokens) or len(free) == 1 or not can_share):
        return Choice(best, best, n_common)
    return Choice(oldest, best, n_common)
