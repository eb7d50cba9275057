"""Sorts, searches, sets, quantiles, histograms."""

from typing import Any

import numpy

from callboard.arrays.elementwise import apply
from callboard.arrays.handles import submit
from callboard.core.dtype import DTYPES
from callboard.core.ref import GpuRef
from callboard.kernel.array import Scatter
from callboard.numpylike.binding import Array, Maybe, function


@function()
def sort(np: Any, a: Array, axis: Any = -1, stable: Any = None) -> Any:
    """The elements in order along an axis; stable. Complex numbers by their real parts first."""
    if axis is None:
        a, axis = np.ravel(a), -1
    if a.dtype.is_complex:
        return np.xp.take_along_axis(a, argsort(np, a, axis), axis=axis)
    return np.xp.sort(a, axis=axis)


@function()
def argsort(np: Any, a: Array, axis: Any = -1, stable: Any = None) -> Any:
    """The indices that sort along an axis; stable."""
    if axis is None:
        a, axis = np.ravel(a), -1
    if a.dtype.is_complex:
        first = np.xp.argsort(np.xp.imag(a), axis=axis)
        second = np.xp.argsort(np.xp.take_along_axis(np.xp.real(a), first, axis=axis), axis=axis)
        return np.xp.take_along_axis(first, second, axis=axis)
    return np.xp.argsort(a, axis=axis)


@function()
def partition(np: Any, a: Array, kth: Any, axis: Any) -> Any:
    """The elements in order along an axis: a partition at every place."""
    _check_kth(a, kth, axis)
    return sort(np, a, axis)


@function()
def argpartition(np: Any, a: Array, kth: Any, axis: Any) -> Any:
    """The indices that sort along an axis: a partition at every place."""
    _check_kth(a, kth, axis)
    return argsort(np, a, axis)


def _check_kth(a: Any, kth: Any, axis: Any) -> None:
    n = a.size if axis is None else a.shape[axis]
    for k in numpy.atleast_1d(numpy.asarray(kth)):
        if not -n <= k < n and n:
            raise ValueError(f"kth(={k}) out of bounds ({n})")


@function()
def sort_complex(np: Any, a: Array) -> Any:
    """The elements in order, as complex numbers."""
    small = a.dtype.name in ("i8", "u8", "i16", "u16", "f32", "c64")
    return sort(np, np.xp.astype(a, DTYPES["c64" if small else "c128"], copy=False))


@function()
def lexsort(np: Any, keys: Any, axis: int) -> Any:
    """The indices that sort by several keys, the last one first."""
    lines = [np.asarray(one) for one in keys]
    if not lines:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    order = argsort(np, lines[0], axis)
    for line in lines[1:]:
        order = np.xp.take_along_axis(
            order, argsort(np, np.xp.take_along_axis(line, order, axis=axis), axis), axis=axis
        )
    return order


@function()
def searchsorted(np: Any, a: Array, v: Any, side: str = "left", sorter: Maybe = None) -> Any:
    """Where values belong in a sorted line."""
    if isinstance(v, numpy.generic) or not isinstance(v, GpuRef | int | float):
        v = np.asarray(v)
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    return np.xp.searchsorted(a, v, side=side, sorter=sorter)


@function()
def digitize(np: Any, x: Array, bins: Array, right: bool = False) -> Any:
    """The bin of each value; bins that descend, too, for which it waits."""
    if bins.ndim != 1:
        raise ValueError("bins must be one-dimensional")
    steps = (bins[1:] - bins[:-1]).get() if bins.shape[0] > 1 and x._port.services.blocking else numpy.zeros(0)
    side = "left" if right else "right"
    if (steps >= 0).all():
        return np.xp.searchsorted(bins, x, side=side)
    if (steps <= 0).all():
        return bins.shape[0] - np.xp.searchsorted(np.flip(bins), x, side=side)
    raise ValueError("bins must be monotonically increasing or decreasing")


@function()
def nonzero(np: Any, a: Array) -> Any:
    """The indices of the elements that are not 0, for each axis."""
    if a.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return np.xp.nonzero(a)


@function()
def flatnonzero(np: Any, a: Array) -> Any:
    """The indices, in a line, of the elements that are not 0."""
    return np.xp.nonzero(np.ravel(a))[0]


@function()
def argwhere(np: Any, a: Array) -> Any:
    """The indices of the elements that are not 0, one line each."""
    if a.ndim == 0:
        return argwhere(np, np.reshape(a, (1,)))[:, :0]
    return np.xp.stack(np.xp.nonzero(a), axis=-1)


# -- sets --------------------------------------------------------------------------------------------------------------


