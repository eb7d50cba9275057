"""``HighWater``: the recent maximum of bytes in use, which bounds the bytes kept for reuse."""

__all__ = ["HighWater"]

ROOM = 2
"""Bytes kept for each byte of the high water: mixed sizes do not fit each other's arenas, and making one takes about
half a second per GiB."""


class HighWater:
    """The peak of the present period and of the one before it. Without periods, the peak of all time."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now = self._before = 0

    def reached(self, used: int) -> None:
        """Note that ``used`` bytes are in use."""
        if used > self._now:
            self._now = used

    def next_period(self, used: int) -> None:
        """A period ends with ``used`` bytes in use."""
        self._before, self._now = self._now, used

    @property
    def allowance(self) -> int:
        """Bytes of arenas that may be kept."""
        return ROOM * max(self._now, self._before)
