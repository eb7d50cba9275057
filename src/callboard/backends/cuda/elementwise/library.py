"""``CudaElementwise``: which plan serves which message."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.elementwise import mapping, reducing
from callboard.backends.cuda.workspace import Workspace
from callboard.core.library import Entry, Library
from callboard.core.op import Op
from callboard.kernel.elementwise import Map, MapMany, Reduce

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CudaElementwise"]

PLANS: Mapping[type[Op[Any, Any]], Callable[..., Any]] = {
    Map: mapping.map_one,
    MapMany: mapping.map_many,
    Reduce: reducing.reduce,
}
"""From the library and the message, with placeholders for operands, to its plan."""


class CudaElementwise(Library):
    """Serves :mod:`callboard.kernel.elementwise`: one kernel for each expression, dtypes and kind of layout.

    The kernels are generated as text and compiled by NVRTC on the host's helper thread; kernels that have been compiled
    on this machine are read from the disk. Sizes, steps and numbers are arguments, so another shape needs no compiler.
    Every launch can be recorded in a graph.
    """

    name = "elementwise"
    max_plans: ClassVar[int | None] = 1024
    table: ClassVar = {op: Entry(lambda library, op: PLANS[type(op)](library, op)) for op in PLANS}
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        super().__init__(device, stream)
        self.workspace = Workspace(device)

    def close(self) -> None:
        self.workspace.close()
