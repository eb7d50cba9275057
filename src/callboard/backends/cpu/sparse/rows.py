"""The rows of a matrix times a vector, shared among threads."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from callboard.core.backend import Threads
from callboard.core.backend.machine import workers

__all__ = ["Rows"]

Array = np.ndarray[Any, Any]
PARALLEL = 1 << 17
"""Entries of a thread, fewer than which are sooner multiplied than handed over."""


class Rows:
    """Cuts products at rows, with about as many entries each. One thread adds up a row, so that its bits stay."""

    def __init__(self) -> None:
        self.workers = workers()
        self._pool = Threads(self.workers - 1, "callboard-sparse") if self.workers > 1 else None

    def run(self, multiply: Callable[[int, int], None], indptr: Array) -> None:
        """``multiply(first, last)`` for all rows of ``indptr``, ``last`` not included; reraises errors."""
        rows, entries = indptr.size - 1, int(indptr[-1])
        parts = min(self.workers, entries // PARALLEL)
        if self._pool is None or parts < 2:
            multiply(0, rows)
            return
        ends = np.array([entries * part // parts for part in range(1, parts)], indptr.dtype)  # else indptr is converted
        cuts = np.searchsorted(indptr, ends).tolist()
        self._pool.share(multiply, list(pairwise([0, *cuts, rows])))

    def close(self) -> None:
        """End the threads; all work is done."""
        if self._pool is not None:
            self._pool.shutdown()
