"""Counts: histograms, ``np.bincount``; and values between points."""

import builtins
from typing import Any

import numpy

from callboard.arrays.elementwise import apply
from callboard.arrays.handles import submit
from callboard.core.dtype import DTYPES
from callboard.core.ref import GpuRef
from callboard.kernel.cub import SegmentedReduce
from callboard.numpylike.binding import Array, Maybe, function
from callboard.numpylike.functions.order import argsort


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
