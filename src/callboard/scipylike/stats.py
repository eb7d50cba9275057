"""``scipy.stats``: moments, standard scores, ranks, correlation, and the normal distribution."""

import math
from typing import Any, NamedTuple

from numpy.exceptions import AxisError

from callboard.arrays.elementwise import apply
from callboard.numpylike.binding import Array, Maybe
from callboard.scipylike.special import EXPRESSIONS, floats
from callboard.scipylike.table import function

__all__ = ["Describe", "sample"]


class Describe(NamedTuple):
    """What :func:`describe` returns; ``nobs`` is a number, the others are arrays."""

    nobs: int
    minmax: tuple[Any, Any]
    mean: Any
    variance: Any
    skewness: Any
    kurtosis: Any


def sample(np: Any, a: Any, axis: int | None) -> tuple[Any, int]:
    """Values as numbers with a point, and the axis they lie along: flat where ``axis`` is None, a number as one value.

    Raises:
        AxisError: There is no such axis.
    """
    a = floats(np, a)
    a, axis = (np.ravel(a), 0 if axis is None else axis) if axis is None or not a.ndim else (a, axis)
    if not -a.ndim <= axis < a.ndim:
        raise AxisError(f"axis is {axis}, and the values are {a.layout!r}; use an axis from {-a.ndim} to {a.ndim - 1}")
    return a, axis


def _spread(np: Any, a: Any, axis: int | None, ddof: int, keepdims: bool = False) -> Any:
    """The standard deviation, NaN with fewer values than ``ddof``."""
    found = np.std(a, axis=axis, ddof=ddof, keepdims=keepdims)
    return found if ddof <= (a.size if axis is None else a.shape[axis]) else found * math.nan


def _moments(np: Any, a: Any, axis: int, *orders: int) -> list[Any]:
    centred = a - np.mean(a, axis=axis, keepdims=True)
    return [np.mean(centred**order, axis=axis) for order in orders]


@function("stats")
def zscore(np: Any, a: Array, axis: int | None = 0, ddof: int = 0) -> Any:
    """Distances to the mean, in standard deviations."""
    return zmap(np, a, a, axis, ddof)


@function("stats")
def zmap(np: Any, scores: Array, compare: Array, axis: int | None = 0, ddof: int = 0) -> Any:
    """Distances of ``scores`` to the mean of ``compare``, in standard deviations of ``compare``."""
    scores, compare = floats(np, scores), floats(np, compare)
    mean = np.mean(compare, axis=axis, keepdims=True)
    return (scores - mean) / _spread(np, compare, axis, ddof, keepdims=True)


@function("stats")
def moment(np: Any, a: Array, order: int = 1, axis: int | None = 0, *, center: Any = None) -> Any:
    """The mean power of the distances to ``center``, which is the mean when it is None: the first moment is then 0.

    Raises:
        ValueError: ``order`` is no whole number.
    """
    if order != int(order):
        raise ValueError(f"order is {order}; use a whole number")
    a, axis = sample(np, a, axis)
    if order == 0 or (order == 1 and center is None):
        return np.mean(np.where(np.isnan(a), a, 1 - order), axis=axis)
    centre = np.mean(a, axis=axis, keepdims=True) if center is None else center
    return np.mean((a - centre) ** order, axis=axis)


@function("stats")
def skew(np: Any, a: Array, axis: int | None = 0, bias: bool = True) -> Any:
    """The third moment over the second to the power of 3/2; NaN where all values are equal."""
    a, axis = sample(np, a, axis)
    m2, m3 = _moments(np, a, axis, 2, 3)
    n = a.shape[axis]
    return m3 / m2**1.5 * (1.0 if bias or n < 3 else (n * (n - 1)) ** 0.5 / (n - 2))


@function("stats")
def kurtosis(np: Any, a: Array, axis: int | None = 0, fisher: bool = True, bias: bool = True) -> Any:
    """The fourth moment over the square of the second, less 3 when ``fisher``."""
    a, axis = sample(np, a, axis)
    m2, m4 = _moments(np, a, axis, 2, 4)
    n, found = a.shape[axis], m4 / (m2 * m2) - 3
    if not bias and n > 3:
        found = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (found + 3) - 3 * (n - 1))
    return found if fisher else found + 3


@function("stats")
def describe(np: Any, a: Array, axis: int | None = 0, ddof: int = 1, bias: bool = True) -> Describe:
    """Number, smallest and largest value, mean, variance, skewness and kurtosis along an axis."""
    if not a.size:
        raise ValueError(f"a is {a.layout!r}; it needs at least one value")
    whole = np.ravel(a) if axis is None or not a.ndim else a
    a, axis = sample(np, a, axis)
    bounds = np.min(whole, axis=axis), np.max(whole, axis=axis)
    spread = np.var(a, axis=axis, ddof=ddof)
    shape = skew(np, a, axis, bias), kurtosis(np, a, axis, bias=bias)
    return Describe(a.shape[axis], bounds, np.mean(a, axis=axis), spread, *shape)


