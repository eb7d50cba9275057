"""Quantiles and medians, by sorting."""

import math
from typing import Any

import numpy

from callboard.arrays.elementwise import apply
from callboard.arrays.handles import cast
from callboard.core.dtype import DTYPES
from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array, Maybe, dtype_of, function
from callboard.numpylike.functions.reductions import axes

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
            if isinstance(q, numpy.generic | numpy.ndarray | GpuRef) and a.dtype.kind == "float":
                a = np.xp.astype(a, dtype_of(np.result_type(a, q.dtype)), copy=False)
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
