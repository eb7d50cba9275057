"""Timers: messages of an actor to itself, by key; a new one replaces the old one, restart and stop cancel all.

A tick goes through the mailbox. A queued tick is discarded if its timer is cancelled or restarted.
"""

from typing import TYPE_CHECKING, Any, Final

from callboard.actors._runtime.envelopes import Tick
from callboard.actors.clock import Cancellable
from callboard.actors.messages import Msg

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell
    from callboard.actors.actor import Actor  # noqa: F401 -- named in a base class below

__all__ = ["NotInfluenceReceiveTimeout", "ReceiveTimeout", "Timers"]


class ReceiveTimeout(Msg["Actor"]):
    """No message came for the time given to ``set_receive_timeout``."""


class NotInfluenceReceiveTimeout:
    """Mix into a message class that does not count as activity."""

    __slots__ = ()


_IDLE: Final = object()


class _Timer:
    __slots__ = ("generation", "handle", "message", "period", "rate_base")

    def __init__(self, generation: int, message: Any, period: float | None, rate_base: float | None) -> None:
        self.generation = generation
        self.message = message
        self.period = period
        self.rate_base = rate_base
        self.handle: Cancellable | None = None


class Idle:
    """The receive timeout: a timer that every message starts again."""

    __slots__ = ("seconds", "timers")

    def __init__(self, timers: "Timers", seconds: float) -> None:
        self.timers = timers
        self.seconds = seconds

    def touch(self, message: Any) -> None:
        """A message was handled."""
        if not isinstance(message, NotInfluenceReceiveTimeout):
            self.timers.start(_IDLE, ReceiveTimeout(), self.seconds, None, None)


class Timers:
    """The timers of one actor. Delays and periods are positive seconds (a delay may be 0)."""

    __slots__ = ("_generation", "_owner", "_timers", "idle")

    def __init__(self, owner: "Cell") -> None:
        self._owner = owner
        self._timers: dict[Any, _Timer] = {}
        self._generation = 0
        self.idle: Idle | None = None

    def start_once(self, key: Any, message: Msg[Any], delay: float) -> None:
        """Deliver ``message`` once after ``delay`` seconds."""
        self.start(key, message, delay, None, None)

    def start_fixed_delay(self, key: Any, message: Msg[Any], period: float, *, first: float | None = None) -> None:
        """Deliver ``message`` every ``period`` seconds after the last tick.

        The first tick is delivered after ``first`` seconds (default ``period``). A late tick delays the following ones.
        """
        self.start(key, message, period if first is None else first, _positive(period), None)

    def start_fixed_rate(self, key: Any, message: Msg[Any], period: float, *, first: float | None = None) -> None:
        """Deliver ``message`` at ``first + n * period`` seconds from now.

        Late ticks are delivered in a burst, so their number is right.
        """
        delay = period if first is None else first
        self.start(key, message, delay, _positive(period), self._owner.port.clock.time() + delay)

    def cancel(self, key: Any) -> None:
        """Stop the timer; a tick in the mailbox is discarded."""
        timer = self._timers.pop(key, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def cancel_all(self) -> None:
        """Stop all timers and the receive timeout."""
        self.idle = None
        for key in list(self._timers):
            self.cancel(key)

    def is_active(self, key: Any) -> bool:
        """True if a tick of this timer is pending."""
        return key in self._timers

    def set_idle(self, seconds: float | None) -> None:
        """Set, start again or (None) end the receive timeout."""
        self.cancel(_IDLE)
        self.idle = None
        if seconds is not None:
            self.idle = Idle(self, _positive(seconds))
            self.idle.touch(None)

    def start(self, key: Any, message: Any, delay: float, period: float | None, rate_base: float | None) -> None:
        """Start or replace a timer."""
        if delay < 0:
            raise ValueError(f"a delay must not be negative, but is {delay}")
        self.cancel(key)
        self._generation += 1
        timer = self._timers[key] = _Timer(self._generation, message, period, rate_base)
        timer.handle = self._owner.port.clock.call_later(delay, self._fire, key, timer)

    def _fire(self, key: Any, timer: _Timer) -> None:
        timer.handle = None
        if timer.period is not None:
            delay = timer.period
            if timer.rate_base is not None:
                timer.rate_base += timer.period
                delay = max(0.0, timer.rate_base - self._owner.port.clock.time())
            timer.handle = self._owner.port.clock.call_later(delay, self._fire, key, timer)
        self._owner.push_internal(Tick(key, timer.generation, timer.message))

    def _accept(self, tick: Tick) -> bool:
        """True if a tick belongs to a timer that is still active."""
        timer = self._timers.get(tick.key)
        if timer is None or timer.generation != tick.generation:
            return False
        if timer.period is None:
            del self._timers[tick.key]
        return True


def _positive(seconds: float) -> float:
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, but are {seconds}")
    return seconds