@function()
def unique(
    np: Any, ar: Array, return_index: bool, return_inverse: bool, return_counts: bool, axis: Any, equal_nan: bool
) -> Any:
    """The distinct elements in order; the distinct lines along an axis."""
    if axis is None:
        found = _distinct(np, np.ravel(ar), equal_nan)
        found[2] = np.reshape(found[2], ar.shape)
    else:
        lines = np.moveaxis(ar, axis, 0)
        n = lines.shape[0]
        table = np.reshape(lines, (n, int(numpy.prod(lines.shape[1:]))))
        order = np.xp.arange(n)
        for at in range(table.shape[1] - 1, -1, -1):
            order = np.xp.take(order, argsort(np, np.xp.take(table[:, at], order)))
        ordered = np.xp.take(table, order, axis=0)
        first = np.ones((n,), dtype="?")
        if n > 1:
            first[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
        found = _grouped(np, ordered, order, first)
        found[0] = np.moveaxis(np.reshape(found[0], (-1, *lines.shape[1:])), 0, axis)
    wanted = (True, return_index, return_inverse, return_counts)
    chosen = tuple(x for x, is_wanted in zip(found, wanted, strict=True) if is_wanted)
    return chosen[0] if len(chosen) == 1 else chosen


def _distinct(np: Any, flat: Any, equal_nan: bool = True) -> list[Any]:
    order = argsort(np, flat)
    line = np.xp.take(flat, order)
    first = np.ones(flat.shape, dtype="?")
    if flat.shape[0] > 1:
        nan = equal_nan and flat.dtype.kind in ("float", "complex")
        text = "(b != a) & ~(isnan(a) & isnan(b))" if nan else "b != a"
        first[1:] = (
            apply(text, b=line[1:], a=line[:-1])
            if not nan
            else apply("where(isnan(a) & isnan(b), False, b != a)", a=line[:-1], b=line[1:])
        )
    return _grouped(np, line, order, first)


def _grouped(np: Any, line: Any, order: Any, first: Any) -> list[Any]:
    """Values, first indices, inverse and counts of lines in order, of which ``first`` begins each group."""
    n = line.shape[0]
    inverse = np.empty((n,), dtype="i8")
    if n:
        submit(inverse, Scatter(out=inverse, values=np.cumsum(first) - 1, indices=(order,)))
    (places,) = np.xp.nonzero(first)
    ends = np.concatenate([places[1:], np.asarray([n])]) if n else places
    return [np.xp.take(line, places, axis=0), np.xp.take(order, places), inverse, ends - places]


for _name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):

    def _make(name: str) -> None:
        def named(np: Any, x: Array) -> Any:
            return getattr(np.xp, name)(x)

        named.__name__, named.__doc__ = name, "As in the standard: every NaN is one of its own."
        function()(named)

    _make(_name)


def _values(np: Any, x: Any) -> Any:
    return _distinct(np, np.ravel(x))[0]


@function()
def union1d(np: Any, ar1: Array, ar2: Array) -> Any:
    """The distinct elements of both."""
    return _values(np, np.concatenate([ar1, ar2], axis=None))


@function()
def intersect1d(np: Any, ar1: Array, ar2: Array, assume_unique: bool, return_indices: bool) -> Any:
    """The distinct elements that both have."""
    (a, at, *_), (b, bt, *_) = (
        (np.ravel(x), np.xp.arange(x.size), None) if assume_unique else _distinct(np, np.ravel(x)) for x in (ar1, ar2)
    )
    both = np.concatenate([a, b])
    order = argsort(np, both)
    line = np.xp.take(both, order)
    same = line[1:] == line[:-1]
    found = line[:-1][same]
    if not return_indices:
        return found
    return found, np.xp.take(at, order[:-1][same]), np.xp.take(bt, order[1:][same] - a.shape[0])


@function()
def setxor1d(np: Any, ar1: Array, ar2: Array, assume_unique: bool) -> Any:
    """The distinct elements that one of them has."""
    a, b = (np.ravel(x) if assume_unique else _values(np, x) for x in (ar1, ar2))
    line = sort(np, np.concatenate([a, b]))
    if not line.size:
        return line
    edges = np.ones((line.shape[0] + 1,), dtype="?")
    edges[1:-1] = line[1:] != line[:-1]
    return line[edges[1:] & edges[:-1]]


@function()
def setdiff1d(np: Any, ar1: Array, ar2: Array, assume_unique: bool) -> Any:
    """The distinct elements of the first that the second has not."""
    a = np.ravel(ar1) if assume_unique else _values(np, ar1)
    return a[isin(np, a, ar2, False, True)]


@function()
def isin(np: Any, element: Array, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element is one of some others."""
    return np.xp.isin(element, np.ravel(np.asarray(test_elements)), invert=invert)
