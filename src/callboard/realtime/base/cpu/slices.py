"""Work on large arrays in slices, on several threads of the caller's process."""

import functools
import os
from collections.abc import Callable
from itertools import pairwise

from callboard.core.backend import Threads
from callboard.core.backend.machine import cores

__all__ = ["sliced"]

SLICE = 1 << 20
"""Bytes of a slice: few enough that a second look at it finds it in a core's cache."""
WIDTH = max(1, min(8, cores() // 2))
"""Threads of one call: they reach the speed of memory, and half of the cores are left to others."""


@functools.cache
def _threads() -> Threads:
    return Threads(WIDTH - 1, "array rows")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of these threads


def sliced(function: Callable[[int, int], object], rows: int, nbytes: int) -> None:
    """Call ``function(first, end)`` for consecutive parts of ``range(rows)``; back when all have ended.

    Args:
        function: What it does for a part must not depend on other parts; it releases the GIL for most of its time.
        rows: Of the arrays.
        nbytes: Of all rows.
    """
    step = max(1, SLICE * rows // max(1, nbytes))
    shares = min(WIDTH, rows // step)
    if shares < 2:
        _each(function, step, 0, rows)
        return
    ends = [rows * share // shares for share in range(shares + 1)]
    parts = [(function, step, first, end) for first, end in pairwise(ends)]
    _threads().share(_each, parts)


def _each(function: Callable[[int, int], object], step: int, first: int, end: int) -> None:
    for begin in range(first, end, step):
        function(begin, min(begin + step, end))
