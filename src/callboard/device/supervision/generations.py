"""Generations: one number per context, never lower than any before it, also across restarts of the application."""

import itertools
import threading
import time
from collections.abc import Callable

__all__ = ["Ordinals", "generations_after", "next_generation"]

_last = 0
_lock = threading.Lock()


def next_generation(now: Callable[[], float] = time.time) -> int:
    """``unix_ms << 20 | counter``: 64 bits, monotonic in this process and, by the clock, after it."""
    global _last
    with _lock:
        _last = max(int(now() * 1000) << 20, _last + 1)
        return _last


def generations_after(generation: int) -> None:
    """Have later generations of this process be greater than one of another machine, whose clock may be ahead."""
    global _last
    with _lock:
        _last = max(_last, generation)


class Ordinals:
    """Small numbers for people: the first generation of a device is 1."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._count = itertools.count(1)
        self.last = 0

    def of(self, generation: int) -> int:
        number = self._numbers.get(generation)
        if number is None:
            number = self.last = self._numbers[generation] = next(self._count)
        return number
