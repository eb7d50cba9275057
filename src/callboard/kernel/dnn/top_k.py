"""The largest or smallest elements along an axis."""

from typing import ClassVar, Generic, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import FLOATS, axis_of, check_floats

__all__ = ["Largest", "TopK", "TopKBackward"]


class Largest(NamedTuple, Generic[Mode]):
    """Elements in order, and where they were.

    Attributes:
        values: The elements.
        indices: Positions of the elements along the axis, i64.
    """

    values: GpuRef[Mode]
    indices: GpuRef[Mode]


class TopK(Op[CudnnActor, Largest], tag="dnn.top_k"):
    """The ``k`` largest or smallest elements along an axis, in order, and where they were.

    Ties are resolved in favour of the lower index, and NaN counts as the largest, so that equal calls give equal
    results.

    Args:
        x: f16, bf16, f32 or f64, any strides.
        k: Number of elements, at most the extent of the axis.
        axis: Along which; negative ones count from the last.
        largest: The largest ones, descending; else the smallest ones, ascending.
        values: Shape and dtype of ``x``, but with ``k`` elements along the axis; a new array when None.
        indices: Their positions along the axis, i64, with the shape of ``values``; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("values", "indices")
    results: ClassVar[type[Largest]] = Largest

    x: In
    k: int
    axis: int = -1
    largest: bool = True
    values: Out | None = None
    indices: Out | None = None

    def infer(self) -> Outputs:
        dtype, axis = check_floats(self, "x", self.x), axis_of(self, "x", self.x, self.axis)
        extent = self.x.shape[axis]
        if not 0 <= self.k <= extent:
            raise refuse(self, f"k is {self.k}; axis {axis} of x, {self.x.layout!r}, has {extent} elements")
        shape = (*self.x.shape[:axis], self.k, *self.x.shape[axis + 1 :])
        return {"values": layout_of(dtype, shape), "indices": layout_of(DTYPES["i64"], shape)}


class TopKBackward(Op[CudnnActor, GpuRef], tag="dnn.top_k_backward"):
    """The gradient of :class:`TopK` by ``x``: ``dx`` is ``dvalues`` where the elements were, 0 elsewhere.

    Args:
        dvalues: The gradient by the values, any strides.
        indices: ``indices`` of :class:`TopK`, i64: distinct along the axis.
        extent: Extent of the axis in ``x``.
        axis: The same as forward.
        dx: Shape and dtype of ``x``, any strides; a new row-major array when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)

    dvalues: In
    indices: In
    extent: int
    axis: int = -1
    dx: Out | None = None

    def infer(self) -> Outputs:
        dtype, axis = check_floats(self, "dvalues", self.dvalues), axis_of(self, "dvalues", self.dvalues, self.axis)
        if self.indices.dtype.name != "i64" or self.indices.shape != self.dvalues.shape:
            raise refuse(self, f"indices is {self.indices.layout!r}; it must be i64 of shape {self.dvalues.shape}")
        if self.extent < self.dvalues.shape[axis]:
            raise refuse(self, f"extent is {self.extent}; dvalues is {self.dvalues.layout!r}, with more along {axis}")
        shape = (*self.dvalues.shape[:axis], self.extent, *self.dvalues.shape[axis + 1 :])
        return {"dx": layout_of(dtype, shape)}
