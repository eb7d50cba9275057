"""``x[mask] = value``: a number, or the values of an array one after the other, where a mask of bools holds."""

from typing import Any

import numpy as np

from callboard.arrays import elementwise, manipulation, reducing
from callboard.arrays.handles import Ref, cast, device_of, is_scalar, submit
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.ref import GpuRef
from callboard.kernel.array import Scatter
from callboard.kernel.cub import LowerBound
from callboard.kernel.memory import Copy
from callboard.kernel.recording import recorder

__all__ = ["assign_where", "number_for", "without_ones"]


def assign_where(x: Ref, mask: Any, value: Any) -> None:
    """Write where the mask holds.

    Args:
        x: Any strides.
        mask: Over the first axes of ``x``, on the device or on the host.
        value: A number; or an array that broadcasts to the axes behind, or has one more axis, for the places.

    Raises:
        ShapeError: It has another shape; or another number of lines than the mask has places, if that is known.
    """
    rest = x.shape[mask.ndim :]
    values: Any
    lines: tuple[int, ...] = ()
    if is_scalar(value):
        number = number_for(x, value)
        values = bool(number) if x.dtype.kind == "bool" else number
    else:
        values = without_ones(cast(value, x.dtype), len(rest))
        lines = values.shape[: values.ndim - len(rest)] if values.ndim > len(rest) else ()
        if len(lines) > 1 or any(n not in (1, m) for n, m in zip(values.shape[::-1], rest[::-1], strict=False)):
            raise ShapeError(
                f"the value is {values.layout!r} and {x.layout!r} has a mask of {mask.ndim} axes: behind an axis for "
                f"the places of the mask it must have the shape {rest}, or one that broadcasts to it"
            )
        values = manipulation.broadcast_to(values, (*lines, *rest))
    if lines:
        _place(x, mask, values)
        return
    flags = device_of(x).asarray(mask)
    over = flags.reshape((*flags.shape, *(1,) * len(rest))) if rest else flags
    elementwise.apply("where(c, v, x)", x, c=over, v=values, x=x)


def number_for(target: Ref, value: Any) -> Any:
    """The number as a fill takes it: a float for integers loses its fraction, as in NumPy."""
    if target.dtype.kind == "bool":
        return int(bool(value))
    if target.dtype.is_integer and isinstance(value, float | np.floating):
        return int(value)
    return int(value) if isinstance(value, bool | np.bool_) else value


def without_ones(value: Ref, ndim: int) -> Ref:
    """Without axes of extent 1 at the front that the target has not: NumPy lets them go in an assignment."""
    while value.ndim > ndim and value.shape[0] == 1:
        value = manipulation.squeeze(value, 0)
    return value


def _place(x: Ref, mask: Any, values: Ref) -> None:
    """Write each line of the values to its place, in the order of the places."""
    given = values.shape[0]
    if not mask.size or isinstance(mask, np.ndarray):
        _check(x, int(np.count_nonzero(mask)) if mask.size else 0, values)
    if not mask.size:
        return
    flags = manipulation.reshape(device_of(x).asarray(mask), (mask.size,))
    counted = reducing.scanned("indexing", flags, 0, "sum", DTYPES["i64"])
    if isinstance(mask, GpuRef) and x._port.services.blocking and recorder.get() is None:
        _check(x, int(counted[-1]), values)
    places: Ref = submit(x, LowerBound(x=counted, values=device_of(x).arange(1, max(given, 1) + 1)))
    if not given:  # then the mask must hold nowhere, and the first line is written to itself
        values = submit(x, Copy(src=x[(0,) * mask.ndim])).reshape((1, *values.shape[1:]))
        places = device_of(x).zeros((1,), dtype="i64")
    axes = mask.shape
    if x.layout.contiguous:
        x, axes = x.reshape((mask.size, *values.shape[1:])), (mask.size,)
    indices, inner = [], 1
    for extent in axes[:0:-1]:
        indices.append(elementwise.apply("remainder(floor_divide(p, n), e)", p=places, n=inner, e=extent))
        inner *= extent
    # With another number of places than of lines, an index is out of range: the scatter fails and writes nothing.
    first = "where(t == m, floor_divide(p, n), e)"
    indices.append(elementwise.apply(first, t=counted[-1:], m=given, p=places, n=inner, e=axes[0]))
    submit(x, Scatter(out=x, values=values, indices=tuple(indices[::-1])))


def _check(x: Ref, count: int, values: Ref) -> None:
    if count != values.shape[0]:
        raise ShapeError(
            f"x[mask] = value: the mask of {x.layout!r} selects {count} elements (lines), and the value is "
            f"{values.layout!r}; it must have as many, or be one that is written to all of them"
        )
