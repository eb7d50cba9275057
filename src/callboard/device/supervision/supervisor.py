"""``DeviceSupervisor``: whether a device whose context was lost gets another. Pure; replace it by subclassing.

Time is an argument, so that the window can be tested without waiting.
"""

from callboard.actors.supervision import RestartLog
from callboard.core.errors import AccelError, Unrecoverable
from callboard.device.supervision.lifecycle import Event

__all__ = ["DeviceSupervisor"]


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
        max_restarts: Losses allowed within ``within``; one more exhausts the budget. None: no limit.
        within: Seconds.
        on_exhausted: ``"stop"`` or ``"half_open"``.
    """

    def __init__(self, max_restarts: int | None = 3, within: float = 60.0, on_exhausted: str = "stop") -> None:
        self.max_restarts = max_restarts
        self.within = within
        self.on_exhausted = on_exhausted
        self._log = RestartLog()

    def on_loss(self, error: AccelError, now: float) -> Event:
        """A context was lost: may another be made?

        Args:
            error: The reason.
            now: Monotonic seconds.
        """
        if isinstance(error, Unrecoverable):
            return Event.UNRECOVERABLE
        if self._log.permit(now, self.max_restarts, self.within):
            return Event.CONTEXT_LOST
        return Event.BUDGET_SPENT if self.on_exhausted == "half_open" else Event.UNRECOVERABLE
