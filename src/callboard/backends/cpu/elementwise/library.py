"""``CpuElementwise``: which plan serves which message."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from callboard.backends.cpu.elementwise import mapping, reducing
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import Status
from callboard.core.library import Entry, Library
from callboard.core.op import Op
from callboard.kernel.elementwise import Map, MapMany, Reduce

__all__ = ["CpuElementwise"]

Plan = Callable[..., None]

PLANS: Mapping[type[Op[Any, Any]], Callable[[Any], Plan]] = {
    Map: mapping.map_one,
    MapMany: mapping.map_many,
    Reduce: reducing.reduce,
}
"""Maps a message, with placeholders for operands, to its work: a function of the launch arguments."""


class CpuElementwise(Library):
    """Serves :mod:`callboard.kernel.elementwise` with NumPy, and SciPy for the special functions."""

    name = "elementwise"
    max_plans: ClassVar[int | None] = 1024
    table: ClassVar = {op: Entry(lambda _, op: PLANS[type(op)](op), inline=True) for op in PLANS}

    def launch(self, stream: CpuStream, plan: Plan, *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run(self.name, plan, *dynamic)
