"""``Ring``: a bounded buffer of events. Writers never wait: the oldest events are dropped, and counted.

A hook is two lines::

    ring = EVENTS.ring
    if ring is not None:
        ring.append((next(ring.numbers), now(), DEAD, path, kind, reason))
"""

import itertools
from collections import deque
from itertools import repeat, starmap
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from callboard.events.tracing import Sampler

__all__ = ["CAPACITY", "EVENTS", "Event", "Ring", "now"]

Event = tuple[Any, ...]
"""``(number, nanoseconds, kind, where, …)``; :mod:`callboard.events.kinds` lists the kinds."""

CAPACITY: Final = 1 << 16

now = monotonic_ns
"""The clock of events. All processes of a machine share it, and hosts use it for their traces."""


class Ring(deque[Event]):
    """Events that have not been taken yet.

    Args:
        capacity: The most events that are kept.

    Attributes:
        numbers: Numbers of events; each event takes the next. Gaps show how many were dropped.
        drained: Number of events that were taken.
    """

    __slots__ = ("_newest", "drained", "numbers")  # a third faster than attributes in a dictionary

    def __init__(self, capacity: int = CAPACITY) -> None:
        super().__init__(maxlen=capacity)
        self.numbers = itertools.count()
        self.drained = 0
        self._newest = -1

    def drain(self, most: int = CAPACITY) -> list[Event]:
        """Take the oldest events. One thread at a time."""
        # In one step of the interpreter, in which no thread waits for another. Nobody else takes, and writers that drop
        # the oldest event add another, so as many are there.
        taken = list(starmap(self.popleft, repeat((), min(most, len(self)))))
        if taken:
            self.drained += len(taken)
            self._newest = max(self._newest, taken[-1][0], taken[0][0])
        return taken

    @property
    def dropped(self) -> int:
        """Number of events that were dropped before the newest one that was taken."""
        return max(0, self._newest + 1 - self.drained)


class _Events:
    """Where the hooks look.

    Attributes:
        ring: The ring to write to; None while telemetry is off.
        ops: Some exporter wants events of all ops and requests; otherwise they are only counted.
        sampler: Begins spans for an exporter, which gets the events of the ops that sampled requests cause; or None.
        every: New contexts measure one op in so many; 0: none.
    """

    __slots__ = ("every", "ops", "ring", "sampler")

    def __init__(self) -> None:
        self.off()

    def off(self) -> None:
        """Write no events."""
        self.ring: Ring | None = None
        self.ops = False
        self.sampler: Sampler | None = None
        self.every = 0


EVENTS: Final = _Events()
