"""Measured speed, and the sizes of the next step that follow from it. Pure."""

from __future__ import annotations


class Rate:
    """A moving average of units per second; None until something was measured.

    A step's weight is its share of ``window_s`` seconds, so many short steps and one long one
    count alike.
    """

    def __init__(self, window_s: float = 4.0) -> None:
        self._window_s = window_s
        self.per_second: float | None = None

    def add(self, n: int, seconds: float) -> None:
        """Count ``n`` units that took ``seconds``."""
        if n <= 0 or seconds <= 0:
            return
        now = n / seconds
        if self.per_second is None:
            self.per_second = now
            return
        weight = min(0.5, seconds / self._window_s)
        self.per_second += weight * (now - self.per_second)


def chunk_tokens(rate: Rate, target_s: float, *, least: int, most: int) -> int:
    """Return how many tokens to evaluate so that it takes about ``target_s``.

    Before anything was measured the answer is small: on a slow board the first step must not be
    the longest. Multiples of 32 keep the matrix kernels' blocks full.
    """
    if rate.per_second is None:
        return min(most, max(least, 64))
    wanted = int(rate.per_second * target_s) // 32 * 32
    return max(least, min(most, wanted))
