"""Softmax and its logarithm along an axis. Sums are accumulated in f32, in f64 for f64."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import FLOATS, axis_of, check_floats, check_like

__all__ = ["LogSoftmax", "LogSoftmaxBackward", "Softmax", "SoftmaxBackward"]


class AlongAxis(Op[CudnnActor, GpuRef]):
    """Base of both.

    Args:
        x: f16, bf16, f32 or f64, any strides. A line of -inf alone, or with an inf or a NaN, gives NaN.
        axis: Along which the results add up to 1; negative ones count from the last.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    axis: int = -1
    out: Out | None = None

    def infer(self) -> Outputs:
        axis_of(self, "x", self.x, self.axis)
        return {"out": layout_of(check_floats(self, "x", self.x), self.x.shape)}


class BackAlongAxis(Op[CudnnActor, GpuRef]):
    """Base of the gradients of both.

    Args:
        dy: The gradient by the result; dtype and shape of ``y``, any strides.
        y: The result, any strides.
        axis: The same as forward.
        dx: Shape and dtype of ``y``; a new row-major array when None. May be ``dy``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "dy")})

    dy: In
    y: In
    axis: int = -1
    dx: Out | None = None

    def infer(self) -> Outputs:
        axis_of(self, "y", self.y, self.axis)
        check_like(self, "dy", self.dy, "y", self.y)
        return {"dx": layout_of(check_floats(self, "y", self.y), self.y.shape)}


class Softmax(AlongAxis, tag="dnn.softmax"):
    """``out = exp(x) / sum(exp(x))`` along an axis."""


class LogSoftmax(AlongAxis, tag="dnn.log_softmax"):
    """``out = x - log(sum(exp(x)))`` along an axis."""


class SoftmaxBackward(BackAlongAxis, tag="dnn.softmax_backward"):
    """The gradient of :class:`Softmax`: ``dx = y * (dy - sum(dy * y))``."""


class LogSoftmaxBackward(BackAlongAxis, tag="dnn.log_softmax_backward"):
    """The gradient of :class:`LogSoftmax`: ``dx = dy - exp(y) * sum(dy)``."""
