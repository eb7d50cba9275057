"""``scipy.stats``: correlations and t-tests, with their probabilities.

Statistics are computed on the device. A probability is a function of a few numbers (an incomplete beta function, the
distribution of Student's t), so SciPy computes it on the host when it is read, which waits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy

from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array, Maybe
from callboard.scipylike.special import floats
from callboard.scipylike.stats import rankdata, sample
from callboard.scipylike.table import function

__all__ = ["SignificanceResult"]


class SignificanceResult(Sequence[Any]):
    """A statistic and its probability: a sequence of the two, as SciPy's is; the second is computed when it is taken.

    Attributes:
        statistic: On the device.
        df: Degrees of freedom.
    """

    def __init__(self, statistic: Any, df: float, probability: Callable[[Any], Any]) -> None:
        self.statistic = statistic
        self.df = df
        self._probability = probability

    @property
    def pvalue(self) -> Any:
        """The probability of a statistic as far from 0, were there no effect, on the device; reads the statistic.

        Raises:
            TypeError: The device does not wait (asyncio).
        """
        found: GpuRef[Any] = self.statistic
        if not found._port.services.blocking:
            raise TypeError(
                "pvalue is computed on the host, so it waits; use a device of cb.sync, or scipy.stats with "
                "`await x.get()`"
            )
        values = numpy.asarray(found.get())
        return found._port.services.np.asarray(self._probability(values.astype("f8")).astype(values.dtype))

    def __len__(self) -> int:
        return 2

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(getattr(self, name) for name in ("statistic", "pvalue")[index])
        return getattr(self, ("statistic", "pvalue")[index])

    def __iter__(self) -> Iterator[Any]:
        return iter((self.statistic, self.pvalue))

    def __repr__(self) -> str:
        return f"SignificanceResult(statistic={self.statistic!r}, df={self.df})"


def _sided(alternative: str, above: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The probability of a symmetric distribution, by that of a larger value."""
    if alternative not in ("two-sided", "less", "greater"):
        raise ValueError(f"alternative is {alternative!r:.60}; use 'two-sided', 'less' or 'greater'")
    if alternative == "two-sided":
        return lambda x: numpy.minimum(2 * above(numpy.abs(x)), 1)
    return above if alternative == "greater" else lambda x: above(-x)


def _student(df: float) -> Callable[[Any], Any]:
    import scipy.special

    return lambda t: scipy.special.stdtr(df, -t)


def _of_correlation(n: int) -> Callable[[Any], Any]:
    import scipy.special

    if n == 2:
        return lambda r: numpy.where(numpy.isnan(r), r, 0.5)  # two points lie on a line
    return lambda r: scipy.special.betainc(n / 2 - 1, n / 2 - 1, (1 - r) / 2)


def _of_ranks(n: int) -> Callable[[Any], Any]:
    above = _student(n - 2)
    with_df = math.sqrt(max(n - 2, 0))
    return lambda r: above(r * with_df / numpy.sqrt((1 + r) * (1 - r)))


@function("stats")
def pearsonr(
    np: Any, x: Array, y: Array, *, alternative: str = "two-sided", axis: int | None = 0
) -> SignificanceResult:
    """Pearson's correlation of two arrays of one shape along an axis, from -1 to 1; NaN where one is constant."""
    if x.shape != y.shape:
        raise ValueError(f"x and y must have one shape; they are {x.layout!r} and {y.layout!r}")
    (x, along), (y, _) = sample(np, x, axis), sample(np, y, axis)
    n = x.shape[along]
    if n < 2:
        raise ValueError(f"x and y must have at least 2 values along the axis; they are {x.layout!r}")
    x, y = (a - np.mean(a, axis=along, keepdims=True) for a in (x, y))
    # Divided by their lengths first: squares of large values would overflow
    x, y = (
        a / np.sqrt(np.sum(a * a, axis=along, keepdims=True)) for a in (_scaled(np, x, along), _scaled(np, y, along))
    )
    found = np.clip(np.sum(x * y, axis=along), -1, 1)
    return SignificanceResult(found, n - 2, _sided(alternative, _of_correlation(n)))


def _scaled(np: Any, a: Any, axis: int) -> Any:
    return a / np.max(np.abs(a), axis=axis, keepdims=True)


