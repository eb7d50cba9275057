"""Ask timeouts of one loop: a deque per timeout value, which is sorted by itself, and one timer for all of them.

``asyncio.wait_for`` doubles the cost of an ask; this adds a few per cent.
"""

from collections import deque
from math import inf

from callboard.actors._runtime.envelopes import Ask
from callboard.actors.clock import Cancellable, Clock

__all__ = ["Deadlines"]

_SWEEP_AT_LEAST = 2048


class Deadlines:
    """Fails asks that are not answered in time. Used on its loop's thread only."""

    __slots__ = ("_added", "_clock", "_now", "_queues", "_sweep_at", "_timer", "_wakes_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.time
        self._queues: dict[float, deque[Ask]] = {}
        self._timer: Cancellable | None = None
        self._wakes_at = inf
        self._added = 0
        self._sweep_at = _SWEEP_AT_LEAST

    def add(self, ask: Ask, timeout: float) -> None:
        """Fail ``ask`` in ``timeout`` seconds unless it is answered before."""
        deadline = ask.deadline = self._now() + timeout
        queue = self._queues.get(timeout)
        if queue is None:
            queue = self._queues[timeout] = deque()
        queue.append(ask)
        if deadline < self._wakes_at:
            self._arm(deadline)
        self._added += 1
        if self._added >= self._sweep_at:
            self._sweep()

    def __len__(self) -> int:
        """Entries held, answered ones included."""
        return sum(len(queue) for queue in self._queues.values())

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline
        self._timer = self._clock.call_later(deadline - self._now(), self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._wakes_at = inf
        # Timers may fire a clock tick early; without this slack they would be armed again for nothing.
        now = self._now() + 1e-9
        earliest = inf
        for timeout, queue in list(self._queues.items()):
            while queue:
                ask = queue[0]
                if ask.is_open():
                    if ask.deadline > now:
                        break
                    ask.expire()
                queue.popleft()
            if queue:
                earliest = min(earliest, queue[0].deadline)
            else:
                del self._queues[timeout]
        if earliest < inf:
            self._arm(earliest)

    def _sweep(self) -> None:
        # Answered asks stay in their deque until here; sweeping when the count has doubled keeps that cost constant per
        # ask.
        for timeout, queue in list(self._queues.items()):
            alive = deque(ask for ask in queue if ask.is_open())
            if alive:
                self._queues[timeout] = alive
            else:
                del self._queues[timeout]
        self._added = 0
        self._sweep_at = max(_SWEEP_AT_LEAST, len(self))

    def close(self) -> None:
        """Forget everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wakes_at = inf
        self._queues.clear()
