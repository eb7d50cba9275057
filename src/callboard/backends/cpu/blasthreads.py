"""``BlasThreads``: as many threads of NumPy's products as the cores have room for.

The threads of OpenBLAS wait for each other in a loop. Where other programs use the cores, a product by several threads
waits until each of them has had its turn, and takes many times as long as one by a single thread. A host in a process
of its own therefore has fewer while its threads wait for a core, and all again when they do not.

The kernel counts for each thread how long it waited for a core (``/proc/thread-self/schedstat``). It is looked at after
work of a millisecond or more, so short ops and hosts that do nothing pay nothing.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from callboard.core.backend.machine import cores
from callboard.core.backend.workers import Work

__all__ = ["BlasThreads", "environment", "watch"]

_log = logging.getLogger(__name__)

MARK = "CALLBOARD_BLAS_THREADS"
"""``auto`` in a host in a process of its own; ``off``: there, too, the number stays as it is."""
SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "GOTO_NUM_THREADS")
"""Variables by which a user says how many threads there are."""
PAUSE = 0.01
"""Seconds between two looks of a thread, which take 15 µs."""
WINDOW = 0.05
"""Seconds of running and waiting between two decisions."""
CROWDED, CALM = 0.25, 0.05
"""Shares of waiting for a core from which on there are fewer threads, and up to which there are more again."""
SHORTEST, LONGEST = 1.0, 64.0
"""Seconds of calm before there are more: twice as many each time that this was too soon."""


class BlasThreads:
    """Decides how many threads there are, and sets it.

    Args:
        most: Threads where nothing else runs.
        change: Sets their number.
        clock: Gives seconds.
    """

    def __init__(self, most: int, change: Callable[[int], object], clock: Callable[[], float] = time.monotonic) -> None:
        self.now = self._most = most
        self._change = change
        self._clock = clock
        self._lock = threading.Lock()
        self._ran = self._waited = 0.0
        self._since = self._raised = -1e9
        self._hold = SHORTEST

    def saw(self, ran: float, waited: float) -> None:
        """A thread has run, and waited for a core, for so many seconds. Any thread."""
        with self._lock:
            self._ran += ran
            self._waited += waited
            total = self._ran + self._waited
            if total < WINDOW:
                return
            share = self._waited / total
            self._ran = self._waited = 0.0
            wanted = self._wanted(share, self._clock())
            if wanted != self.now:
                self.now = wanted
                self._change(wanted)

    def _wanted(self, share: float, now: float) -> int:
        if share > CALM:
            self._since = now
        if share > CROWDED and self.now > 1:
            self._hold = min(LONGEST, 2 * self._hold) if now - self._raised < 4 * self._hold else SHORTEST
            return self.now // 2
        if self.now < self._most and now - self._since >= self._hold:
            self._since = self._raised = now
            return min(self._most, 2 * self.now)
        return self.now


def environment() -> Mapping[str, str]:
    """Variables of a host in a process of its own; none where the user has said how many threads there are."""
    if any(os.environ.get(name) for name in SETTINGS):
        return {}
    found = {MARK: os.environ.get(MARK) or "auto"}
    if hasattr(os, "sched_getaffinity") and cores() < len(os.sched_getaffinity(0)):
        found["OPENBLAS_NUM_THREADS"] = str(cores())  # its own default knows no quota
    return found


def watch() -> None:
    """Let the number of threads follow the load of the cores, if this is a host in a process of its own."""
    if os.environ.get(MARK) != "auto" or Work.after_long is not None or cores() < 2 or _schedstat() is None:
        return
    chosen, seen = BlasThreads(cores(), _limit), threading.local()

    def after(seconds: float) -> None:
        now = time.monotonic()
        if now - getattr(seen, "at", 0.0) < PAUSE:
            return
        seen.at = now
        found = _schedstat()
        if found is not None:
            before = getattr(seen, "before", found)
            seen.before = found
            chosen.saw(found[0] - before[0], found[1] - before[1])

    Work.after_long = after


def _schedstat() -> tuple[float, float] | None:
    """Seconds that this thread has run, and has waited for a core; None where the kernel does not tell."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            ran, waited, _ = file.read().split()
    except (OSError, ValueError):
        return None
    return int(ran) * 1e-9, int(waited) * 1e-9


def _limit(threads: int) -> None:
    """Set the number of threads of each BLAS that is loaded now."""
    import threadpoolctl

    controller: Any = threadpoolctl.ThreadpoolController()
    for library in controller.select(user_api="blas").lib_controllers:
        library.set_num_threads(threads)
    _log.debug("products use %d threads", threads)
