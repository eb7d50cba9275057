"""Duration of the iterations of a loop, sampled while a pinned thread competes for the GIL."""

import asyncio
import logging
import time
from collections.abc import Callable

from callboard.actors.loops.dispatcher import LONG_ITERATION, LoopLag

__all__ = ["LagGauge"]

_log = logging.getLogger("callboard.actors")

PERIOD = 0.1
"""Seconds between looks: two callbacks each, which is too little to be measured."""

QUIET = 60.0
"""Seconds between warnings."""


class LagGauge:
    """Takes one iteration of the loop every :data:`PERIOD` seconds; on the loop's thread.

    Args:
        loop: The loop.
        what: Name of the loop in the warning.
        clock: Monotonic seconds.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, what: str, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.value = LoopLag(0.0, 0.0, 0, 0)
        self._loop = loop
        self._what = what
        self._clock = clock
        self._began = 0.0
        self._warned = -QUIET
        self._next: asyncio.Handle | None = None

    def start(self) -> None:
        """Begin to look; once."""
        if self._next is None:
            self._next = self._loop.call_later(PERIOD, self._begin)

    def stop(self) -> None:
        """Stop sampling."""
        if self._next is not None:
            self._next.cancel()

    def _begin(self) -> None:
        self._began = self._clock()
        self._next = self._loop.call_soon(self._end)  # in the next iteration: all that is ready is run in between

    def _end(self) -> None:
        now = self._clock()
        took = now - self._began
        long = took > LONG_ITERATION
        before = self.value
        self.value = LoopLag(took, max(took, before.longest), before.samples + 1, before.long + long)
        if long and now - self._warned >= QUIET:
            self._warned = now
            _log.warning(
                "an iteration of the loop of %s took %.1f ms: so long may its pinned threads wait for the GIL; give "
                "long work to a thread or split it",
                self._what,
                took * 1e3,
            )
        self._next = self._loop.call_later(PERIOD, self._begin)
