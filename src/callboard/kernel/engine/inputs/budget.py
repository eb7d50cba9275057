"""``Budget``: how long an execution of a model may take; and how an event loop goes on meanwhile."""

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from callboard.core.errors import BudgetSpent, ShapeError

__all__ = ["BUDGET", "Budget", "Walk", "check_budget", "finished"]

T = TypeVar("T")
Walk = Generator[None, None, T]
"""Something that is executed in steps: it pauses between them, and returns its result."""

BUDGET = 30.0
"""Seconds of an execution."""
SLICE = 0.005
"""Seconds of a walk for which no event loop notices it."""


class Budget:
    """The time that one execution may take, from now on.

    Args:
        seconds: Infinite: any time.
        clock: Gives seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def slices(self, walk: Walk[T]) -> Walk[T]:
        """The walk with fewer pauses: one every 5 ms.

        Raises:
            BudgetSpent: The time is over; raised inside of the walk, where it has paused.
        """
        pause = self._clock() + SLICE
        try:
            while True:
                try:
                    next(walk)
                    if (now := self._clock()) >= self._end:
                        walk.throw(BudgetSpent(over(self._seconds)))
                except StopIteration as e:
                    result: T = e.value
                    return result
                if now >= pause:
                    yield
                    pause = self._clock() + SLICE
        finally:
            walk.close()


def finished(walk: Walk[T]) -> T:
    """The result of a walk, executed without a pause."""
    while True:
        try:
            next(walk)
        except StopIteration as e:
            result: T = e.value
            return result


def check_budget(seconds: Any) -> float:
    """Check a budget that a caller gives.

    Raises:
        ShapeError: It is no positive number of seconds.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ShapeError(f"budget is {seconds!r}; pass a positive number of seconds, math.inf for any time")
    return float(seconds)


def over(seconds: float) -> str:
    """What an error says of an execution that was ended."""
    return f"the execution takes longer than its budget of {seconds:g} s; make the context with a larger budget"
