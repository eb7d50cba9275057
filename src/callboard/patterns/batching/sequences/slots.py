"""``SequenceSlot``, a worker's view of a sequence, and ``SequenceLost``, the error for a lost sequence."""

from collections.abc import Hashable
from typing import Any, Literal

from callboard.actors.errors import AccelError

__all__ = ["SequenceLost", "SequenceSlot", "WhyLost"]

WhyLost = Literal["unknown", "ended", "idle", "failed", "restarted"]


class SequenceLost(AccelError):
    """There is no such sequence, or it has ended, with its state. Start it again.

    Attributes:
        sequence: Name of the sequence.
        reason: ``"unknown"``: it was never started, or its record was dropped. ``"ended"``: a request had ``end=True``.
            ``"idle"``: no request arrived for ``idle_timeout`` seconds. ``"failed"``: the function raised for a batch
            that it was in, or its worker lost its context. ``"restarted"``: another request had ``start=True``.
    """

    def __init__(self, message: str = "", sequence: Hashable = None, reason: WhyLost = "unknown") -> None:
        super().__init__(message)
        self.sequence = sequence
        self.reason: WhyLost = reason


class SequenceSlot:
    """A sequence on its worker.

    Attributes:
        sequence: Name of the sequence.
        number: Number of the slot, from 0 to ``max_sequences - 1``, unique on that worker; an index into the worker's
            state on a device.
        start: True for the first request of the sequence: the previous state of the slot must be cleared.
        end: This is its last request.
        state: The function's own, None at first.
    """

    __slots__ = ("end", "number", "sequence", "start", "state")

    def __init__(self, sequence: Hashable, number: int) -> None:
        self.sequence = sequence
        self.number = number
        self.start = True
        self.end = False
        self.state: Any = None

    def __repr__(self) -> str:
        marks = f"{', start' if self.start else ''}{', end' if self.end else ''}"
        return f"<SequenceSlot {self.number} of {self.sequence!r}{marks}>"
