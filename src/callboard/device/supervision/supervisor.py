"""``DeviceSupervisor``: whether a device whose context was lost gets another. Pure; replace it by subclassing.

Time is an argument, so that the window can be tested without waiting.
"""

from typing import Any, Final

from callboard.actors.supervision import RestartLog
from callboard.core.errors import AccelError, ContextPoisoned, Unrecoverable
from callboard.device.supervision.lifecycle import Event

__all__ = ["DeviceSupervisor", "checked", "decided"]

EVENTS: Final = Event.CONTEXT_LOST, Event.BUDGET_SPENT, Event.UNRECOVERABLE
"""What :meth:`DeviceSupervisor.on_loss` may return."""

ALLOWED: Final = (
    f"{', '.join(f'Event.{event.name}' for event in EVENTS)} (of {Event.__module__}), or super().on_loss(error, now)"
)

EXHAUSTED: Final = "stop", "half_open"

GUARDED, WINDOW = 60, 60.0
"""Losses of guarded work within so many seconds after which a device goes half-open."""

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds before each attempt of a half-open device, one after the other; at most ``within``."""


class DeviceSupervisor:
    """The restart budget of a device.

    The handling of each failure is fixed:

    ==================================  ================================================================================
    :class:`ContextPoisoned`            The context is lost: :meth:`on_loss` says whether there will be another.
    :class:`Unrecoverable`              Likewise; :meth:`on_loss` of this class ends the device.
    any other :class:`AccelError`       The answer to one op; nothing is restarted.
    any other exception of a library    The handle and the plans of that library are made again, unless a probe of the
                                        device finds the context dead; the op fails with :class:`LibraryError`.
    an exception of a resident actor    The answer to one call; see :class:`callboard.ResidentActor`.
    ==================================  ================================================================================

    Args:
        max_restarts: Losses allowed within ``within``; one more exhausts the budget. None: no limit. A loss whose work
            in flight was guarded (:attr:`ContextPoisoned.guarded`) does not count: the quarantine refuses the request
            that causes such losses. After 60 of them within a minute the device goes half-open.
        within: Seconds.
        on_exhausted: ``"stop"`` or ``"half_open"``.

    Attributes:
        exhausted: The last loss was one more than the budget allows.

    Raises:
        ValueError: An argument out of range.
    """

    exhausted = False

    def __init__(self, max_restarts: int | None = 3, within: float = 60.0, on_exhausted: str = "stop") -> None:
        if max_restarts is not None and max_restarts < 0:
            raise ValueError(f"max_restarts must not be negative, but is {max_restarts}; None means any number")
        if on_exhausted not in EXHAUSTED:
            raise ValueError(f"on_exhausted is {on_exhausted!r}; use one of {', '.join(map(repr, EXHAUSTED))}")
        self.max_restarts = max_restarts
        self.within = _seconds(within)
        self.on_exhausted = on_exhausted
        self._log = RestartLog()
        self._guarded = RestartLog()
        self._pauses = RestartLog()

    def on_loss(self, error: AccelError, now: float) -> Event:
        """A context was lost: may another be made?

        A device whose supervisor raises, or returns anything else, stops with that as the reason.

        Args:
            error: The reason.
            now: Monotonic seconds.

        Returns:
            ``Event.CONTEXT_LOST``: another is made. ``Event.BUDGET_SPENT``: likewise, after :meth:`pause`.
            ``Event.UNRECOVERABLE``: the device stops. The enumeration is in
            :mod:`callboard.device.supervision.lifecycle`.
        """
        self.exhausted = False
        if isinstance(error, Unrecoverable):
            return Event.UNRECOVERABLE
        if isinstance(error, ContextPoisoned) and error.guarded:
            permitted = self._guarded.permit(now, GUARDED, WINDOW)
            return Event.CONTEXT_LOST if permitted else Event.BUDGET_SPENT
        if self._log.permit(now, self.max_restarts, self.within):
            return Event.CONTEXT_LOST
        self.exhausted = True
        return Event.BUDGET_SPENT if self.on_exhausted == "half_open" else Event.UNRECOVERABLE

    def pause(self, now: float) -> float:
        """Seconds before a device that has become half-open at ``now`` tries again."""
        number = self._pauses.next_in_row(now, quiet=2 * PAUSES[-1])
        return min(self.within, PAUSES[min(number, len(PAUSES) - 1)])


def checked(supervisor: Any) -> DeviceSupervisor:
    """``supervisor``, if it is one.

    Raises:
        TypeError: A class, or something else, was passed in its place.
    """
    if isinstance(supervisor, DeviceSupervisor):
        return supervisor
    raise TypeError(f"supervisor is {supervisor!r:.200}; pass an instance of cb.DeviceSupervisor, or of a subclass")


def decided(supervisor: DeviceSupervisor, error: AccelError, now: float) -> Event:
    """What the supervisor decides about a loss.

    Raises:
        TypeError, ValueError: It returned something that does not decide it; the text names the value.
        Exception: What it raised.
    """
    event: Any = supervisor.on_loss(error, now)
    if not any(event is allowed for allowed in EVENTS):
        raise TypeError(f"it returned {event!r:.200}; return one of {ALLOWED}")
    if event is Event.BUDGET_SPENT:
        _seconds(supervisor.within)
    decision: Event = event
    return decision


def _seconds(within: Any) -> float:
    if not (isinstance(within, int | float) and within > 0):
        raise ValueError(f"within is {within!r}; it must be a positive number of seconds")
    return within
