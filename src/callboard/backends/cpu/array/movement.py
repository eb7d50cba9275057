"""Plans of conversions and ranges."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.views import viewer
from callboard.core.dtype import as_dtype
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.op import Op
from callboard.core.operand import Operand
from callboard.kernel.array import Arange, Cast

__all__ = ["arange", "cast", "layout_of_out"]

Plan = Callable[..., None]
Array = np.ndarray[Any, Any]


def layout_of_out(op: Op[Any, Any]) -> Layout:
    """Return the layout of the given output, or of the one that the host allocates."""
    given: Operand | None = op.out  # type: ignore[attr-defined]
    return op.infer()["out"] if given is None else given.layout


@plans(Cast)
def cast(op: Cast) -> Plan:
    """Called with ``(src, out)``."""
    view_src, view_out = viewer(op.src.layout), viewer(layout_of_out(op))

    def work(src: int, out: int) -> None:
        np.copyto(view_out(out), view_src(src), casting="unsafe")

    return work


@plans(Arange)
def arange(op: Arange) -> Plan:
    """Called with ``(start, step, out)``."""
    dtype, view = as_dtype(op.dtype), viewer(layout_of_out(op))
    wide: Any = np.complex128 if dtype.is_complex else np.float64
    if dtype.is_integer:
        wide = np.uint64  # wraps around, as integers of 64 bits do, signed or not

    def work(start: Any, step: Any, out: int) -> None:
        array = view(out)
        if dtype.is_integer:
            start, step = start % 2**64, step % 2**64
        numbers = np.arange(array.size, dtype=np.uint64 if dtype.is_integer else np.float64).astype(wide)
        numbers *= wide(step)
        numbers += wide(start)
        np.copyto(array, numbers, casting="unsafe")

    return work
