"""Gather and scatter by integer arrays."""

from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Out
from callboard.core.ref import GpuRef
from callboard.kernel.array.actor import ArrayActor
from callboard.kernel.array.checks import INDEX_DTYPES, broadcast_shape, gathered_shape
from callboard.kernel.checks import refuse

__all__ = ["Gather", "Scatter", "TakeAlong"]


class Gather(Op[ArrayActor, GpuRef], tag="array.gather"):
    """``out[…, i…, …] = src[indices[0][i…], indices[1][i…], …, …]``: NumPy's indexing by integer arrays.

    Args:
        src: Any dtype, shape and strides. Its first axes are indexed, one by each array; move others there by a view.
        indices: 1 to 8 integer arrays, of any strides, which broadcast to one shape. A negative index counts from the
            end. Indices out of range fail the op with ``ShapeError`` when it is executed.
        place: Position of the indices' axes among the other axes of the result.
        out: Any strides; a new row-major array when None. Must not overlap the operands.
    """

    src: In
    indices: tuple[In, ...]
    place: int = 0
    out: Out | None = None

    def infer(self) -> Outputs:
        return {"out": layout_of(self.src.dtype, gathered_shape(self, "src", self.src, self.indices, self.place))}


class TakeAlong(Op[ArrayActor, GpuRef], tag="array.take_along"):
    """``out[i, j, k] = src[i, indices[i, j, k], k]`` with ``axis=1``: one index for each line along an axis.

    Args:
        src: Any dtype, shape and strides.
        indices: Integers, as many axes as ``src``; on the other axes both broadcast. Negative ones count from the end.
            Indices out of range fail the op with ``ShapeError`` when it is executed.
        axis: The axis; negative ones count from the end.
        out: Any strides; a new row-major array when None. Must not overlap the operands.
    """

    src: In
    indices: In
    axis: int = -1
    out: Out | None = None

    def infer(self) -> Outputs:
        src, indices = self.src, self.indices
        if indices.dtype not in INDEX_DTYPES:
            raise refuse(self, f"indices is {indices.layout!r}; indices are integers (convert it with cast)")
        if src.ndim == 0 or indices.ndim != src.ndim:
            raise refuse(
                self, f"src is {src.layout!r} and indices is {indices.layout!r}: both have the same axes, >= 1"
            )
        if not -src.ndim <= self.axis < src.ndim:
            raise refuse(self, f"axis is {self.axis}; src is {src.layout!r}, with {src.ndim} axes")
        axis = self.axis % src.ndim
        lines = (*src.shape[:axis], 1, *src.shape[axis + 1 :])
        shape = broadcast_shape("array.take_along: src without its axis, and indices", [lines, indices.shape])
        shape = (*shape[:axis], indices.shape[axis], *shape[axis + 1 :])
        if src.shape[axis] == 0 and 0 not in shape:
            raise refuse(self, f"src is {src.layout!r}: an axis without elements cannot be indexed")
        return {"out": layout_of(src.dtype, shape)}


class Scatter(Op[ArrayActor, GpuRef], tag="array.scatter"):
    """``out[indices[0][i…], indices[1][i…], …, …] = values[…, i…, …]``: NumPy's assignment by integer arrays.

    Args:
        out: Any dtype, shape and strides. Its first axes are indexed, one by each array.
        values: Same dtype; shape of :class:`Gather`'s result.
        indices: Indices as for :class:`Gather`. If several indices name the same element, the CPU keeps the last value,
            a GPU any of them. If one is out of range, the op fails with ``ShapeError`` and writes nothing.
        place: See :class:`Gather`.
        awaited: The caller waits for the reply before ``out`` is used. Otherwise, if the op fails, the next op that
            reads ``out`` fails with it.
    """

    keeps = True

    out: InOut
    values: In
    indices: tuple[In, ...]
    place: int = 0
    awaited: bool = False

    def infer(self) -> Outputs:
        shape = gathered_shape(self, "out", self.out, self.indices, self.place)
        if self.values.dtype is not self.out.dtype or self.values.shape != shape:
            want = layout_of(self.out.dtype, shape)
            raise refuse(self, f"values is {self.values.layout!r}; it must be {want!r} (cast, broadcast_to)")
        return {}
