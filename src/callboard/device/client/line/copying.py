"""``Copier``: copies between host arrays at the speed of memory, off the loop if that is wanted."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.actors.loops.threads import Threads
from callboard.core.backend.machine import cores

__all__ = ["Copier"]

Array = np.ndarray[Any, Any]

SLICE = 1 << 20
"""Bytes of a copy that are worth a thread."""
WIDTH = max(1, min(8, cores() // 2))
"""Threads of one copy: one runs at 7 to 12 GB/s, a link at 55; half of the cores are left to others."""


class Copier:
    """NumPy copies without the GIL; long ones by several threads. Threads are started when they are first needed.

    Where none can be started (the process is at its limit), the calling thread copies. A program whose main thread has
    ended may copy until its last thread ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._order: Threads | None = None
        self._slices: Threads | None = None

    def copy(self, target: Array, source: Array) -> None:
        """``target[...] = source``; back when it is done. Any thread."""
        parts = min(WIDTH, source.nbytes // SLICE)
        if parts <= 1 or not source.ndim or source.shape[0] < parts:
            np.copyto(target, source)
            return
        with self._lock:
            if self._slices is None:
                self._slices = Threads(WIDTH - 1, "callboard-slices")
            threads = self._slices
        step = -(-source.shape[0] // parts)
        slices = [slice(a, a + step) for a in range(0, source.shape[0], step)]
        threads.share(np.copyto, [(target[each], source[each]) for each in slices])

    def later(self, target: Array, source: Array, then: Callable[[], object]) -> None:
        """Copy on the copying thread, in order of these calls; ``then()`` runs there."""

        def job() -> None:
            self.copy(target, source)
            then()

        try:
            with self._lock:
                if self._order is None:
                    self._order = Threads(1, "callboard-copies")
                self._order.submit(job)
        except RuntimeError:
            job()

    def close(self) -> None:
        """End the threads after the work in progress."""
        with self._lock:
            pools, self._order, self._slices = (self._order, self._slices), None, None
        for pool in pools:
            if pool is not None:
                pool.shutdown(wait=True)
