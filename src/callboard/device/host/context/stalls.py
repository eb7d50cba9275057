"""Detection of stalled streams. Pure: stream progress and time are arguments."""

from collections.abc import Iterable

from callboard.device.host.context.timelines import Timeline

__all__ = ["Stalls"]


class Stalls:
    """Judges the streams of one context.

    A kernel that never ends does not silence its host, which continues to work, but its stream completes nothing. A
    stream whose oldest unfinished work waits for another stream is not judged before that one has completed its part,
    so the stream found is the one that the others wait for.

    Time is counted at polls, and a pause between two of them counts for at most :data:`AT_MOST` of the limit. A longer
    pause means that the host itself did not run (a debugger, a frozen container, an overloaded machine), and its
    streams may not have run either.

    Args:
        limit: Seconds for which a stream that has work may finish nothing.
    """

    __slots__ = ("_looked", "_next", "_passed", "_seen", "limit")

    LOOKS = 16
    """Polls within the limit: a stall is found later than the limit by at most one interval between polls."""
    AT_MOST = 2 / LOOKS
    """Largest part of the limit that counts between two polls."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._next = self._looked = self._passed = 0.0
        self._seen: dict[Timeline, tuple[int, float]] = {}

    def poll(self, timelines: Iterable[Timeline], now: float) -> Timeline | None:
        """Judge the timelines, after they have been polled; returns one that is stalled.

        Args:
            timelines: All of the context.
            now: Monotonic seconds.
        """
        if now < self._next:
            return None
        self._next = now + self.limit / self.LOOKS
        self._passed += min(now - self._looked, self.limit * self.AT_MOST)
        self._looked = now
        for timeline in timelines:
            if timeline.completed == timeline.issued:
                self._seen.pop(timeline, None)
                continue
            completed, since = self._seen.get(timeline, (-1, 0.0))
            if completed != timeline.completed or timeline.waits:
                self._seen[timeline] = (timeline.completed, self._passed)
            elif self._passed - since >= self.limit:
                return timeline
        return None
