"""Pooling: the largest element or the average of windows of the spatial axes, and their gradients."""

from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out, Placeholder
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.checks import (
    FLOATS,
    DataLayout,
    Extents,
    Image,
    Padding,
    check_like,
    dtype_of,
    image_of,
    paddings_of,
    per_axis,
    shape_of_image,
)

__all__ = [
    "AvgPool",
    "AvgPoolBackward",
    "MaxPool",
    "MaxPoolBackward",
    "MaxPoolIndices",
    "MaxPooled",
    "Windows",
    "counts_of",
    "windows_of",
]

R_co = TypeVar("R_co", covariant=True)

LARGEST_PLANE = 2**31


class Windows(NamedTuple):
    """The geometry of pooling windows, one number per spatial axis.

    Attributes:
        extent: Extent of a window, in elements of the window.
        stride: Distance between neighbouring windows.
        padding: Before and after the array.
        dilation: Distance between neighbouring elements of a window.
    """

    extent: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


class MaxPooled(NamedTuple, Generic[Mode]):
    """The largest elements and where they are."""

    out: GpuRef[Mode]
    indices: GpuRef[Mode]


class _Pooling(Op[CudnnActor, R_co], Generic[R_co]):
    """Base of pooling; :class:`MaxPool` describes it."""

    stride: Extents | None = None
    padding: Padding = 0
    layout: DataLayout = "NCHW"


class AvgPool(_Pooling[GpuRef], tag="dnn.avg_pool"):
    """Average of each window (``PoolFwdRequest``).

    Args:
        x: ``[n, c, ...]`` with 1 to 3 spatial axes, or ``[n, ..., c]``; f16, bf16, f32 or f64, any strides.
        out: Same dtype; a new array when None.
        window, stride, layout: See :class:`MaxPool`.
        padding: Elements outside of the array, which count as 0: one number, or for each spatial axis one or
            ``(before, after)``, less than the window.
        count_include_pad: The divisor is the size of the window; else the number of elements inside of the array.

    Sums of halves are f32, rounded once.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    x: In
    window: Extents
    out: Out | None = None
    count_include_pad: bool = True

    def infer(self) -> Outputs:
        return {"out": layout_of(dtype_of(self, FLOATS, x=self.x), _pooled(self, "x", self.x))}


class AvgPoolBackward(_Pooling[GpuRef], tag="dnn.avg_pool_backward"):
    """Gradient of :class:`AvgPool`.

    Args:
        dy: The gradient by the result; f16, bf16, f32 or f64, any strides.
        shape: Shape of the pooled array, in the order of ``layout``.
        out: Same dtype; a new array when None.
        window, stride, padding, count_include_pad, layout: The same as forward.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    dy: In
    window: Extents
    shape: tuple[int, ...]
    out: Out | None = None
    count_include_pad: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, FLOATS, dy=self.dy)
        check_like(self, "dy", self.dy, _pooled_shape(self), "the shape of the result")
        return {"out": layout_of(dtype, self.shape)}


class MaxPool(_Pooling[GpuRef], tag="dnn.max_pool"):
    """The largest element of each window (``PoolFwdRequest``).

    Args:
        x: ``[n, c, ...]`` with 1 to 3 spatial axes, or ``[n, ..., c]``; f16, bf16, f32 or f64, any strides.
        out: Same dtype; a new array when None.
        window: Extent of a window: one number, or one for each spatial axis.
        stride: Distance between neighbouring windows; None: the extent of a window.
        padding: Elements outside of the array, which are never selected: one number, or for each spatial axis one or
            ``(before, after)``, less than the extent that a window covers.
        dilation: Distance between neighbouring elements of a window.
        layout: Order of the axes.

    NaN counts as larger than any number.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    x: In
    window: Extents
    out: Out | None = None
    dilation: Extents = 1

    def infer(self) -> Outputs:
        return {"out": layout_of(dtype_of(self, FLOATS, x=self.x), _pooled(self, "x", self.x))}


class MaxPoolIndices(_Pooling[MaxPooled], tag="dnn.max_pool_indices"):
    """:class:`MaxPool` with the place of each element that was taken, for the gradient.

    Args:
        x: ``[n, c, ...]`` with 1 to 3 spatial axes, or ``[n, ..., c]``; f16, bf16, f32 or f64, any strides.
        out: Same dtype; a new array when None.
        indices: i32, shape of ``out``: places in the spatial axes of ``x``, counted row-major; of several equal
            elements the first. A new array when None.
        window, stride, padding, dilation, layout: See :class:`MaxPool`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("out", "indices")
    results: ClassVar[type[MaxPooled]] = MaxPooled

    x: In
    window: Extents
    out: Out | None = None
    indices: Out | None = None
    dilation: Extents = 1

    def infer(self) -> Outputs:
        shape = _pooled(self, "x", self.x)
        return {"out": layout_of(dtype_of(self, FLOATS, x=self.x), shape), "indices": layout_of(DTYPES["i32"], shape)}


