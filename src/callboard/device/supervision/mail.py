"""Messages to the actor of a device."""

from typing import TYPE_CHECKING, Any

from callboard.actors import DeadLetterSuppression, Msg

if TYPE_CHECKING:
    from callboard.device.supervision.actor import DeviceActor  # noqa: F401 - in the bases

__all__ = ["ActorFailed", "ContextSuspected", "HostEnded", "HostMessage", "StartDue"]


class HostMessage(Msg["DeviceActor"], DeadLetterSuppression):
    """A message from a host, except completions, which bypass the mailbox."""

    host: Any
    message: Any


class HostEnded(Msg["DeviceActor"], DeadLetterSuppression):
    """A host has ended."""

    host: Any
    end: Any


class ActorFailed(Msg["DeviceActor"], DeadLetterSuppression):
    """A resident actor has stopped after a failure."""

    generation: int
    error: Any


class StartDue(Msg["DeviceActor"]):
    """Start the active host (again)."""


class ContextSuspected(Msg["DeviceActor"], DeadLetterSuppression):
    """An error of the GPU was seen from outside the context host, such as an Xid event of NVML.

    Attributes:
        reason: The error.
        dead: The context is dead; False: the host is to find out.
    """

    reason: str
    dead: bool
