"""Plans of conversions and ranges on a GPU."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.array.arguments import RangeArgs
from callboard.backends.cuda.axes import joint_axes
from callboard.backends.cuda.copies import copier, too_many_axes
from callboard.backends.cuda.launching import THREADS, CopyArgs, kernel_launcher, linear_grid
from callboard.core.dtype import as_dtype
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.op import Op
from callboard.core.operand import Operand
from callboard.kernel.array import Arange, Cast

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["arange", "cast", "layout_of_out", "too_scattered"]


def layout_of_out(op: Op[Any, Any]) -> Layout:
    """Return the layout of the given output, or of the one that the host allocates."""
    given: Operand | None = op.out  # type: ignore[attr-defined]
    return op.infer()["out"] if given is None else given.layout


def too_scattered(op: Cast) -> str | None:
    """The reason why the kernels cannot iterate over the axes of a conversion, None if they can."""
    return too_many_axes(joint_axes(layout_of_out(op), op.src.strides))


@plans(Cast, refuses=too_scattered)
def cast(device: "CudaDevice", op: Cast) -> "Callable[[CudaStream, int, int], None]":
    """Called with ``(stream, src, out)``; may compile now, a kernel for each pair of dtypes."""
    src, out = op.src.layout, layout_of_out(op)
    if src.dtype is out.dtype:
        copy = copier(device.driver, device.kernels, src, out)
        return lambda stream, src, out: copy(stream.native, src, out)
    if out.size == 0:
        return lambda stream, src, out: None
    axes = joint_axes(out, src.strides)
    args = CopyArgs(count=out.size, axes=max(len(axes.extents), 1))
    args.extent[0] = 1
    for field, steps in ((args.extent, axes.extents), (args.src_step, axes.src), (args.out_step, axes.out)):
        field[: len(steps)] = steps
    source = f"array_cast-FROM={src.dtype.name.upper()}-TO={out.dtype.name.upper()}"
    function = device.kernels.get(_spelled(source), "cast" if out.size < 1 << 32 else "cast_wide")
    run = kernel_launcher(device.driver, function, linear_grid(out.size), (THREADS, 1), args)
    src_first, out_first = axes.src_first * src.dtype.itemsize, axes.out_first * out.dtype.itemsize

    def convert(stream: "CudaStream", src: int, out: int) -> None:
        args.src, args.out = src + src_first, out + out_first
        run(stream.native)

    return convert


def _spelled(source: str) -> str:
    """With the types of a byte and of half a byte under the names that they have in ``convert.cuh``."""
    return source.replace("F8_", "").replace("F4_", "")


@plans(Arange)
def arange(device: "CudaDevice", op: Arange) -> "Callable[[CudaStream, Any, Any, int], None]":
    """Called with ``(stream, start, step, out)``."""
    layout, dtype = layout_of_out(op), as_dtype(op.dtype)
    if layout.size == 0:
        return lambda stream, start, step, out: None
    args = RangeArgs(count=layout.size, out_step=layout.strides[0], type=dtype.code)
    function = device.kernels.get("array", "arange")
    run = kernel_launcher(device.driver, function, linear_grid(layout.size), (THREADS, 1), args)

    def number(stream: "CudaStream", start: Any, step: Any, out: int) -> None:
        args.out = out
        if dtype.is_integer:
            args.whole_start, args.whole_step = start % 2**64, step % 2**64
        else:
            args.start[:] = complex(start).real, complex(start).imag
            args.step[:] = complex(step).real, complex(step).imag
        run(stream.native)

    return number
