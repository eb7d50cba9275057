"""The open recording of the calling task or thread, which takes ops in place of the device."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from callboard.core.op import Op
from callboard.core.ref import Allocation, DeferredRef

__all__ = ["Recorder", "Stream", "recorder"]


class Stream(Protocol):
    """A stream of random numbers whose position is kept in the application."""

    def take(self, fills: Sequence[tuple[int, int]], passes: int) -> list[list[int]]:
        """Take numbers for fills that come one after the other, several times over.

        Args:
            fills: For each fill, ``(multiple at which its position lies, number of words it takes)``.
            passes: The number of times.

        Returns:
            For each pass, the position of each fill.
        """
        ...


class Recorder(Protocol):
    """An open recording."""

    def owns(self, port: object) -> bool:
        """True if it records the ops of this port."""
        ...

    def makes(self, allocation: Allocation) -> bool:
        """True if its ops make this memory, and may use it: not after the conditional block that made it."""
        ...

    def draw(self, stream: Stream, size: tuple[int, int]) -> None:
        """The op that is recorded next takes its position from this stream, at each replay."""

    def drawn(self) -> bool:
        """True if the op of the last :meth:`draw` was not recorded (it was another device's). Resets the state."""
        ...

    def record(self, op: Op[Any, Any], depth: int, into: DeferredRef[Any] | None = None) -> Any:
        """Record an op and return its reply; ``into`` becomes its one result."""


recorder: ContextVar[Recorder | None] = ContextVar("callboard_recorder", default=None)
