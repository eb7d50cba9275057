"""``Instance``: a recording whose results the caller has while nothing else writes them."""

import weakref
from typing import Any

from callboard.core.ref import Allocation, GpuRef

__all__ = ["Instance"]


class _Kept:
    """Takes no ids: the memory stays the recording's."""

    def append(self, id: int, /) -> None:
        """Do nothing."""


_KEPT = _Kept()


class _Loan(Allocation):
    """Memory of a recording for the refs and views of one result, which end with it."""

    __slots__ = ("owner",)

    def __init__(self, owner: Allocation) -> None:
        super().__init__(owner.id, _KEPT)
        self.owner = owner


class Instance:
    """A recording, and the arrays that it reads.

    Args:
        recording: The recording.
        lends: Its results are arrays of its own, each in memory of its own, so that they can be given away as they are.
    """

    def __init__(self, recording: Any, lends: bool) -> None:
        self.recording = recording
        self.lends = lends
        self._placed: dict[str, Any] = {}
        """The refs that it reads: given again, they need not take their places again."""
        self._lent: list[weakref.ref[_Loan]] = []

    @property
    def is_idle(self) -> bool:
        """True if no ref, view or export of its last results is left."""
        for weak in self._lent:
            loan = weak()
            if loan is not None and (loan.pins or not loan.freed):
                return False
        return True

    def replay(self, inputs: dict[str, Any]) -> list[GpuRef[Any]]:
        """The results, in memory that the next replay writes again."""
        if inputs is self._placed:
            outs = self.recording.replay()
            return list(outs) if isinstance(outs, tuple) else [outs]
        placed, self._placed = self._placed, {}  # not known if the replay is refused
        same = placed.keys() == inputs.keys() and all(placed[name] is ref for name, ref in inputs.items())
        outs = self.recording.replay() if same else self.recording.replay(**inputs)
        self._placed = inputs
        return list(outs) if isinstance(outs, tuple) else [outs]

    def lend(self, inputs: dict[str, Any]) -> list[GpuRef[Any]]:
        """The results, which the caller has: :attr:`is_idle` says when they are written again."""
        outs = self.replay(inputs)
        self._lent = []
        for out in outs:
            out.allocation = loan = _Loan(out.allocation)
            self._lent.append(weakref.ref(loan))
        return outs