@function("stats")
def sem(np: Any, a: Array, axis: int | None = 0, ddof: int = 1) -> Any:
    """The standard error of the mean."""
    a, axis = sample(np, a, axis)
    return np.std(a, axis=axis, ddof=ddof) / a.shape[axis] ** 0.5


@function("stats")
def variation(np: Any, a: Array, axis: int | None = 0, ddof: int = 0) -> Any:
    """The standard deviation over the mean."""
    a, axis = sample(np, a, axis)
    return _spread(np, a, axis, ddof) / np.mean(a, axis=axis)


@function("stats")
def gmean(np: Any, a: Array, axis: int | None = 0) -> Any:
    """The geometric mean."""
    a, axis = sample(np, a, axis)
    return np.exp(np.mean(np.log(a), axis=axis))


@function("stats")
def hmean(np: Any, a: Array, axis: int | None = 0) -> Any:
    """The harmonic mean, NaN where a value is negative."""
    a, axis = sample(np, a, axis)
    return a.shape[axis] / np.sum(apply("where(x >= 0, 1 / x, nan)", x=a), axis=axis)


@function("stats")
def entropy(np: Any, pk: Array, qk: Maybe = None, base: float | None = None, axis: int = 0) -> Any:
    """Shannon's entropy of probabilities, which are divided by their sum; with ``qk`` the relative entropy.

    A negative probability makes it infinite; NaN, infinity, or a sum of 0 makes it NaN.

    Raises:
        ValueError: ``base`` is not positive.
    """
    if base is not None and not base > 0:
        raise ValueError(f"base is {base}; it must be positive")
    shares, along = [], axis
    for one in np.broadcast_arrays(pk, *(() if qk is None else (qk,))):
        one, along = sample(np, one, axis)
        shares.append(one / np.sum(one, axis=along, keepdims=True))
    text = EXPRESSIONS["entr" if qk is None else "rel_entr"]
    found = np.sum(apply(text, **dict(zip("xy", shares, strict=False))), axis=along)
    return found if base is None else found / math.log(base)


@function("stats")
def rankdata(np: Any, a: Array, method: str = "average", *, axis: int | None = None) -> Any:
    """Ranks from 1; equal values get the ``average``, ``min`` or ``max`` of theirs, or count by place (``ordinal``).

    The ranks of ``average`` are f64, the others i64. A line with NaN has
    the ranks NaN of ``average``; whole ranks have no NaN: there it comes last.
    """
    if method not in ("average", "min", "max", "ordinal"):
        raise ValueError(f"method is {method!r:.60}; use 'average', 'min', 'max' or 'ordinal'")
    a, axis = (np.ravel(a), 0) if axis is None else (a, axis)
    if method == "ordinal":
        return np.argsort(np.argsort(a, axis=axis, kind="stable"), axis=axis) + 1
    if not a.size:
        return np.zeros(a.shape, dtype="f8" if method == "average" else "i8")
    lines = np.moveaxis(a, axis, -1)
    rows = np.reshape(lines, (-1, lines.shape[-1]))
    ranked = [_rank(np, rows[i], method) for i in range(rows.shape[0])]
    return np.moveaxis(np.reshape(np.stack(ranked), lines.shape), -1, axis)


def _rank(np: Any, row: Any, method: str) -> Any:
    line = np.sort(row)
    low = np.searchsorted(line, row, side="left") + 1
    high = np.searchsorted(line, row, side="right")
    if method != "average":
        return low if method == "min" else high
    return np.where(np.any(np.isnan(row)), math.nan, (low + high) / 2.0)


@function("stats.norm")
def pdf(np: Any, x: Array, loc: Any = 0, scale: Any = 1) -> Any:
    """The density of the normal distribution."""
    return np.exp(logpdf(np, x, loc, scale))


@function("stats.norm")
def logpdf(np: Any, x: Array, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    return apply(
        "-0.5 * ((x - loc) / scale) * ((x - loc) / scale) - log(scale * 2.5066282746310002)",
        x=floats(np, x),
        loc=loc,
        scale=scale,
    )


@function("stats.norm")
def cdf(np: Any, x: Array, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of a smaller value."""
    return apply(
        "where(scale > 0, 0.5 * erfc((loc - x) / scale * 0.7071067811865476), nan)",
        x=floats(np, x),
        loc=loc,
        scale=scale,
    )


@function("stats.norm")
def sf(np: Any, x: Array, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of a larger value."""
    return apply(
        "where(scale > 0, 0.5 * erfc((x - loc) / scale * 0.7071067811865476), nan)",
        x=floats(np, x),
        loc=loc,
        scale=scale,
    )
