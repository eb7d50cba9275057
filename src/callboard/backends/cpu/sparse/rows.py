"""The rows of a matrix times a vector, shared among threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy as np

from callboard.backends.cpu.cores import workers

__all__ = ["Rows"]

Array = np.ndarray[Any, Any]
PARALLEL = 1 << 17
"""Entries of a thread, fewer than which are sooner multiplied than handed over."""


class Rows:
    """Cuts products at rows, with about as many entries each. One thread adds up a row, so that its bits stay."""

    def __init__(self) -> None:
        self.workers = workers()
        self._pool = ThreadPoolExecutor(self.workers - 1, "callboard-sparse") if self.workers > 1 else None

    def run(self, multiply: Callable[[int, int], None], indptr: Array) -> None:
        """``multiply(first, last)`` for all rows of ``indptr``, ``last`` not included; reraises errors."""
        rows, entries = indptr.size - 1, int(indptr[-1])
        parts = min(self.workers, entries // PARALLEL)
        if self._pool is None or parts < 2:
            multiply(0, rows)
            return
        cuts = np.searchsorted(indptr, [entries * part // parts for part in range(1, parts)]).tolist()
        others = [self._pool.submit(multiply, *ends) for ends in pairwise([*cuts, rows])]
        try:
            multiply(0, cuts[0])
        finally:
            wait(others)
        for other in others:
            other.result()

    def close(self) -> None:
        """End the threads; all work is done."""
        if self._pool is not None:
            self._pool.shutdown()
