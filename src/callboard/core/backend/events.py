"""Points in streams: ``AccelEvent`` for the host, ``UserEvent`` for callers."""

import abc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.core.backend.streams import AccelStream

__all__ = ["AccelEvent", "UserEvent"]


class AccelEvent(abc.ABC):
    """A point in a stream."""

    @abc.abstractmethod
    def query(self) -> bool:
        """True if the stream has reached it.

        Raises:
            AccelError: The work before it failed: :class:`ContextPoisoned` for a sticky error.
        """

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Block until the stream has reached it, without holding the GIL; raises as :meth:`query`."""


class UserEvent(abc.ABC):
    """An event that callers record, wait for and measure by; those of the host are :class:`AccelEvent`.

    Attributes:
        pins: Measurements in flight that use it: it is neither recorded again nor closed.
    """

    __slots__ = ("pins",)

    def __init__(self) -> None:
        self.pins = 0

    @abc.abstractmethod
    def record(self, stream: "AccelStream") -> None:
        """Record the event behind all work enqueued on the stream so far."""

    @abc.abstractmethod
    def block(self, stream: "AccelStream") -> None:
        """Make work enqueued on the stream from now on wait for the last record of this event."""

    @abc.abstractmethod
    def since(self, start: "UserEvent") -> float:
        """Seconds of the device's clock from ``start`` to this event; both have been reached."""

    @abc.abstractmethod
    def export(self) -> bytes:
        """The handle by which another process opens it.

        Raises:
            UnsupportedOp: It was not made for that.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Destroy the event; nothing waits for it any more."""
