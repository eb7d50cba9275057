"""The messages of managed memory."""

from typing import ClassVar, Literal

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import Op, Origin, Outputs
from callboard.core.operand import InOut, Out
from callboard.core.ref import GpuRef
from callboard.kernel.managed.actor import ManagedAllocatorActor

__all__ = ["Advice", "Advise", "Allocate", "Location", "Prefetch"]

Location = Literal["device", "host"]
Advice = Literal["read_mostly", "preferred_location", "accessed_by"]


class Allocate(Op[ManagedAllocatorActor, GpuRef], tag="managed.allocate"):
    """A new array in managed memory, not initialised; ``OutOfMemory`` beyond the free memory of the device.

    Args:
        shape: Extents, each >= 0.
        dtype: The dtype of the elements.
        out: Left None.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"out"})

    shape: tuple[int, ...]
    dtype: DTypeLike = "f32"
    out: Out | None = None

    @property
    def memory(self) -> Origin | None:
        return "managed"

    def infer(self) -> Outputs:
        if any(n < 0 for n in self.shape):
            raise ShapeError(f"managed.allocate: shape {self.shape}: extents are >= 0")
        if self.out is not None:
            raise ShapeError("managed.allocate: out is given; it makes a new array")
        return {"out": layout_of(as_dtype(self.dtype), self.shape)}


class Prefetch(Op[ManagedAllocatorActor, GpuRef], tag="managed.prefetch"):
    """Move the pages of an array to the device or the host, in its order; returns the array, pending on this op.

    Args:
        x: Array of managed memory, any view of it: its pages from the first byte to the last are moved.
        to: Target of the move.
    """

    returns: ClassVar[tuple[str, ...]] = ("x",)

    x: InOut
    to: Location = "device"

    def infer(self) -> Outputs:
        return {}


class Advise(Op[ManagedAllocatorActor, GpuRef], tag="managed.advise"):
    """Say how an array will be used (``cuMemAdvise``); gives the array. A hint: results are the same without.

    Args:
        x: Array of managed memory.
        advice: ``"read_mostly"``: pages may have copies on both sides; ``"preferred_location"``: pages stay at
            ``location``; ``"accessed_by"``: ``location`` keeps the pages mapped wherever they are.
        location: Preferred location, or the processor that accesses the array; ignored for ``"read_mostly"``.
        unset: Take the advice back.
    """

    returns: ClassVar[tuple[str, ...]] = ("x",)

    x: InOut
    advice: Advice = "read_mostly"
    location: Location = "device"
    unset: bool = False

    def infer(self) -> Outputs:
        return {}
