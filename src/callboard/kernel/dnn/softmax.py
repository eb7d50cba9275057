"""Softmax and its logarithm along an axis. Sums are accumulated in f32, in f64 for f64."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Outputs
from callboard.core.operand import In, Out
from callboard.kernel.dnn.accumulation import Accumulating
from callboard.kernel.dnn.operands import FLOATS, axis_of, check_floats, check_like

__all__ = ["LogSoftmax", "LogSoftmaxBackward", "Softmax", "SoftmaxBackward"]


class AlongAxis(Accumulating):
    """Base of both.

    Args:
        x: f16, bf16, f32 or f64, any strides. A line of -inf alone, or with an inf or a NaN, gives NaN.
        axis: Along which the results add up to 1; negative ones count from the last.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
        addend, alpha, beta: The result becomes ``alpha * result + beta * addend``. ``addend`` is like ``out``, and
            may be the same array, which then accumulates; it is not read if ``beta`` is 0. Halves are rounded before
            and after.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x"), ("out", "addend")})

    x: In
    axis: int = -1
    out: Out | None = None

    def infer(self) -> Outputs:
        axis_of(self, "x", self.x, self.axis)
        return self.accumulated(layout_of(check_floats(self, "x", self.x), self.x.shape))


class BackAlongAxis(Accumulating):
    """Base of the gradients of both.

    Args:
        dy: The gradient by the result; dtype and shape of ``y``, any strides.
        y: The result, any strides.
        axis: The same as forward.
        dx: Shape and dtype of ``y``; a new row-major array when None. May be ``dy``.
        addend, alpha, beta: The result becomes ``alpha * result + beta * addend``. ``addend`` is like ``dx``, and may
            be the same array, which then accumulates; it is not read if ``beta`` is 0. Halves are rounded before and
            after.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "dy"), ("dx", "addend")})

    dy: In
    y: In
    axis: int = -1
    dx: Out | None = None

    def infer(self) -> Outputs:
        axis_of(self, "y", self.y, self.axis)
        check_like(self, "dy", self.dy, "y", self.y)
        return self.accumulated(layout_of(check_floats(self, "y", self.y), self.y.shape))


class Softmax(AlongAxis, tag="dnn.softmax"):
    """``out = exp(x) / sum(exp(x))`` along an axis."""


class LogSoftmax(AlongAxis, tag="dnn.log_softmax"):
    """``out = x - log(sum(exp(x)))`` along an axis."""


class SoftmaxBackward(BackAlongAxis, tag="dnn.softmax_backward"):
    """The gradient of :class:`Softmax`: ``dx = y * (dy - sum(dy * y))``."""


class LogSoftmaxBackward(BackAlongAxis, tag="dnn.log_softmax_backward"):
    """The gradient of :class:`LogSoftmax`: ``dx = dy - exp(y) * sum(dy)``."""
