"""``DeviceSupervisor``: what each failure means for a device. Pure; replace it by subclassing.

Time is an argument, so that the window can be tested without waiting.
"""

from callboard.actors.supervision import Directive, RestartLog
from callboard.core.errors import AccelError, ContextPoisoned, Unrecoverable
from callboard.device.supervision.lifecycle import Event

__all__ = ["DeviceSupervisor"]


class DeviceSupervisor:
    """The table of DESIGN §7 and the restart budget.

    Args:
        max_restarts: Losses allowed within ``within``; one more exhausts the budget. None: no limit.
        within: Seconds.
        on_exhausted: ``"stop"`` or ``"half_open"``.
    """

    def __init__(self, max_restarts: int | None = 3, within: float = 60.0, on_exhausted: str = "stop") -> None:
        self.max_restarts = max_restarts
        self.within = within
        self.on_exhausted = on_exhausted
        self._log = RestartLog()

    def decide(self, error: BaseException) -> Directive:
        """What a failure calls for.

        ``RESTART`` replaces the context host (for :class:`ContextPoisoned`) or the library's handle (for everything
        that is no :class:`AccelError`), ``RESUME`` means that the error is an answer, ``STOP`` ends the device.
        """
        match error:
            case ContextPoisoned():
                return Directive.RESTART
            case Unrecoverable():
                return Directive.STOP
            case AccelError():
                return Directive.RESUME
            case _:
                return Directive.RESTART

    def on_loss(self, error: AccelError, now: float) -> Event:
        """A context was lost: may another be made?

        Args:
            error: Why.
            now: Monotonic seconds.
        """
        if self.decide(error) is Directive.STOP:
            return Event.UNRECOVERABLE
        if self._log.permit(now, self.max_restarts, self.within):
            return Event.CONTEXT_LOST
        return Event.BUDGET_SPENT if self.on_exhausted == "half_open" else Event.UNRECOVERABLE
