"""``Copier``: copies between host arrays at the speed of memory, off the loop if that is wanted."""

import concurrent.futures
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Copier"]

Array = np.ndarray[Any, Any]

SLICE = 1 << 20
"""Bytes of a copy that are worth a thread."""
WIDTH = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Threads of one copy: one runs at 7 to 12 GB/s, a link at 55; half of the cores are left to others."""


class Copier:
    """NumPy copies without the GIL; long ones by several threads. Threads are started when they are first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._order: concurrent.futures.ThreadPoolExecutor | None = None
        self._slices: concurrent.futures.ThreadPoolExecutor | None = None

    def copy(self, target: Array, source: Array) -> None:
        """``target[...] = source``; back when it is done. Any thread."""
        parts = min(WIDTH, source.nbytes // SLICE)
        if parts <= 1 or not source.ndim or source.shape[0] < parts:
            np.copyto(target, source)
            return
        with self._lock:
            if self._slices is None:
                self._slices = concurrent.futures.ThreadPoolExecutor(WIDTH - 1, thread_name_prefix="callboard-slices")
        step = -(-source.shape[0] // parts)
        others = [
            self._slices.submit(np.copyto, target[a : a + step], source[a : a + step])
            for a in range(step, source.shape[0], step)
        ]
        np.copyto(target[:step], source[:step])
        for other in others:
            other.result()

    def later(self, target: Array, source: Array, then: Callable[[], object]) -> None:
        """Copy on the copying thread, in order of these calls; ``then()`` runs there."""

        def job() -> None:
            self.copy(target, source)
            then()

        with self._lock:
            if self._order is None:
                self._order = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="callboard-copies")
            self._order.submit(job)

    def close(self) -> None:
        """End the threads after the work in progress."""
        with self._lock:
            pools, self._order, self._slices = (self._order, self._slices), None, None
        for pool in pools:
            if pool is not None:
                pool.shutdown(wait=True)