class MaxPoolBackward(_Pooling[GpuRef], tag="dnn.max_pool_backward"):
    """Gradient of :class:`MaxPoolIndices` (``PoolBwdRequest``), which adds up in a fixed order.

    Args:
        dy: The gradient by the result; f16, bf16, f32 or f64, any strides.
        indices: i32, shape of ``dy``: the indices that :class:`MaxPoolIndices` returned.
        shape: Shape of the pooled array, in the order of ``layout``.
        out: Same dtype as ``dy``; a new array when None.
        window, stride, padding, dilation, layout: The same as forward.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    dy: In
    indices: In
    window: Extents
    shape: tuple[int, ...]
    out: Out | None = None
    dilation: Extents = 1

    def infer(self) -> Outputs:
        dtype, shape = dtype_of(self, FLOATS, dy=self.dy), _pooled_shape(self)
        check_like(self, "dy", self.dy, shape, "the shape of the result")
        check_like(self, "indices", self.indices, shape, "the shape of the result")
        if self.indices.dtype is not DTYPES["i32"]:
            raise refuse(self, f"indices is {self.indices.layout!r}; its dtype must be i32")
        return {"out": layout_of(dtype, self.shape)}


def windows_of(op: Any, axes: int) -> Windows:
    """The windows that the settings of a pooling op name."""
    extent = per_axis(op, "window", op.window, axes)
    stride = extent if op.stride is None else per_axis(op, "stride", op.stride, axes)
    padding = paddings_of(op, op.padding, axes)
    dilation = per_axis(op, "dilation", getattr(op, "dilation", 1), axes)
    for n, step, pair in zip(extent, dilation, padding, strict=True):
        if max(pair) > (n - 1) * step:
            raise refuse(op, f"padding is {op.padding!r} and window {op.window!r}; a window would contain padding only")
    return Windows(extent, stride, padding, dilation)


def counts_of(op: Any, windows: Windows, spatial: tuple[int, ...]) -> tuple[int, ...]:
    """The number of windows along each axis of an array; at least one, each with an element of the array."""
    found = []
    for axis, (n, window, stride, (before, after), step) in enumerate(zip(spatial, *windows, strict=True)):
        reach, room = (window - 1) * step + 1, n + before + after
        if room < reach:
            raise refuse(
                op,
                f"a window covers {reach} elements of spatial axis {axis}, which has {n} and a padding of "
                f"{before} + {after}; pad more or use a smaller window",
            )
        many = (room - reach) // stride + 1
        if step > 1 and not all(_meets(i * stride - before, window, step, n) for i in range(many)):
            raise refuse(
                op, f"with dilation {step} a window of spatial axis {axis} contains padding only; pad less"
            )  # fmt: skip
        found.append(many)
    return tuple(found)


def _meets(start: int, window: int, step: int, n: int) -> bool:
    return any(0 <= start + q * step < n for q in range(window))


def _pooled(op: Any, name: str, operand: Operand) -> tuple[int, ...]:
    """The shape of the result of pooling an operand."""
    image = image_of(op, name, operand, op.layout)
    plane = 1
    for n in image.spatial:
        plane *= n
    if plane >= LARGEST_PLANE:
        raise refuse(op, f"{name} is {operand.layout!r}; its spatial axes must have fewer than 2**31 elements together")
    counts = counts_of(op, windows_of(op, len(image.spatial)), image.spatial)
    return shape_of_image(Image(image.batch, image.channels, counts), op.layout)


def _pooled_shape(op: Any) -> tuple[int, ...]:
    if any(n < 0 for n in op.shape):
        raise refuse(op, f"shape is {op.shape}; extents are at least 0")
    given: Layout = layout_of(DTYPES["f32"], op.shape)
    return _pooled(op, "shape", Placeholder(given))
