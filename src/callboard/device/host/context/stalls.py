"""Detection of stalled streams. Pure: stream progress and time are arguments."""

from collections.abc import Iterable

from callboard.device.host.context.timelines import Timeline

__all__ = ["Stalls"]


class Stalls:
    """Judges the streams of one context.

    A kernel that never ends does not silence its host, which continues to work, but its stream completes nothing. A
    stream whose oldest unfinished work waits for another stream is not judged before that one has completed its part,
    so the stream found is the one that the others wait for.

    Args:
        limit: Seconds for which a stream that has work may finish nothing.
    """

    __slots__ = ("_next", "_seen", "limit")

    LOOKS = 16
    """Polls within the limit: a stall is found later than the limit by at most one interval between polls."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._next = 0.0
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
        for timeline in timelines:
            if timeline.completed == timeline.issued:
                self._seen.pop(timeline, None)
                continue
            completed, since = self._seen.get(timeline, (-1, now))
            if completed != timeline.completed or timeline.waits:
                self._seen[timeline] = (timeline.completed, now)
            elif now - since >= self.limit:
                return timeline
        return None
