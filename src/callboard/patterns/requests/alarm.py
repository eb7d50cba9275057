"""``Alarm``: one timer, for the earliest of the moments that matter to a server."""

from collections.abc import Callable

from callboard.actors.clock import Cancellable, Clock

__all__ = ["Alarm"]


class Alarm:
    """Calls a function at the earliest moment that it was set to.

    Args:
        clock: Tells the time.
        ring: The function. It sets the alarm again where a later moment matters.
    """

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timer: tuple[float, Cancellable] | None = None

    def set(self, when: float) -> None:
        """Ring at this moment, unless it rings earlier."""
        if self._timer is not None:
            if self._timer[0] <= when:
                return
            self._timer[1].cancel()
        self._timer = when, self._clock.call_later(max(0.0, when - self._clock.time()), self._over)

    def cancel(self) -> None:
        """Do not ring until it is set again."""
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self._ring()
