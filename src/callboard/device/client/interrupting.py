"""``Interrupts``: Ctrl-C in the blocking waits for one device, which ends an op at the second time."""

from collections.abc import Callable, Collection

__all__ = ["Interrupts"]


class Interrupts:
    """The first Ctrl-C ends a wait, and the op goes on. The next one that the op outlasts ends it, with its context.

    Args:
        in_flight: Returns the ids of the ops without a completion; ids rise.
        replace: Has the context replaced. Any thread.
    """

    def __init__(self, in_flight: Callable[[], Collection[int]], replace: Callable[[], None]) -> None:
        self._in_flight = in_flight
        self._replace = replace
        self._newest = 0  # the newest op that was in flight at the last Ctrl-C

    def pressed(self) -> None:
        """Ctrl-C has ended a wait."""
        in_flight = self._in_flight()
        ends = any(op <= self._newest for op in in_flight)
        self._newest = 0 if ends else max(in_flight, default=0)
        if ends:
            self._replace()
