"""Sorts, searches, sets, quantiles, histograms."""

import builtins
import math
from typing import Any

import numpy

from callboard.arrays.elementwise import apply
from callboard.arrays.handles import cast, submit
from callboard.core.dtype import DTYPES
from callboard.core.ref import GpuRef
from callboard.kernel.array import Scatter
from callboard.kernel.cub import SegmentedReduce
from callboard.numpylike.binding import Array, Maybe, function
from callboard.numpylike.reductions import axes


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


# -- quantiles ---------------------------------------------------------------------------------------------------------

ALPHA_BETA = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "linear": (1, 1),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
"""The methods that interpolate, after Hyndman and Fan."""
METHODS = {*ALPHA_BETA, "inverted_cdf", "averaged_inverted_cdf", "closest_observation"}
METHODS |= {"lower", "higher", "midpoint", "nearest"}


def _places(q: Any, n: Any, method: str) -> tuple[Any, Any]:
    """The index below each quantile of ``n`` elements (an array of the host), and the part of the step above it."""
    if method in ALPHA_BETA:
        alpha, beta = ALPHA_BETA[method]
        virtual = (n - 1) * q if method == "linear" else n * q + (alpha + q * (1 - alpha - beta)) - 1
    elif method == "lower":
        virtual = numpy.floor((n - 1) * q)
    elif method == "higher":
        virtual = numpy.ceil((n - 1) * q)
    elif method == "nearest":
        virtual = numpy.rint((n - 1) * q)
    elif method == "midpoint":
        virtual = (n - 1) * q
        low = numpy.floor(virtual)
        return low, numpy.where(virtual > low, 0.5, 0.0)
    elif method == "inverted_cdf":
        virtual = numpy.ceil(n * q) - 1
    elif method == "averaged_inverted_cdf":
        low = numpy.ceil(n * q) - 1
        return numpy.clip(low, 0, n - 1), numpy.where(n * q == numpy.floor(n * q), numpy.where(low < 0, 0.0, 0.5), 0.0)
    else:
        at = n * q - 1 - 0.5
        low = numpy.floor(at)
        odd = (low % 2 == 1) & (at == low)
        virtual = numpy.clip(numpy.where(odd, low, low + 1), 0, n - 1)
    virtual = numpy.clip(virtual, 0, n - 1)
    low = numpy.floor(virtual)
    return low, virtual - low


