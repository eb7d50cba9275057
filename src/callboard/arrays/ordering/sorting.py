"""Arrays in order, and the distinct values of one."""

from typing import Any, Generic, NamedTuple

from callboard.arrays.elementwise import apply, imag, real
from callboard.arrays.handles import Ref, check_array, device_of, submit
from callboard.arrays.indexing.access import take
from callboard.arrays.manipulation import concat, moveaxis, reshape
from callboard.arrays.reducing import last, scanned
from callboard.core.dtype import DTYPES
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.array import Scatter
from callboard.kernel.cub import ArgSort, RunLengthEncode, Select, Sort, Unique
from callboard.kernel.memory import Empty

__all__ = [
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "argsort",
    "sort",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


class UniqueAll(NamedTuple, Generic[Mode]):
    """The distinct values of an array.

    Attributes:
        values: The values, in order.
        indices: Index of the first occurrence of each value.
        inverse_indices: For each element, the index of its value in ``values``.
        counts: Number of occurrences of each value.
    """

    values: GpuRef[Mode]
    indices: GpuRef[Mode]
    inverse_indices: GpuRef[Mode]
    counts: GpuRef[Mode]


class UniqueCounts(NamedTuple, Generic[Mode]):
    """The distinct values and their numbers of occurrences."""

    values: GpuRef[Mode]
    counts: GpuRef[Mode]


class UniqueInverse(NamedTuple, Generic[Mode]):
    """The distinct values, and where each element's value is among them."""

    values: GpuRef[Mode]
    inverse_indices: GpuRef[Mode]


def sort(x: GpuRef[Mode], /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> GpuRef[Mode]:
    """The elements in order along an axis; always stable. NaNs are after all others, and first when descending."""
    check_array("sort", "x", x)
    line, along = last("sort", x, axis)
    found: GpuRef[Mode] = submit(x, Sort(keys=line, descending=descending))
    return found if along == x.ndim - 1 else moveaxis(found, -1, along)


def argsort(x: GpuRef[Mode], /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> GpuRef[Mode]:
    """The indices that sort along an axis, int64; as :func:`sort`."""
    check_array("argsort", "x", x)
    line, along = last("argsort", x, axis)
    found: GpuRef[Mode] = submit(x, ArgSort(keys=line, descending=descending))
    return found if along == x.ndim - 1 else moveaxis(found, -1, along)


# -- distinct values ---------------------------------------------------------------------------------------------------


class _Groups(NamedTuple):
    """A line in order.

    Attributes:
        order: Indices that sort it.
        line: Sorted.
        first: True if an element is the first of its value.
        group: The number of its value.
    """

    order: Ref
    line: Ref
    first: Ref
    group: Ref


def _order(flat: Ref) -> Any:
    """The indices that sort a line; complex numbers by their real parts, then by their imaginary ones."""
    if not flat.dtype.is_complex:
        return submit(flat, ArgSort(keys=flat))
    by_imag = submit(flat, ArgSort(keys=imag(flat)))
    return take(by_imag, submit(flat, ArgSort(keys=take(real(flat), by_imag))))


def _groups(x: Ref) -> _Groups:
    flat = reshape(x, (x.size,))
    order = _order(flat)
    line = take(flat, order)
    first = device_of(x).ones((x.size,), dtype="bool")
    if x.size > 1:
        first = concat([first[:1], apply("b != a", b=line[1:], a=line[:-1])])
    group = scanned("unique", first, 0, "sum", DTYPES["i64"]) - 1
    return _Groups(order, line, first, group)


def _inverse(x: Ref, groups: _Groups) -> Ref:
    out = submit(x, Empty(shape=(x.size,), dtype="i64"))
    found: Ref = submit(x, Scatter(out=out, values=groups.group, indices=(groups.order,)))
    return found.reshape(x.shape)


def _kept(values: Ref, groups: _Groups) -> Any:
    return submit(values, Select(x=values, flags=groups.first))


def _counts(groups: _Groups) -> Any:
    return submit(groups.group, RunLengthEncode(x=groups.group)).lengths


def unique_all(x: GpuRef[Mode], /) -> UniqueAll[Mode]:
    """The distinct values in order, with all that belongs to them; every NaN is one of its own.

    Complex numbers are in the order of their real parts, those with the same in that of their imaginary ones.

    The number of values depends on the data: await ``values``, ``indices`` and ``counts`` before using anything that
    needs their shapes.
    """
    groups = _groups(check_array("unique_all", "x", x))
    values, indices = _kept(groups.line, groups), _kept(groups.order, groups)
    return UniqueAll(values, indices, _inverse(x, groups), _counts(groups))


def unique_counts(x: GpuRef[Mode], /) -> UniqueCounts[Mode]:
    """The distinct values in order and their numbers of occurrences, as in :func:`unique_all`."""
    groups = _groups(check_array("unique_counts", "x", x))
    return UniqueCounts(_kept(groups.line, groups), _counts(groups))


def unique_inverse(x: GpuRef[Mode], /) -> UniqueInverse[Mode]:
    """The distinct values in order, and for each element the index of its own; as :func:`unique_all`."""
    groups = _groups(check_array("unique_inverse", "x", x))
    return UniqueInverse(_kept(groups.line, groups), _inverse(x, groups))


def unique_values(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The distinct values in order; as :func:`unique_all`."""
    check_array("unique_values", "x", x)
    if x.dtype.is_complex:
        groups = _groups(x)
        return _kept(groups.line, groups)  # type: ignore[no-any-return]
    line = submit(x, Sort(keys=reshape(x, (x.size,))))
    found: GpuRef[Mode] = submit(x, Unique(x=line))
    return found
