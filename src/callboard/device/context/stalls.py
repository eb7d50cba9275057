"""Whether a stream stands still: a pure decider, told what streams have done and of time."""

from collections.abc import Iterable

from callboard.device.context.tracks import Track

__all__ = ["Stalls"]


class Stalls:
    """Judges the streams of one context.

    A kernel that never ends is no silence: its host goes on making rounds. But its stream finishes nothing more. A
    stream that waits for another one is not judged before that has done its part.

    Args:
        limit: Seconds for which a stream that has work may finish nothing.
    """

    __slots__ = ("_next", "_seen", "limit")

    LOOKS = 16
    """Looks within the limit: a stall is found at most so much later."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._next = 0.0
        self._seen: dict[Track, tuple[int, float]] = {}

    def look(self, tracks: Iterable[Track], now: float) -> Track | None:
        """Time has passed, and the tracks have been polled; gives one that stands still.

        Args:
            tracks: All of the context.
            now: Monotonic seconds.
        """
        if now < self._next:
            return None
        self._next = now + self.limit / self.LOOKS
        for track in tracks:
            if track.completed == track.issued:
                self._seen.pop(track, None)
                continue
            completed, since = self._seen.get(track, (-1, now))
            if completed != track.completed or track.waits:
                self._seen[track] = (track.completed, now)
            elif now - since >= self.limit:
                return track
        return None