def _quantile(np: Any, a: Any, q: Any, axis: Any, method: str, keepdims: Any, skip_nan: bool) -> Any:
    if method not in METHODS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {sorted(METHODS)}")
    if a.dtype.is_complex:
        raise TypeError("a must be an array of real numbers")
    points = numpy.asarray(q.get() if isinstance(q, GpuRef) else q, dtype=float)
    if not ((points >= 0) & (points <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    gone = axes(a, axis)
    kept = [i for i in range(a.ndim) if i not in gone]
    shape = tuple(a.shape[i] for i in kept)
    lines = np.reshape(np.xp.permute_dims(a, (*kept, *gone)), (*shape, int(numpy.prod([a.shape[i] for i in gone]))))
    whole = tuple(1 if i in gone else n for i, n in enumerate(a.shape)) if keepdims else shape
    exact = method in ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
    n = lines.shape[-1]
    if not n:
        return np.full((*points.shape, *whole), math.nan)
    line = np.xp.sort(lines, axis=-1)
    inexact = line.dtype.kind == "float"
    if skip_nan and inexact:
        found = _without_nan(np, line, points, method)
    else:
        low, part = _places(points.reshape(-1), n, method)
        found = _between(np, line, np.xp.asarray(low.astype("i8")), np.xp.asarray(part), exact)
        if inexact:
            found = np.xp.where(np.xp.isnan(line[..., -1:]), math.nan, found)
    found = np.moveaxis(found, -1, 0)
    return np.reshape(found, (*points.shape, *whole))


def _weighted(np: Any, a: Any, q: Any, axis: Any, method: str, keepdims: Any, skip_nan: bool, weights: Any) -> Any:
    """Quantiles of elements with weights: the first whose running weight reaches the part."""
    if method != "inverted_cdf":
        raise ValueError("Only method 'inverted_cdf' supports weights")
    if not ((q >= 0) & (q <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    gone = axes(a, axis)
    kept = [i for i in range(a.ndim) if i not in gone]
    if weights.shape != a.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if weights.shape != tuple(a.shape[i] for i in gone):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        order = sorted(range(len(gone)), key=lambda i: gone[i])
        spread = tuple(n if i in gone else 1 for i, n in enumerate(a.shape))
        weights = np.broadcast_to(np.reshape(np.transpose(weights, tuple(order)), spread), a.shape)
    if bool(np.any(weights < 0)):
        raise ValueError("Weights must be non-negative.")
    shape = tuple(a.shape[i] for i in kept)
    n = int(numpy.prod([a.shape[i] for i in gone]))
    line, w = (np.reshape(np.xp.permute_dims(x, (*kept, *gone)), (*shape, n)) for x in (a, weights * 1.0))
    nan = np.isnan(line) if line.dtype.kind == "float" else None
    if skip_nan and nan is not None:
        w = np.where(nan, 0.0, w)
    order = np.xp.argsort(line, axis=-1)
    line, w = (np.xp.take_along_axis(x, order, axis=-1) for x in (line, w))
    running = np.cumsum(w, axis=-1)
    part = running / running[..., -1:]
    part = np.where(part == 0, -1.0, part)
    points = np.xp.asarray(q.reshape(-1, 1))
    places = np.sum(np.xp.expand_dims(part, axis=-2) < points, axis=-1)
    found = np.xp.take_along_axis(line, np.xp.minimum(places, n - 1), axis=-1)
    if nan is not None:
        gap = np.all(nan, axis=-1, keepdims=True) if skip_nan else np.any(nan, axis=-1, keepdims=True)
        found = np.where(gap, math.nan, found)
    whole = tuple(1 if i in gone else e for i, e in enumerate(a.shape)) if keepdims else shape
    return np.reshape(np.moveaxis(found, -1, 0), (*q.shape, *whole))


def _without_nan(np: Any, line: Any, points: Any, method: str) -> Any:
    """Quantiles of lines that end with NaN, each with its own number of elements: read on the host."""
    counts = np.xp.count_nonzero(~np.xp.isnan(line), axis=-1, keepdims=True).get()
    low, part = _places(points.reshape(-1), numpy.maximum(counts, 1), method)
    found = _between(np, line, np.xp.asarray(low.astype("i8")), np.xp.asarray(part), False)
    return np.xp.where(np.xp.asarray(counts == 0), math.nan, found)


def _between(np: Any, line: Any, low: Any, part: Any, exact: bool) -> Any:
    n = line.shape[-1]
    high = np.xp.minimum(low + 1, n - 1)
    if low.ndim == 1:
        below, above = (np.xp.take(line, at, axis=-1) for at in (low, high))
    else:
        below, above = (np.xp.take_along_axis(line, at, axis=-1) for at in (low, high))
    if exact:
        return below
    dtype = line.dtype if line.dtype.kind == "float" else DTYPES["f64"]
    below, above, part = (np.xp.astype(x, dtype, copy=False) for x in (below, above, part))
    text = "where((t == 0) | (a == b), a, where(t >= 0.5, b - (b - a) * (1 - t), a + (b - a) * t))"
    return cast(apply(text, t=part, a=below, b=above), dtype)


def _entered(name: str, factor: float, skip_nan: bool) -> None:
    if factor:

        def quantile(
            np: Any,
            a: Array,
            q: Any,
            axis: Any,
            method: str,
            keepdims: Any,
            overwrite_input: bool,
            weights: Maybe,
        ) -> Any:
            points = numpy.asarray(q.get() if isinstance(q, GpuRef) else q, dtype=float) / factor
            if factor != 1 and not ((points >= 0) & (points <= 1)).all():
                raise ValueError("Percentiles must be in the range [0, 100]")
            if weights is not None:
                return _weighted(np, a, points, axis, method, keepdims, skip_nan, weights)
            return _quantile(np, a, points, axis, method, keepdims, skip_nan)

        made: Any = quantile
    else:

        def median(np: Any, a: Array, axis: Any, keepdims: Any, overwrite_input: bool) -> Any:
            return _quantile(np, a, 0.5, axis, "linear" if skip_nan else "midpoint", keepdims, skip_nan)

        made = median
    made.__name__, made.__doc__ = name, "Quantiles along some axes, by sorting."
    function()(made)


for _prefix, _skip in (("", False), ("nan", True)):
    _entered(f"{_prefix}quantile", 1, _skip)
    _entered(f"{_prefix}percentile", 100, _skip)
    _entered(f"{_prefix}median", 0, _skip)


# -- counting ----------------------------------------------------------------------------------------------------------


@function()
def bincount(np: Any, x: Array, weights: Maybe, minlength: int) -> Any:
    """How often each integer occurs, or the sum of its weights. It waits for the largest one."""
    if x.ndim != 1:
        raise ValueError(
            "object of too small depth for desired array" if not x.ndim else "object too deep for desired array"
        )
    if x.size and (x.dtype.kind not in ("int", "uint", "bool") or x.dtype.name == "u64"):
        raise TypeError(f"Cannot cast array data from {x.dtype} to int64 according to the rule 'safe'")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    if not x.size:
        return np.zeros((minlength,), dtype="i8" if weights is None else "f8")
    if int(np.min(x)) < 0:
        raise ValueError("'list' argument must have no negative elements")
    length = builtins.max(int(np.max(x)) + 1, minlength)
    if weights is not None and weights.shape != x.shape:
        raise ValueError("The weights and list don't have the same length.")
    x = np.xp.astype(x, DTYPES["i64"], copy=False)
    order = None if weights is None else argsort(np, x)
    line = np.xp.sort(x) if order is None else np.xp.take(x, order)
    bounds = np.xp.searchsorted(line, np.xp.arange(length + 1))
    if order is None:
        return bounds[1:] - bounds[:-1]
    ordered = np.xp.take(np.xp.astype(weights, DTYPES["f64"], copy=False), order)
    return submit(ordered, SegmentedReduce(x=ordered, offsets=bounds))


@function()
def histogram_bin_edges(np: Any, a: Array, bins: Any, range: Any, weights: Any) -> Any:
    """The edges of the bins of a histogram. Without a range it waits for the extremes."""
    return np.xp.asarray(_edges(np, np.ravel(a), bins, range))


def _edges(np: Any, flat: Any, bins: Any, limits: Any) -> Any:
    if isinstance(bins, str):
        return numpy.histogram_bin_edges(flat.get(), bins, limits)
    if numpy.ndim(bins) == 1:
        edges = numpy.asarray(bins.get() if isinstance(bins, GpuRef) else bins)
        if (edges[:-1] > edges[1:]).any():
            raise ValueError("`bins` must increase monotonically, when an array")
        return edges
    if numpy.ndim(bins) or not isinstance(bins, int | numpy.integer):
        raise TypeError(
            "`bins` must be an integer, a string, or an array" if not numpy.ndim(bins) else "`bins` must be 1d"
        )
    if bins < 1:
        raise ValueError("`bins` must be positive, when an integer")
    ends = numpy.zeros(0, "u1" if flat.dtype.kind == "bool" else flat.dtype.np)
    if limits is None and flat.size:
        both = np.stack([np.min(flat), np.max(flat)]).get()
        ends = both.astype(float) if flat.dtype.kind == "bool" else both
    return numpy.histogram_bin_edges(ends, bins, limits)


@function()
def histogram(np: Any, a: Array, bins: Any, range: Any, density: Any, weights: Maybe) -> Any:
    """How many elements lie in each bin, and the edges."""
    flat = np.ravel(a)
    edges = _edges(np, flat, bins, range)
    lines = np.xp.asarray(edges)
    counts = _counted(np, flat, lines, weights)
    if density:
        widths = np.xp.asarray(numpy.diff(edges).astype(float))
        counts = counts / widths / np.sum(counts)
    return counts, lines


def _counted(np: Any, flat: Any, edges: Any, weights: Any) -> Any:
    """The elements (their weights) between neighbouring edges, the last edge included."""
    if weights is None:
        line = np.xp.sort(flat)
        places = np.concatenate(
            [np.xp.searchsorted(line, edges[:-1]), np.xp.searchsorted(line, edges[-1:], side="right")]
        )
        return places[1:] - places[:-1]
    if weights.size != flat.size:
        raise ValueError("weights should have the same shape as a.")
    order = argsort(np, flat)
    line, ordered = np.xp.take(flat, order), np.xp.take(np.ravel(weights), order)
    places = np.concatenate([np.xp.searchsorted(line, edges[:-1]), np.xp.searchsorted(line, edges[-1:], side="right")])
    if ordered.dtype.is_complex or ordered.dtype.kind == "bool":
        ordered = np.xp.astype(ordered, DTYPES["i64"]) if ordered.dtype.kind == "bool" else ordered
        sums = np.concatenate([np.zeros((1,), dtype=ordered.dtype), np.cumsum(ordered)])
        return np.xp.take(sums, places[1:]) - np.xp.take(sums, places[:-1])
    return submit(ordered, SegmentedReduce(x=ordered, offsets=places))


@function()
def histogramdd(np: Any, sample: Any, bins: Any, range: Any, density: Any, weights: Maybe) -> Any:
    """How many points lie in each cell, and the edges along each axis."""
    if isinstance(sample, list | tuple):
        points = (
            np.stack([np.asarray(one) for one in sample], axis=-1)
            if not isinstance(sample[0], list)
            else np.asarray(sample)
        )
    else:
        points = np.atleast_2d(sample)
    n, d = points.shape
    each = list(bins) if isinstance(bins, list | tuple) else [bins] * d
    if len(each) != d:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    limits = [None] * d if range is None else list(range)
    if len(limits) != d:
        raise ValueError("range argument must have one entry per dimension")
    edges = [_edges(np, points[:, i], each[i], limits[i]) for i in builtins.range(d)]
    cell, inside, cells = np.zeros((n,), dtype="i8"), np.ones((n,), dtype="?"), 1
    for i, line in enumerate(edges):
        column, have = points[:, i], np.xp.asarray(line)
        place = np.xp.searchsorted(have, column, side="right") - 1
        place = np.xp.where(column == have[-1], len(line) - 2, place)
        inside = inside & (place >= 0) & (place < len(line) - 1)
        cell, cells = cell * (len(line) - 1) + place, cells * (len(line) - 1)
    cell = np.xp.where(inside, cell, cells)
    counts = np.reshape(np.bincount(cell, weights, cells + 1)[:cells], tuple(len(line) - 1 for line in edges)) * 1.0
    if density:
        for i, line in enumerate(edges):
            shape = [1] * d
            shape[i] = -1
            counts = counts / np.xp.asarray(numpy.diff(line).astype(float)).reshape(tuple(shape))
        counts = counts / np.sum(np.bincount(cell, weights, cells + 1)[:cells])
    return counts, tuple(np.xp.asarray(line) for line in edges)


@function()
def histogram2d(np: Any, x: Array, y: Array, bins: Any, range: Any, density: Any, weights: Maybe) -> Any:
    """How many points lie in each cell of the plane, and the edges."""
    if x.shape != y.shape:
        raise ValueError("x and y must have the same length.")
    if numpy.ndim(bins) == 1 and not (isinstance(bins, list | tuple) and len(bins) == 2):
        bins = [bins, bins]
    counts, edges = histogramdd(np, [x, y], bins, range, density, weights)
    return counts, edges[0], edges[1]


@function()
def interp(np: Any, x: Array, xp: Array, fp: Array, left: Any, right: Any, period: Any) -> Any:
    """Values between points, by straight lines."""
    if xp.ndim != 1 or fp.ndim != 1:
        raise ValueError("Data points must be 1-D sequences")
    if not xp.size:
        raise ValueError("array of sample points is empty")
    if xp.shape != fp.shape:
        raise ValueError("fp and xp are not of the same length.")
    x, xp = (np.xp.astype(one, DTYPES["f64"], copy=False) for one in (x, xp))
    fp = np.xp.astype(fp, DTYPES["c128" if fp.dtype.is_complex else "f64"], copy=False)
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        period, left, right = abs(period), None, None
        x, xp = x % period, xp % period
        order = argsort(np, xp)
        xp, fp = np.xp.take(xp, order), np.xp.take(fp, order)
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
    n = xp.shape[0]
    if n == 1:
        found = np.broadcast_to(fp, x.shape) if x.ndim else fp[0]
    else:
        low = np.ravel(np.clip(np.xp.searchsorted(xp, x, side="right") - 1, 0, n - 2))
        x0, x1, y0, y1 = (np.reshape(np.xp.take(line, low + i), x.shape) for line in (xp, fp) for i in (0, 1))
        found = _lines(np, x, x0, x1, y0, y1)
    found = np.where(x < xp[0], fp[0] if left is None else left, found)
    found = np.where(x > xp[-1], fp[-1] if right is None else right, found)
    return np.where(np.isnan(x), x, found)


def _lines(np: Any, x: Any, x0: Any, x1: Any, y0: Any, y1: Any) -> Any:
    """Points of straight lines; of each part of a complex number, as infinities do not mix."""
    if y0.dtype.is_complex:
        parts = [_lines(np, x, x0, x1, getattr(np.xp, part)(y0), getattr(np.xp, part)(y1)) for part in ("real", "imag")]
        return apply("complex(re, im)", re=parts[0], im=parts[1])
    slope = (y1 - y0) / (x1 - x0)
    near, far = slope * (x - x0) + y0, slope * (x - x1) + y1
    found = np.where(np.isnan(near), np.where(np.isnan(far) & (y0 == y1), y0, far), near)
    return np.where(x == x1, y1, np.where(x == x0, y0, found))
