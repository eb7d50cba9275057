"""``Pace``: when the next frame is due, and what is left out where frames take too long. Pure: it is told the time."""

from typing import Literal, NamedTuple

from callboard.realtime.base.checks import number

__all__ = ["Late", "Pace", "Turn"]

Late = Literal["skip", "slow"]
"""What a late frame costs: ``"skip"``, frames that are simulated but not drawn; ``"slow"``, time: all are drawn."""
CATCH_UP = 4
"""Frames that are simulated without being drawn, at most, in a row."""


class Turn(NamedTuple):
    """What to do for the next frame.

    Attributes:
        wait: Seconds until it is due.
        frames: Frames to simulate; the last of them is drawn.
        dropped: Frames for which there is no time at all: the simulation falls behind the clock.
    """

    wait: float
    frames: int
    dropped: int


class Pace:
    """A fixed number of frames a second.

    Args:
        fps: Frames a second.
        late: See :data:`Late`.
        start: The time now.

    Raises:
        ValueError: A setting is out of its range.
    """

    def __init__(self, fps: float, late: Late, start: float) -> None:
        self._period = 1.0 / number("fps", fps, above=0.0)
        if late not in ("skip", "slow"):
            raise ValueError(
                f"late is {late!r}; it must be 'skip' (frames are not drawn) or 'slow' (time passes slower)"
            )
        self._late = late
        self._start = start
        self._frame = 0
        self.budget = 0.0

    def next(self, now: float) -> Turn:
        """The turn of the next frame, which begins when its wait is over."""
        due = self._start + self._frame * self._period
        behind = max(0, int((now - due) / self._period + 1e-9))
        caught = min(behind, CATCH_UP) if self._late == "skip" else 0
        self._start += (behind - caught) * self._period
        self._frame += 1 + caught
        return Turn(max(0.0, due - now), 1 + caught, behind - caught)

    def took(self, seconds: float) -> None:
        """The last frame took this long."""
        self.budget += 0.1 * (seconds / self._period - self.budget)
