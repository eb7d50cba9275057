"""``scipy.stats``: moments, standard scores, ranks, correlation, and the normal distribution."""

import math
from typing import Any, NamedTuple

from callboard.arrays.elementwise import apply
from callboard.numpylike.binding import Array, Maybe
from callboard.scipylike.special import floats
from callboard.scipylike.table import function

__all__ = ["Describe"]


class Describe(NamedTuple):
    """What :func:`describe` returns; ``nobs`` is a number, the others are arrays."""

    nobs: int
    minmax: tuple[Any, Any]
    mean: Any
    variance: Any
    skewness: Any
    kurtosis: Any


def _flat(np: Any, a: Any, axis: int | None) -> tuple[Any, int]:
    a = floats(np, a)
    return (np.ravel(a), 0) if axis is None else (a, axis)


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
    mean, spread = (f(compare, axis=axis, keepdims=True) for f in (np.mean, lambda x, **kw: np.std(x, ddof=ddof, **kw)))
    return (scores - mean) / spread


@function("stats")
def moment(np: Any, a: Array, order: int = 1, axis: int | None = 0, *, center: Any = None) -> Any:
    """The mean power of the distances to ``center``, which is the mean when it is None."""
    a, axis = _flat(np, a, axis)
    centre = np.mean(a, axis=axis, keepdims=True) if center is None else center
    return np.mean((a - centre) ** order, axis=axis)


@function("stats")
def skew(np: Any, a: Array, axis: int | None = 0, bias: bool = True) -> Any:
    """The third moment over the second to the power of 3/2; NaN where all values are equal."""
    a, axis = _flat(np, a, axis)
    m2, m3 = _moments(np, a, axis, 2, 3)
    n = a.shape[axis]
    return m3 / m2**1.5 * (1.0 if bias else (n * (n - 1)) ** 0.5 / (n - 2))


@function("stats")
def kurtosis(np: Any, a: Array, axis: int | None = 0, fisher: bool = True, bias: bool = True) -> Any:
    """The fourth moment over the square of the second, less 3 when ``fisher``."""
    a, axis = _flat(np, a, axis)
    m2, m4 = _moments(np, a, axis, 2, 4)
    n, found = a.shape[axis], m4 / (m2 * m2) - 3
    if not bias:
        found = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (found + 3) - 3 * (n - 1))
    return found if fisher else found + 3


@function("stats")
def describe(np: Any, a: Array, axis: int | None = 0, ddof: int = 1, bias: bool = True) -> Describe:
    """Number, smallest and largest value, mean, variance, skewness and kurtosis along an axis."""
    a, axis = _flat(np, a, axis)
    bounds = np.min(a, axis=axis), np.max(a, axis=axis)
    spread = np.var(a, axis=axis, ddof=ddof)
    shape = skew(np, a, axis, bias), kurtosis(np, a, axis, bias=bias)
    return Describe(a.shape[axis], bounds, np.mean(a, axis=axis), spread, *shape)


@function("stats")
def sem(np: Any, a: Array, axis: int | None = 0, ddof: int = 1) -> Any:
    """The standard error of the mean."""
    a, axis = _flat(np, a, axis)
    return np.std(a, axis=axis, ddof=ddof) / a.shape[axis] ** 0.5


@function("stats")
def variation(np: Any, a: Array, axis: int | None = 0, ddof: int = 0) -> Any:
    """The standard deviation over the mean."""
    a, axis = _flat(np, a, axis)
    return np.std(a, axis=axis, ddof=ddof) / np.mean(a, axis=axis)


@function("stats")
def gmean(np: Any, a: Array, axis: int | None = 0) -> Any:
    """The geometric mean."""
    a, axis = _flat(np, a, axis)
    return np.exp(np.mean(np.log(a), axis=axis))


@function("stats")
def hmean(np: Any, a: Array, axis: int | None = 0) -> Any:
    """The harmonic mean."""
    a, axis = _flat(np, a, axis)
    return a.shape[axis] / np.sum(1 / a, axis=axis)


@function("stats")
def entropy(np: Any, pk: Array, qk: Maybe = None, base: float | None = None, axis: int = 0) -> Any:
    """Shannon's entropy of probabilities, which are divided by their sum; with ``qk`` the relative entropy."""
    pk = floats(np, pk)
    pk = pk / np.sum(pk, axis=axis, keepdims=True)
    if qk is None:
        found = np.sum(apply("where(x > 0, -x * log(x), 0)", x=pk), axis=axis)
    else:
        qk = floats(np, qk)
        qk = qk / np.sum(qk, axis=axis, keepdims=True)
        text = "where(x > 0, where(y > 0, x * log(x / y), inf), 0)"
        found = np.sum(apply(text, x=pk, y=qk), axis=axis)
    return found if base is None else found / math.log(base)


@function("stats")
def rankdata(np: Any, a: Array, method: str = "average", *, axis: int | None = None) -> Any:
    """Ranks from 1; equal values get the ``average``, ``min`` or ``max`` of theirs, or count by place (``ordinal``).

    The ranks of ``average`` are f64, the others i64. NaN has no rank of its own here.
    """
    if method not in ("average", "min", "max", "ordinal"):
        raise ValueError(f"method is {method!r:.60}; use 'average', 'min', 'max' or 'ordinal'")
    a, axis = (np.ravel(a), 0) if axis is None else (a, axis)
    if method == "ordinal":
        return np.argsort(np.argsort(a, axis=axis, kind="stable"), axis=axis) + 1
    lines = np.moveaxis(a, axis, -1)
    rows = np.reshape(lines, (-1, lines.shape[-1]))
    ranked = [_rank(np, rows[i], method) for i in range(rows.shape[0])]
    return np.moveaxis(np.reshape(np.stack(ranked), lines.shape), -1, axis)


def _rank(np: Any, row: Any, method: str) -> Any:
    line = np.sort(row)
    low = np.searchsorted(line, row, side="left") + 1
    high = np.searchsorted(line, row, side="right")
    return {"min": lambda: low, "max": lambda: high, "average": lambda: (low + high) / 2.0}[method]()


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
    return apply("0.5 * erfc((loc - x) / scale * 0.7071067811865476)", x=floats(np, x), loc=loc, scale=scale)


@function("stats.norm")
def sf(np: Any, x: Array, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of a larger value."""
    return apply("0.5 * erfc((x - loc) / scale * 0.7071067811865476)", x=floats(np, x), loc=loc, scale=scale)
