"""``BusyTime``: how long the thread of a resident actor has been in calls."""

import time
from collections.abc import Callable

__all__ = ["BusyTime"]


class BusyTime:
    """Adds up the seconds between :meth:`begin` and :meth:`end`, which one thread calls; any thread reads.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: tuple[float, float] = 0.0, 0.0  # replaced as a whole, so that a reader never gets half of a change

    def begin(self) -> float:
        """A call begins; returns the time."""
        now = self._clock()
        self._spent = self._spent[0], now
        return now

    def end(self) -> float:
        """The call has ended; returns the time."""
        now = self._clock()
        total, began = self._spent
        self._spent = total + now - began, 0.0
        return now

    @property
    def seconds(self) -> float:
        """The busy time so far, including the current call."""
        total, began = self._spent
        return total + self._clock() - began if began else total
