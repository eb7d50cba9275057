"""Local response normalisation across channels.

A. Krizhevsky, I. Sutskever, G. E. Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", NIPS 2012.
"""

from typing import Any, ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import FLOATS, axis_of, check_floats, check_like

__all__ = ["Lrn", "LrnBackward"]


def check_window(op: Any) -> None:
    """The settings of both."""
    if op.size < 1:
        raise refuse(op, f"size is {op.size}; a window has at least 1 channel")
    if op.k < 0 or op.alpha < 0:
        raise refuse(op, f"k is {op.k!r} and alpha {op.alpha!r}; neither may be negative")


class Lrn(Op[CudnnActor, GpuRef], tag="dnn.lrn"):
    """``out = x / (k + alpha / size * sum(x²)) ** beta``, the sum over the ``size`` channels around each.

    Args:
        x: ``[n, …, channels, …]``, f16, bf16, f32 or f64, any strides.
        size: Channels in a window: ``size // 2`` before each channel, the channel itself, and the rest after it;
            channels outside the array count as 0. (For an even size, in cuDNN the second half is longer.)
        alpha, beta, k: Parameters of the formula above.
        axis: The channel axis.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS

    x: In
    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0
    axis: int = 1
    out: Out | None = None

    def infer(self) -> Outputs:
        check_window(self)
        axis_of(self, "x", self.x, self.axis)
        return {"out": layout_of(check_floats(self, "x", self.x), self.x.shape)}


class LrnBackward(Op[CudnnActor, GpuRef], tag="dnn.lrn_backward"):
    """The gradient of :class:`Lrn`.

    Args:
        dy: The gradient by the result; dtype and shape of ``x``, any strides.
        x: The input of the forward pass, any strides.
        size, alpha, beta, k, axis: The same as forward.
        dx: Shape and dtype of ``x``; a new row-major array when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)

    dy: In
    x: In
    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0
    axis: int = 1
    dx: Out | None = None

    def infer(self) -> Outputs:
        check_window(self)
        axis_of(self, "x", self.x, self.axis)
        check_like(self, "dy", self.dy, "x", self.x)
        return {"dx": layout_of(check_floats(self, "x", self.x), self.x.shape)}
