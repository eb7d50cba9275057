"""``scipy.stats``: correlations and t-tests, with their probabilities.

Statistics are computed on the device. A probability is a function of a few numbers (an incomplete beta function, the
distribution of Student's t), so SciPy computes it on the host when it is read, which waits.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array
from callboard.scipylike.special import floats
from callboard.scipylike.stats import rankdata
from callboard.scipylike.table import function

__all__ = ["SignificanceResult"]


class SignificanceResult:
    """A statistic and its probability; unpacks to the two, as SciPy's does.

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


@function("stats")
def pearsonr(np: Any, x: Array, y: Array, *, alternative: str = "two-sided", axis: int = 0) -> SignificanceResult:
    """Pearson's correlation of two arrays of one shape along an axis, from -1 to 1; NaN where one is constant."""
    if x.shape != y.shape or not x.ndim or x.shape[axis] < 2:
        raise ValueError(f"x and y must have one shape, with at least 2 values; they are {x.layout!r}, {y.layout!r}")
    x, y = (a - np.mean(a, axis=axis, keepdims=True) for a in (floats(np, x), floats(np, y)))
    # Divided by their lengths first: squares of large values would overflow
    x, y = (a / np.sqrt(np.sum(a * a, axis=axis, keepdims=True)) for a in (_scaled(np, x, axis), _scaled(np, y, axis)))
    found = np.clip(np.sum(x * y, axis=axis), -1, 1)
    n = x.shape[axis]
    return SignificanceResult(found, n - 2, _sided(alternative, _of_correlation(n)))


@function("stats")
def spearmanr(np: Any, a: Array, b: Array, axis: int = 0, *, alternative: str = "two-sided") -> SignificanceResult:
    """Spearman's correlation of two arrays: Pearson's of their ranks."""
    return pearsonr(np, *(rankdata(np, one, axis=axis) for one in (a, b)), alternative=alternative, axis=axis)


def _scaled(np: Any, a: Any, axis: int) -> Any:
    return a / np.max(np.abs(a), axis=axis, keepdims=True)


@function("stats")
def ttest_1samp(
    np: Any, a: Array, popmean: Any, axis: int | None = 0, *, alternative: str = "two-sided"
) -> SignificanceResult:
    """Student's t of the mean of ``a``, against ``popmean``."""
    a = floats(np, a)
    a, axis = (np.ravel(a), 0) if axis is None else (a, axis)
    n = a.shape[axis]
    found = (np.mean(a, axis=axis) - popmean) / (np.std(a, axis=axis, ddof=1) / math.sqrt(n))
    return SignificanceResult(found, n - 1, _sided(alternative, _student(n - 1)))


@function("stats")
def ttest_rel(
    np: Any, a: Array, b: Array, axis: int | None = 0, *, alternative: str = "two-sided"
) -> SignificanceResult:
    """Student's t of the differences of pairs."""
    if a.shape != b.shape:
        raise ValueError(f"a and b are pairs; they are {a.layout!r} and {b.layout!r}")
    return ttest_1samp(np, floats(np, a) - floats(np, b), 0, axis, alternative=alternative)


@function("stats")
def ttest_ind(
    np: Any, a: Array, b: Array, axis: int | None = 0, *, alternative: str = "two-sided"
) -> SignificanceResult:
    """Student's t of two independent samples of equal variance."""
    a, b = floats(np, a), floats(np, b)
    a, b, axis = (np.ravel(a), np.ravel(b), 0) if axis is None else (a, b, axis)
    n, m = a.shape[axis], b.shape[axis]
    pooled = ((n - 1) * np.var(a, axis=axis, ddof=1) + (m - 1) * np.var(b, axis=axis, ddof=1)) / (n + m - 2)
    found = (np.mean(a, axis=axis) - np.mean(b, axis=axis)) / np.sqrt(pooled * (1 / n + 1 / m))
    return SignificanceResult(found, n + m - 2, _sided(alternative, _student(n + m - 2)))
