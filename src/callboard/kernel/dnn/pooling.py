"""Pooling: averages over windows of the spatial axes."""

from typing import Any, ClassVar, NamedTuple

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.checks import (
    FLOATS,
    DataLayout,
    Extents,
    Image,
    Padding,
    dtype_of,
    image_of,
    paddings_of,
    per_axis,
    refuse,
    shape_of_image,
)

__all__ = ["AvgPool", "Windows", "windows_of"]


class Windows(NamedTuple):
    """Where windows lie, a number for each spatial axis.

    Attributes:
        extent: Of a window, in elements of it.
        stride: From window to window.
        padding: Before and behind the array.
        dilation: From element to element of a window.
    """

    extent: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    def counts(self, op: Op[Any, Any], spatial: tuple[int, ...]) -> tuple[int, ...]:
        """How many windows lie along each axis of an array; at least one."""
        found = []
        for axis, (n, window, stride, (before, after), dilation) in enumerate(zip(spatial, *self, strict=True)):
            reach, room = (window - 1) * dilation + 1, n + before + after
            if room < reach:
                raise refuse(
                    op,
                    f"a window covers {reach} elements of spatial axis {axis}, which has {n} and a padding of "
                    f"{before} + {after}; pad more or use a smaller window",
                )
            found.append((room - reach) // stride + 1)
        return tuple(found)


def windows_of(op: "AvgPool", axes: int) -> Windows:
    """The windows that the settings of a pooling op name."""
    extent = per_axis(op, "window", op.window, axes)
    stride = extent if op.stride is None else per_axis(op, "stride", op.stride, axes)
    padding = paddings_of(op, op.padding, axes)
    for n, pair in zip(extent, padding, strict=True):
        if max(pair) >= n:
            raise refuse(op, f"padding is {op.padding!r} and window {op.window!r}; a window would lie in padding only")
    return Windows(extent, stride, padding, (1,) * axes)


class AvgPool(Op[CudnnActor, GpuRef], tag="dnn.avg_pool"):
    """Average of each window (``PoolFwdRequest``).

    Args:
        x: ``[n, c, ...]`` with 1 to 3 spatial axes, or ``[n, ..., c]``; f16, bf16, f32 or f64.
        window: Extent of a window on each spatial axis.
        out: Same dtype; a new array when None.
        stride: From window to window; None: windows lie side by side.
        padding: Elements outside of the array on each side, which count as 0.
        count_include_pad: The divisor is the size of the window; else the number of elements inside of the array.
        layout: Order of the axes.

    Sums of halves are f32, rounded once.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    x: In
    window: Extents
    out: Out | None = None
    stride: Extents | None = None
    padding: Padding = 0
    count_include_pad: bool = True
    layout: DataLayout = "NCHW"

    def infer(self) -> Outputs:
        dtype = dtype_of(self, FLOATS, x=self.x)
        image = image_of(self, "x", self.x, self.layout)
        counts = windows_of(self, len(image.spatial)).counts(self, image.spatial)
        result = Image(image.batch, image.channels, counts)
        return {"out": layout_of(dtype, shape_of_image(result, self.layout))}
