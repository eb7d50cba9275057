"""``Judge``: has the supervisor decide about each failure of a device, and carries out what is not a loss."""

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from callboard.actors.errors import ActorStopped, printable
from callboard.actors.supervision import Directive
from callboard.core.errors import AccelError, ContextPoisoned, DeviceStopped, LibraryError, OutOfMemory, Unrecoverable
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import Decided, Failing, Flush, ProtocolError
from callboard.device.supervision.decisions import DeviceDecision
from callboard.device.supervision.hosts.base import Host
from callboard.device.supervision.supervisor import DeviceSupervisor, decided

if TYPE_CHECKING:
    from callboard.device.supervision.actor import DeviceActor

__all__ = ["Judge", "Stop"]

log = logging.getLogger("callboard.device")


class Stop(NamedTuple):
    """The decision that a device stops.

    Attributes:
        why: The reason.
        error: The error of its ops.
    """

    why: str
    error: Unrecoverable


class Judge:
    """The decisions about one device."""

    def __init__(self, device: "DeviceActor") -> None:
        self._device = device
        self._after_trim: DeviceDecision | Stop = DeviceDecision(Directive.RESUME)

    def decide(self, piece: str, error: AccelError) -> DeviceDecision | Stop:
        """The supervisor's decision; a supervisor that fails, or returns something else, stops the device."""
        device = self._device
        method = f"{type(device.supervisor).__qualname__}.{piece}"
        try:
            decision = decided(device.supervisor, piece, error, device.clock())
        except (Exception, asyncio.CancelledError) as e:  # from a user's supervisor: without a decision nothing goes on
            stop = self._stop(
                f"{method} failed: {type(e).__name__}: {printable(e)}; it was to decide about: {error}", error
            )
            stop.error.__cause__ = e
            return stop
        if decision.directive is not Directive.STOP:
            return decision
        own = getattr(getattr(device.supervisor, piece), "__func__", None) is not getattr(DeviceSupervisor, piece)
        stop = self._stop(decision.reason or (f"{method} gave the device up: {error}" if own else str(error)), error)
        return decision if decision.trim else stop

    def loss(self, error: ContextPoisoned | Unrecoverable, *, replaceable: bool) -> DeviceDecision | Stop:
        """Whether a device whose context is dead gets another; never if that lived in a thread of this process."""
        device = self._device
        if isinstance(error, ContextPoisoned):
            error.guarded = error.guarded or device.port.has_guarded()
            if replaceable:
                return self.decide("on_context_lost", error)
        else:
            decision = self.decide("on_unrecoverable", error)
            if replaceable or isinstance(decision, Stop):
                return decision
        why = (
            f"{error}. A context that lives in a thread of this process cannot be replaced; "
            "restart the process, or open the device with isolation='process'"
        )
        return Stop(why, Unrecoverable(f"{device.port.name}: {why}", details=error.details))

    def _stop(self, why: str, error: AccelError) -> Stop:
        return Stop(why, DeviceStopped(f"{self._device.port.name}: {why}", details=getattr(error, "details", "")))

    def host_failing(self, host: Host, message: Failing) -> None:
        """Decide about a failure that a host reports and waits for."""
        error = as_error(message.failure)
        if not isinstance(error, LibraryError | OutOfMemory):
            raise ProtocolError(f"a failure of class {type(error).__name__}")
        device = self._device
        error.device, error.generation, error.op = device.port.name, device.port.generation, message.tag
        piece = "on_out_of_memory" if isinstance(error, OutOfMemory) else "on_library_failure"
        decision = self._after_trim if message.again else self.decide(piece, error)
        if isinstance(decision, DeviceDecision) and decision.trim and not message.again:
            self._after_trim = decision
            host.post(Decided(trim=True))
            device.on_answer(Flush())
            if message.waits or decision.directive is Directive.RESUME:
                return
        self._carry_out(decision, piece, error, host)

    def actor_stopped(self, error: ActorStopped) -> None:
        """Decide about a resident actor that has stopped after a failure."""
        self._carry_out(self.decide("on_actor_stopped", error), "on_actor_stopped", error, None)

    def _carry_out(self, decision: DeviceDecision | Stop, piece: str, error: AccelError, host: Host | None) -> None:
        device = self._device
        method = f"{type(device.supervisor).__qualname__}.{piece}"
        if isinstance(decision, DeviceDecision) and decision.directive is Directive.STOP:
            decision = self._stop(decision.reason or f"{method} gave the device up: {error}", error)
        if isinstance(decision, Stop):
            device.give_up(decision.error, decision.why, error)
        elif decision.directive is Directive.ESCALATE:
            lost = ContextPoisoned(f"{method} gave the context up: {error}")
            lost.__cause__ = error
            device.give_up(lost)
        if host is not None:  # also one that was given up: a thread holds its ops until it has the decision
            host.post(Decided(restart=not isinstance(decision, Stop) and decision.directive is Directive.RESTART))
