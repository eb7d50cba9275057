"""Rotary position embedding: pairs of elements turned by angles that depend on the position.

J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv:2104.09864.
"""

from typing import Any, ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import FLOATS, INDICES, accumulator, axis_of, check_floats

__all__ = ["Rope", "RopeBackward", "check_rope"]


class Rope(Op[CudnnActor, GpuRef], tag="dnn.rope"):
    """Turn pairs of elements of the last axis: ``(a, b)`` becomes ``(a·cos - b·sin, a·sin + b·cos)``.

    Pair *j* of a position is rotated by the angle in column *j* of that position's row in the tables
    (``dev.dnn.rope_tables``). Elements after the rotated pairs are unchanged.

    Args:
        x: ``[…, length, …, width]``, f16, bf16, f32 or f64, any strides; a dense last axis is the fastest.
        cos, sin: ``[positions, pairs]``, f32, or the dtype of ``x``; ``2 * pairs <= width``.
        positions: The row of each place, i32 or i64: ``[length]``, or ``[batch, length]`` where ``batch`` is the first
            extent of ``x``; None: 0 to length - 1. A position without a row fails the op with ``ShapeError`` when it is
            executed.
        axis: The axis of positions: -2 for ``[batch, heads, length, width]``, -3 for ``[batch, length, heads, width]``.
        interleaved: Pairs are neighbours ``(0, 1), (2, 3), …``; else halves ``(0, pairs), (1, pairs + 1), …``.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    cos: In
    sin: In
    positions: In | None = None
    axis: int = -2
    interleaved: bool = False
    out: Out | None = None

    def infer(self) -> Outputs:
        check_rope(self, "x", self.x)
        return {"out": layout_of(self.x.dtype, self.x.shape)}


class RopeBackward(Op[CudnnActor, GpuRef], tag="dnn.rope_backward"):
    """The gradient of :class:`Rope`: the pairs turned back.

    Args:
        dy: The gradient by the result, any strides.
        cos, sin, positions, axis, interleaved: The same as forward.
        dx: Shape and dtype of ``dy``; a new row-major array when None. May be ``dy``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "dy")})

    dy: In
    cos: In
    sin: In
    positions: In | None = None
    axis: int = -2
    interleaved: bool = False
    dx: Out | None = None

    def infer(self) -> Outputs:
        check_rope(self, "dy", self.dy)
        return {"dx": layout_of(self.dy.dtype, self.dy.shape)}


def check_rope(op: Any, name: str, x: Operand) -> int:
    """The axis of the places; all operands fit."""
    dtype = check_floats(op, name, x)
    axis = axis_of(op, name, x, op.axis)
    if x.ndim < 2 or axis == x.ndim - 1:
        raise refuse(op, f"axis is {op.axis}; {name} is {x.layout!r}, whose last axis holds the pairs")
    cos, sin = op.cos, op.sin
    if cos.ndim != 2 or cos.layout.shape != sin.layout.shape or cos.dtype is not sin.dtype:
        raise refuse(op, f"cos is {cos.layout!r} and sin {sin.layout!r}; both must be [positions, pairs]")
    if cos.dtype not in (dtype, accumulator(dtype)):
        raise refuse(op, f"cos is {cos.layout!r}; it must be {dtype} or {accumulator(dtype)}")
    if 2 * cos.shape[1] > x.shape[-1]:
        raise refuse(op, f"cos is {cos.layout!r}: {2 * cos.shape[1]} elements to turn, and {name} is {x.layout!r}")
    length, positions = x.shape[axis], op.positions
    if positions is None:
        if length > cos.shape[0]:
            raise refuse(op, f"cos is {cos.layout!r}, with rows for {cos.shape[0]} positions; {name} has {length}")
    else:
        if positions.dtype not in INDICES:
            raise refuse(op, f"positions is {positions.layout!r}; they must be i32 or i64 (dev.array.cast)")
        accepted = [(length,)] + ([(x.shape[0], length)] if axis > 0 else [])
        if positions.shape not in accepted:
            shapes = " or ".join(map(str, accepted))
            raise refuse(op, f"positions is {positions.layout!r}; its shape must be {shapes}")
        if not cos.shape[0] and positions.size:
            raise refuse(op, f"cos is {cos.layout!r}: there is no position")
    return axis
