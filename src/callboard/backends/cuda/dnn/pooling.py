"""Pooling on a GPU by custom kernels: cuDNN pads both sides alike, gives no indices and adds gradients in any order."""

import ctypes
from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.kernels import kernel, made, types
from callboard.backends.cuda.launching import linear_grid
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel.dnn.layouts import channels_first
from callboard.kernel.dnn.pooling import (
    AvgPool,
    AvgPoolBackward,
    MaxPool,
    MaxPoolBackward,
    MaxPoolIndices,
    windows_of,
)

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["PoolingArgs", "average_gradient", "maximum_gradient", "pool", "pool_with_indices"]

THREADS = 256
Ints, Steps = c_int * 3, c_int64 * 5


class PoolingArgs(ctypes.Structure):
    """``Args`` of ``data/dnn_pooling.cu``."""

    _fields_ = (
        ("in_", c_void_p),
        ("out", c_void_p),
        ("indices", c_void_p),
        ("count", c_int64),
        ("in_step", Steps),
        ("out_step", Steps),
        ("index_step", Steps),
        ("channels", c_int64),
        ("made", Ints),
        ("given", Ints),
        ("window", Ints),
        ("stride", Ints),
        ("before", Ints),
        ("dilation", Ints),
        ("include_pad", c_int),
    )


class Pooling:
    """A plan: ``plan(stream, *addresses)`` of the array, the result and the indices in the op's order.

    Args:
        library: The library of the plan.
        op: The message.
        name: Name of the kernel.
        read: The operand that is pooled, or whose gradient is.
        order: Positions, among the arguments of a launch, of the array that is read, the array that is written, and the
            indices if there are any.
    """

    def __init__(self, library: "CudaDnn", op: Any, name: str, read: str, order: tuple[int, ...]) -> None:
        given, result = channels_first(getattr(op, read).layout, op.layout), channels_first(made(op), op.layout)
        self._order, self._empty = order, not result.size
        if self._empty:
            return
        windows = windows_of(op, given.ndim - 2)
        args = self._args = PoolingArgs(count=result.size, channels=result.shape[1])
        args.include_pad = int(getattr(op, "count_include_pad", False))
        args.in_step, args.out_step = _steps(given), _steps(result)
        if len(order) == 3:
            indices = op.indices.layout if op.indices is not None else op.infer()["indices"]
            args.index_step = _steps(channels_first(indices, op.layout))
        args.made, args.given = _three(result.shape[2:], 1), _three(given.shape[2:], 1)
        args.window, args.stride = _three(windows.extent, 1), _three(windows.stride, 1)
        args.before = _three([before for before, _ in windows.padding], 0)
        args.dilation = _three(windows.dilation, 1)
        defined = {
            **types(result.dtype, 1),
            "MAX": int(isinstance(op, MaxPool | MaxPoolIndices | MaxPoolBackward)),
            "LAST": int(op.layout == "NHWC"),
            "INDICES": int(isinstance(op, MaxPoolIndices)),
        }
        self._run = kernel(library.device, "dnn_pooling", defined, name, args, linear_grid(result.size), THREADS)

    def __call__(self, stream: "CudaStream", *addresses: int) -> None:
        if self._empty:
            return
        args, order = self._args, self._order
        args.in_, args.out = addresses[order[0]], addresses[order[1]]
        if len(order) == 3:
            args.indices = addresses[order[2]]
        self._run(stream.native)


def _three(numbers: Any, fill: int) -> Any:
    """Return the numbers for three axes; missing axes are first."""
    return Ints(*[fill] * (3 - len(numbers)), *numbers)


def _steps(array: Layout) -> Any:
    n, c, *spatial = array.strides
    return Steps(n, c, *[0] * (3 - len(spatial)), *spatial)


@plans(AvgPool, MaxPool)
def pool(library: "CudaDnn", op: AvgPool | MaxPool) -> Pooling:
    """A plan: called with ``(x, out)``."""
    return Pooling(library, op, "forward", "x", (0, 1))


@plans(MaxPoolIndices)
def pool_with_indices(library: "CudaDnn", op: MaxPoolIndices) -> Pooling:
    """A plan: called with ``(x, out, indices)``."""
    return Pooling(library, op, "forward", "x", (0, 1, 2))


@plans(AvgPoolBackward)
def average_gradient(library: "CudaDnn", op: AvgPoolBackward) -> Pooling:
    """A plan: called with ``(dy, out)``."""
    return Pooling(library, op, "backward", "dy", (0, 1))


@plans(MaxPoolBackward)
def maximum_gradient(library: "CudaDnn", op: MaxPoolBackward) -> Pooling:
    """A plan: called with ``(dy, indices, out)``."""
    return Pooling(library, op, "backward", "dy", (0, 2, 1))
