"""``RemoteClock``: times of another machine's clock as times of this one's."""

import math

from callboard.device.protocol.messages import Traces

__all__ = ["RemoteClock"]

WINDOW = 30.0
"""Seconds for which a comparison of the clocks counts, and for as many again: they run apart by some µs a second."""


class RemoteClock:
    """Translates the records of a context host on another machine.

    A host sends a record as soon as its op's completion is known. So the difference between the time of its arrival
    here and its own is that of the clocks and the time on the way; the smallest one tells most. Translated times are
    late by the shortest time on the way, at most, and never in the future.
    """

    def __init__(self) -> None:
        self._best = self._before = math.inf  # in this window, and in the one before
        self._ends = -math.inf

    def translated(self, message: Traces, now: float) -> Traces:
        """The message with times of this machine.

        Args:
            message: As the host sent it.
            now: ``time.monotonic()`` here, when it came.
        """
        if not message.records:
            return message
        if now >= self._ends:
            self._before = self._best if now < self._ends + WINDOW else math.inf
            self._best, self._ends = math.inf, now + WINDOW
        self._best = min(self._best, now - max(completed for _, _, _, _, _, completed, *_ in message.records))
        by = min(self._best, self._before)
        return Traces(
            [
                (op, tag, stream, began + by, enqueued + by, done + by, ok, started + by if started else 0.0, seconds)
                for op, tag, stream, began, enqueued, done, ok, started, seconds in message.records
            ]
        )