@function("stats")
def spearmanr(
    np: Any, a: Array, b: Maybe = None, axis: int | None = 0, *, alternative: str = "two-sided"
) -> SignificanceResult:
    """Spearman's correlation: Pearson's of the ranks; NaN where a variable is constant or has NaN.

    Args:
        np: NumPy's names of the device.
        a: The observations of one variable, or of several, which then lie along ``axis`` of a matrix.
        b: More variables, with as many observations. None: those of ``a`` are all.
        axis: Of the observations of a matrix, 0 or 1; None: ``a`` and ``b`` are flattened to one variable each.
        alternative: Which correlations count as far from 0: ``"two-sided"``, ``"less"`` or ``"greater"``.

    Returns:
        The correlation of two variables, else the matrix of the correlations of all pairs.

    Raises:
        ValueError: There are more axes than 2, less than 2 variables, or numbers of observations differ.
    """
    if axis not in (None, 0, 1):
        raise ValueError(f"axis is {axis}; use 0 or 1, the axis of the observations, or None for flat arrays")
    given = {"a": a} if b is None else {"a": a, "b": b}
    variables = []
    for name, one in given.items():
        if one.ndim > 2:
            raise ValueError(f"{name} is {one.layout!r}; it must have at most 2 axes")
        one = np.ravel(one) if axis is None else one
        variables.append(np.reshape(one, (1, -1)) if one.ndim < 2 else one.T if axis == 0 else one)
    counts = {one.shape[1] for one in variables}
    if len(counts) > 1:
        layouts = " and ".join(repr(one.layout) for one in given.values())
        raise ValueError(f"a and b must have as many observations; they are {layouts}")
    (n,), lines = counts, np.concatenate(variables)
    if len(lines) < 2:
        raise ValueError(f"a is {a.layout!r}, {len(lines)} variables; correlations need at least 2: give b")
    if n < 2:
        found = np.asarray(math.nan)
    else:
        centred = rankdata(np, lines, axis=1) - (n + 1) / 2
        products = np.matmul(centred, centred.T)
        squares = np.diagonal(products)
        found = products / np.sqrt(squares[:, None] * squares)
        found = found[0, 1] if len(lines) == 2 else found
    return SignificanceResult(found, n - 2, _sided(alternative, _of_ranks(n)))


@function("stats")
def ttest_1samp(
    np: Any, a: Array, popmean: Any, axis: int | None = 0, *, alternative: str = "two-sided"
) -> SignificanceResult:
    """Student's t of the mean of ``a``, against ``popmean``; NaN with less than 2 values."""
    a, axis = sample(np, a, axis)
    n = a.shape[axis]
    found = (np.mean(a, axis=axis) - popmean) / (np.std(a, axis=axis, ddof=1) / math.sqrt(n or math.nan))
    return SignificanceResult(found, n - 1, _sided(alternative, _student(n - 1)))


@function("stats")
def ttest_rel(
    np: Any, a: Array, b: Array, axis: int | None = 0, *, alternative: str = "two-sided"
) -> SignificanceResult:
    """Student's t of the differences of pairs; NaN with less than 2."""
    if a.shape != b.shape:
        raise ValueError(f"a and b are pairs; they are {a.layout!r} and {b.layout!r}")
    return ttest_1samp(np, floats(np, a) - floats(np, b), 0, axis, alternative=alternative)


@function("stats")
def ttest_ind(
    np: Any, a: Array, b: Array, axis: int | None = 0, *, alternative: str = "two-sided"
) -> SignificanceResult:
    """Student's t of two independent samples of equal variance; NaN where one is empty, or both have one value."""
    if axis is not None:  # missing axes are in front, as those of shapes that broadcast
        a, b = (np.reshape(one, (1,) * (max(a.ndim, b.ndim) - one.ndim) + one.shape) for one in (a, b))
    (a, along), (b, other) = sample(np, a, axis), sample(np, b, axis)
    n, m = a.shape[along], b.shape[other]
    # A sample of one value has no spread of its own
    squares = [np.var(one, axis=at, ddof=min(1, k - 1)) * (k - 1) for one, at, k in ((a, along, n), (b, other, m))]
    factor = (1 / n + 1 / m) / (n + m - 2) if n and m and n + m > 2 else math.nan
    found = (np.mean(a, axis=along) - np.mean(b, axis=other)) / np.sqrt((squares[0] + squares[1]) * factor)
    return SignificanceResult(found, n + m - 2, _sided(alternative, _student(n + m - 2)))
