"""Searches: positions of extremes, of elements that are not 0, places in a sorted line."""

from typing import Any, Literal

from callboard.arrays.dtypes import iinfo, result_type, together
from callboard.arrays.handles import Ref, Scalar, cast, check_array, device_of, is_scalar, submit
from callboard.arrays.indexing.access import take
from callboard.arrays.manipulation import broadcast_to, reshape
from callboard.arrays.reducing import reduced
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.cub import LowerBound, Select, UpperBound

__all__ = ["argmax", "argmin", "nonzero", "searchsorted"]


def argmax(x: GpuRef[Mode], /, *, axis: int | None = None, keepdims: bool = False) -> GpuRef[Mode]:
    """The index of the first largest element along an axis, int64; of all, row by row, when ``axis`` is None.

    A NaN counts as the largest.

    Raises:
        ShapeError: The reduction is over no elements.
    """
    return _extreme("argmax", x, axis, keepdims)


def argmin(x: GpuRef[Mode], /, *, axis: int | None = None, keepdims: bool = False) -> GpuRef[Mode]:
    """The index of the first smallest element, as :func:`argmax`; a NaN counts as the smallest."""
    return _extreme("argmin", x, axis, keepdims)


def _extreme(function: str, x: Ref, axis: int | None, keepdims: bool) -> Ref:
    check_array(function, "x", x)
    if x.dtype.is_complex:
        raise TypeError(f"xp.{function}: x is {x.layout!r}; complex numbers have no order (take xp.abs, xp.real)")
    found: Ref = reduced(function, f"{function}(x)", axis, keepdims, x=x)
    return found


def nonzero(x: GpuRef[Mode], /) -> tuple[GpuRef[Mode], ...]:
    """For each axis the indices of the elements that are not 0, in order of their rows, int64.

    The shape depends on the data: await each result before using anything that needs its shape.

    Raises:
        ShapeError: ``x`` is 0-d.
    """
    check_array("nonzero", "x", x)
    if x.ndim == 0:
        raise ShapeError(f"xp.nonzero: x is {x.layout!r}; it must have an axis (xp.reshape(x, (1,)))")
    flags = reshape(cast(x, DTYPES["bool"]), (-1,)) if x.size else device_of(x).zeros((0,), dtype="bool")
    found = []
    for axis, extent in enumerate(x.shape):
        line = device_of(x).arange(extent)
        along = line.reshape((*(1,) * axis, extent, *(1,) * (x.ndim - axis - 1)))
        places = reshape(broadcast_to(along, x.shape), (x.size,))
        found.append(submit(x, Select(x=places, flags=flags)))
    return tuple(found)


def searchsorted(
    x1: GpuRef[Mode],
    x2: GpuRef[Mode] | Scalar,
    /,
    *,
    side: Literal["left", "right"] = "left",
    sorter: GpuRef[Mode] | None = None,
) -> GpuRef[Mode]:
    """Insertion positions of the values ``x2`` in the sorted line ``x1``, int64: before equal elements, or after them.

    Args:
        x1: 1-d, ascending.
        x2: Any shape; or a number, which takes the dtype of ``x1`` where that holds it.
        side: ``"left"`` or ``"right"``.
        sorter: Indices that sort ``x1``.
    """
    check_array("searchsorted", "x1", x1)
    wanted = check_array("searchsorted", "x2", _beside(x1, x2) if is_scalar(x2) else x2)
    if side not in ("left", "right"):
        raise ShapeError(f"xp.searchsorted: side is {side!r}; 'left' or 'right'")
    line = x1 if sorter is None else take(x1, sorter)
    line, values = together(line, wanted)
    bound: Any = LowerBound if side == "left" else UpperBound
    found: GpuRef[Mode] = submit(x1, bound(x=line, values=values))
    return found


def _beside(x: Ref, number: Any) -> Ref:
    to = result_type(x, number)
    fits = not to.is_integer or iinfo(to).min <= int(number.real) <= iinfo(to).max
    found: Ref = device_of(x).full((), number, dtype=to) if fits else device_of(x).asarray(number)
    return found
