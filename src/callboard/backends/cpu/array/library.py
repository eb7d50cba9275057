"""``CpuArray``: which plan serves which message."""

from collections.abc import Callable
from typing import Any, ClassVar

from callboard.backends.cpu.array import indexing, movement
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import Status
from callboard.core.library import Entry, Library
from callboard.core.op import Op
from callboard.kernel.array import Arange, Cast, Gather, Scatter, TakeAlong

__all__ = ["CpuArray"]

Plan = Callable[..., None]

PLANS: dict[type[Op[Any, Any]], Callable[[Any], Plan]] = {
    Arange: movement.arange,
    Cast: movement.cast,
    Gather: indexing.gather,
    Scatter: indexing.scatter,
    TakeAlong: indexing.take_along,
}
"""Maps a message, with placeholders for operands, to its work: a function of the launch arguments."""


class CpuArray(Library):
    """Serves :mod:`callboard.kernel.array` with NumPy."""

    name = "array"
    table: ClassVar = {op: Entry(lambda _, op: PLANS[type(op)](op), inline=True) for op in PLANS}

    def launch(self, stream: CpuStream, plan: Plan, *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run(self.name, plan, *dynamic)
