"""How the functions of whole lines reach :mod:`callboard.kernel.cub`, which works along the last axis."""

import math
from typing import Any, Literal

from callboard.arrays.handles import Ref, axes_of, axis_of, cast, submit
from callboard.arrays.manipulation import moveaxis, permute_dims, reshape
from callboard.core.dtype import DType
from callboard.kernel.cub import Reduce, Scan
from callboard.kernel.tensor import Reduction

__all__ = ["last", "reduced", "rows", "scanned"]


def rows(function: str, x: Ref, axis: Any) -> tuple[Ref, tuple[int, ...], tuple[int, ...]]:
    """``x`` with the axes in question merged to the last one; what is left of its shape, without and with ones."""
    axes = axes_of(function, x, axis)
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept)
    with_ones = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    moved = x if (*kept, *axes) == tuple(range(x.ndim)) else permute_dims(x, (*kept, *axes))
    return reshape(moved, (*shape, math.prod(x.shape[a] for a in axes))), shape, with_ones


def reduced(
    function: str,
    x: Ref,
    axis: Any,
    keepdims: bool,
    operation: Literal["sum", "product", "min", "max"],
    dtype: DType,
    init: int | None = None,
) -> Ref:
    """What an operation makes of the elements along some axes, computed and given in ``dtype``."""
    if dtype.is_complex:
        found, with_ones = _complex(function, cast(x, dtype), axis, operation)
    else:
        fits = x.dtype.kind == dtype.kind and x.dtype.itemsize <= dtype.itemsize
        narrow = x if fits and not (x.dtype is not dtype and operation in ("min", "max")) else cast(x, dtype)
        line, _, with_ones = rows(function, narrow, axis)
        found = submit(x, Reduce(x=line, operation=operation, init=init, dtype=dtype.name))
    return found.reshape(with_ones) if keepdims else found


def _complex(function: str, x: Ref, axis: Any, operation: str) -> tuple[Ref, tuple[int, ...]]:
    axes = axes_of(function, x, axis)
    out = tuple(a for a in range(x.ndim) if a not in axes)
    join: Any = "add" if operation == "sum" else "mul"
    found: Ref = submit(x, Reduction(a=x, modes_a=tuple(range(x.ndim)), modes_out=out, op_reduce=join))
    return found, tuple(1 if a in axes else n for a, n in enumerate(x.shape))


def last(function: str, x: Ref, axis: Any) -> tuple[Ref, int]:
    """``x`` with an axis moved to the end, and which one it was."""
    along = axis_of(function, x, axis)
    return (x if along == x.ndim - 1 else moveaxis(x, along, -1)), along


def scanned(function: str, x: Ref, axis: int, operation: Literal["sum", "product"], dtype: DType) -> Ref:
    """Running sums or products along an axis."""
    line, along = last(function, cast(x, dtype), axis)
    found: Ref = submit(x, Scan(x=line, operation=operation))
    return found if along == x.ndim - 1 else moveaxis(found, -1, along)
