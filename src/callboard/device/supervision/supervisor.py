"""``DeviceSupervisor``: what follows each failure of a device. Pure; change a part by overriding its method.

Time is an argument, so that the window can be tested without waiting.
"""

import difflib
from typing import Any, Final

from callboard.actors.errors import ActorStopped
from callboard.actors.supervision import Directive, RestartLog
from callboard.core.errors import AccelError, ContextPoisoned, LibraryError, OutOfMemory, Unrecoverable
from callboard.device.hooks import check_hook
from callboard.device.supervision.decisions import PIECES, DeviceDecision, checked_decision

__all__ = ["DeviceSupervisor", "asked", "checked", "decided"]

EXHAUSTED: Final = "stop", "half_open"

GUARDED, WINDOW = 60, 60.0
"""Losses of guarded work within so many seconds after which a device goes half-open."""

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds before each attempt of a half-open device, one after the other; at most ``within``."""

Decided = Directive | DeviceDecision


class DeviceSupervisor:
    """Decides what follows each failure of a device: one method for each kind of failure.

    Override a method to change its part of the table. Each takes the error and the time, and returns a
    :class:`Directive` or a :class:`DeviceDecision`:

    =========================  ==============================  =====================================================
    method                     may return                      by default
    =========================  ==============================  =====================================================
    ``on_context_lost``        RESTART (with ``pause``), STOP  RESTART within the budget, then STOP or pauses
    ``on_unrecoverable``       RESTART (with ``pause``), STOP  STOP
    ``on_out_of_memory``       RESUME, ESCALATE, STOP (each    RESUME with ``trim``: trim, retry, then the op fails
                               with ``trim``)
    ``on_library_failure``     RESUME, RESTART, ESCALATE,      RESTART for an exception that is not the library's
                               STOP                            own answer, else RESUME
    ``on_actor_stopped``       RESUME, ESCALATE, STOP          RESUME
    =========================  ==============================  =====================================================

    The methods are called in the application, on the thread of the device's loop, and must not block. A device whose
    supervisor raises, or returns anything else, stops with that as the reason. While ``on_out_of_memory`` or
    ``on_library_failure`` of a subclass decides, the host launches no op; a method that is not overridden costs no
    message.

    Args:
        max_restarts: Losses allowed within ``within``; one more exhausts the budget. None: no limit. A loss whose work
            in flight was guarded (:attr:`ContextPoisoned.guarded`), or during which resident actors were being set up,
            does not count: the request that causes such losses is refused, and such an actor is stopped. After 60 of
            them within a minute the device goes half-open.
        within: Seconds.
        on_exhausted: ``"stop"`` or ``"half_open"``.

    Raises:
        ValueError: An argument out of range.
    """

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

    def on_context_lost(self, error: ContextPoisoned, now: float) -> Decided:
        """The context is dead, or its process has ended: is another made?

        Not called for a context in a thread of the application, which cannot be replaced: the device stops.

        Args:
            error: The reason; it becomes the error of the ops in flight.
            now: Monotonic seconds.
        """
        if error.guarded:
            permitted = self._guarded.permit(now, GUARDED, WINDOW)
            return Directive.RESTART if permitted else self._half_open(now)
        if self._log.permit(now, self.max_restarts, self.within):
            return Directive.RESTART
        if self.on_exhausted == "half_open":
            return self._half_open(now)
        why = f"more than {self.max_restarts} contexts lost within {self.within} s; last: {error}"
        return DeviceDecision(Directive.STOP, reason=why)

    def on_unrecoverable(self, error: Unrecoverable, now: float) -> Decided:
        """The device has reported that it cannot be used any more (ECC, NVLink). Arguments as above."""
        return Directive.STOP

    def on_out_of_memory(self, error: OutOfMemory, now: float) -> Decided:
        """An op has no memory on the device, or in its host process; ``error.op`` names it.

        With ``trim``, cached memory is released and the op tried again before the directive is applied. An op that has
        begun, such as one whose library lacks a workspace, is not tried again.
        """
        return DeviceDecision(Directive.RESUME, trim=True)

    def on_library_failure(self, error: LibraryError, now: float) -> Decided:
        """A library has failed; ``error.op`` names the op, and the op fails with this error.

        ``error.unexpected`` is true if it raised an exception of its own instead of returning a status.
        """
        return Directive.RESTART if error.unexpected else Directive.RESUME

    def on_actor_stopped(self, error: ActorStopped, now: float) -> Decided:
        """A resident actor has stopped because it failed: its ``supervision`` says so, or its restarts are used up."""
        return Directive.RESUME

    def _half_open(self, now: float) -> DeviceDecision:
        """Another context, after a pause that grows with each attempt in a row."""
        number = self._pauses.next_in_row(now, quiet=2 * PAUSES[-1])
        pause = min(_seconds(self.within), PAUSES[min(number, len(PAUSES) - 1)])
        return DeviceDecision(Directive.RESTART, pause=pause)


def checked(supervisor: Any) -> DeviceSupervisor:
    """``supervisor``, if it is one.

    Raises:
        TypeError: A class, or something else, was passed in its place; or it has a method that would never be called,
            or cannot be.
    """
    if not isinstance(supervisor, DeviceSupervisor):
        raise TypeError(f"supervisor is {supervisor!r:.200}; pass an instance of cb.DeviceSupervisor, or of a subclass")
    name = type(supervisor).__name__
    if not hasattr(supervisor, "_pauses"):
        raise TypeError(f"{name}.__init__ does not call super().__init__(), which makes the budget of restarts")
    for method in dir(supervisor):
        if method.startswith("on_") and method not in PIECES and callable(getattr(supervisor, method)):
            near = difflib.get_close_matches(method, PIECES, 1, 0.7)
            cure = f"is {near[0]} meant?" if near else f"the methods that decide are {', '.join(PIECES)}"
            raise TypeError(f"{name}.{method} is never called; {cure}")
    for method in PIECES:
        check_hook(name, supervisor, DeviceSupervisor, method)
    return supervisor


def asked(supervisor: DeviceSupervisor) -> list[str]:
    """The decisions for which a host asks its supervisor, because a subclass has overridden them."""
    return [
        piece
        for piece in ("on_out_of_memory", "on_library_failure")
        if getattr(getattr(supervisor, piece), "__func__", None) is not getattr(DeviceSupervisor, piece)
    ]


def decided(supervisor: DeviceSupervisor, piece: str, error: AccelError, now: float) -> DeviceDecision:
    """What the supervisor decides about a failure.

    Raises:
        TypeError: It returned something that does not decide it; the text names the value.
        Exception: What it raised.
    """
    return checked_decision(piece, getattr(supervisor, piece)(error, now))


def _seconds(within: Any) -> float:
    if not (isinstance(within, int | float) and within > 0):
        raise ValueError(f"within is {within!r}; it must be a positive number of seconds")
    return within
