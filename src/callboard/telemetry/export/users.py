"""``Users``: the systems of a process that share one exporter of its metrics, which runs on the loop of one of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["Users"]


class Users:
    """The first system's loop runs the exporter; when that system ends, the next one's does.

    Args:
        begin: Has it run on the loop of a system; called there.
        pause: That system ends: it runs no more. Called there, too.
        end: The last one has ended.
    """

    def __init__(
        self, begin: "Callable[[Telemetry], None]", pause: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self._begin = begin
        self._pause = pause
        self._end = end
        self._systems: list[Telemetry] = []
        self.ended = False

    def add(self, telemetry: "Telemetry") -> None:
        """One more system, whose loop is the running one."""
        if telemetry in self._systems:
            return
        self._systems.append(telemetry)
        if len(self._systems) == 1:
            self._begin(telemetry)
        telemetry.on_close(lambda: self._left(telemetry))

    def _left(self, telemetry: "Telemetry") -> None:
        runs = self._systems[0] is telemetry
        self._systems.remove(telemetry)
        if runs:
            self._pause()
        if not self._systems:
            self.ended = True
            self._end()
        elif runs:
            following = self._systems[0]
            following.loop.call_soon_threadsafe(self._begin, following)
