"""``np.random``: NumPy's generators, with its distributions; the numbers are others than NumPy's for the same seed.

A distribution that the device has no fill for is a transform of one that it has. Parameters of location and scale
broadcast; those of a shape (of ``gamma``, ``poisson`` …) are numbers.
"""

import math
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import numpy

from callboard.core.ref import GpuRef
from callboard.kernel.rng.methods import Methods
from callboard.numpylike.binding import TABLE, bound, dtype_of
from callboard.numpylike.missing import unknown
from callboard.numpylike.signatures import SIGNATURES

__all__ = ["Generator", "Random", "entered", "gamma_of", "number", "size_of"]

F = TypeVar("F", bound=Callable[..., Any])


def seed_of(seed: Any) -> int:
    """The seed of 64 bits that anything that NumPy takes for one stands for."""
    if seed is None:
        return secrets.randbits(64)
    if isinstance(seed, int | numpy.integer) and 0 <= seed < 2**64:
        return int(seed)
    sequence = seed if isinstance(seed, numpy.random.SeedSequence) else numpy.random.SeedSequence(seed)
    return int(sequence.generate_state(1, numpy.uint64)[0])


class _Stream:
    """Distributions of one stream of random numbers.

    Args:
        np: The namespace.
        seed: As NumPy takes it.
    """

    _section = "Generator"

    def __init__(self, np: Any, seed: Any = None) -> None:
        self.np = np
        self.asarray = np.asarray
        self._reseed(seed)

    def _reseed(self, seed: Any) -> None:
        self._seed = seed_of(seed)
        self.base = Methods(self.np.xp._submit, self.np.xp._put).default_rng(self._seed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        path = f"{self._section}.{name}"
        if path not in TABLE:
            raise unknown("random", name, dir(self))
        found = bound(self, path)
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        names = (path.partition(".")[2] for path in TABLE if path.startswith(f"{self._section}."))
        return sorted({*super().__dir__(), *names})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.np.xp}, seed {self._seed}>"


class Generator(_Stream):
    """What ``np.random.default_rng(seed)`` gives: the methods of ``numpy.random.Generator``."""

    def spawn(self, n_children: int) -> list["Generator"]:
        """Generators of seeds that depend on this one's."""
        return [Generator(self.np, child) for child in numpy.random.SeedSequence(self._seed).spawn(n_children)]


_Generator = Generator


class Random(_Stream):
    """``np.random``: ``default_rng``, and the functions of one stream of the device."""

    _section = "random"

    @property
    def Generator(self) -> type[Generator]:  # noqa: N802 - NumPy's name
        """The class of what :meth:`default_rng` gives."""
        return Generator

    def default_rng(self, seed: Any = None) -> "_Generator":
        """A generator with a stream of its own."""
        return seed if isinstance(seed, Generator) else Generator(self.np, seed)

    def RandomState(self, seed: Any = None) -> "Random":  # noqa: N802 - NumPy's name
        """The legacy functions, with a stream of their own."""
        return Random(self.np, seed)

    def seed(self, seed: Any = None) -> None:
        """Begin the stream anew."""
        self._reseed(seed)


# -- distributions -----------------------------------------------------------------------------------------------------


def entered(*names: str) -> Callable[[F], F]:
    """Enter a function in the table for ``np.random`` and for generators, under its own name or these."""

    def enter(made: F) -> F:
        for name in names or (made.__name__.rstrip("_"),):
            for section in ("random", "Generator"):
                if f"{section}.{name}" in SIGNATURES:
                    TABLE[f"{section}.{name}"] = made
        return made

    return enter


def size_of(size: Any, *parameters: Any) -> Any:
    """The shape of the result: ``size``, or that to which the parameters broadcast."""
    shapes: list[Any] = [getattr(x, "shape", None) if isinstance(x, GpuRef) else numpy.shape(x) for x in parameters]
    whole = numpy.broadcast_shapes(*shapes)
    if size is None:
        return whole
    size = (int(size),) if isinstance(size, int | numpy.integer) else tuple(int(n) for n in size)
    if any(n < 0 for n in size):
        raise ValueError("negative dimensions are not allowed")
    if len(whole) and numpy.broadcast_shapes(whole, size) != size:
        raise ValueError(f"Output size {size} is not compatible with broadcast dimensions of inputs {whole}.")
    return size


def _value(rng: Any, x: Any) -> Any:
    """A parameter: a number, or an array of the device."""
    if isinstance(x, bool | int | float):
        return x
    if isinstance(x, numpy.generic) or (isinstance(x, numpy.ndarray) and not x.ndim):
        return x.item()
    return rng.asarray(x)


def _least(name: str, x: Any, least: float, *, above: bool = False) -> Any:
    """The parameter, checked where it is a number of the host."""
    if isinstance(x, GpuRef):
        return x
    values = numpy.asarray(x)
    if values.dtype.kind in "biuf" and not (values > least if above else values >= least).all():
        raise ValueError(f"{name} {'<=' if above else '<'} {least:g}")
    return x


def number(name: str, x: Any) -> Any:
    """A parameter that is one number.

    Raises:
        TypeError: It is an array.
    """
    if numpy.ndim(x) and not isinstance(x, GpuRef) and numpy.size(x) == 1:
        x = numpy.asarray(x).reshape(())
    if numpy.ndim(x):
        raise TypeError(f"{name} is an array; on a device this parameter is one number")
    return x.item() if isinstance(x, GpuRef | numpy.ndarray | numpy.generic) else x


@entered("random", "random_sample", "ranf", "sample")
def random_(rng: Any, size: Any, dtype: Any = float) -> Any:
    """Uniform numbers of ``[0, 1)``."""
    return rng.base.random(size_of(size), dtype=_float(dtype))


def _float(dtype: Any) -> Any:
    found = dtype_of(dtype)
    if found is None or found.name not in ("f32", "f64"):
        raise TypeError(f"Unsupported dtype {dtype!r} for random")
    return found


@entered("rand")
def rand(rng: Any, *args: int) -> Any:
    """Uniform numbers of ``[0, 1)`` in this shape."""
    return rng.base.random(size_of(args))


@entered("randn")
def randn(rng: Any, *args: int) -> Any:
    """Normal numbers in this shape."""
    return rng.base.standard_normal(size_of(args))


@entered()
def uniform(rng: Any, low: Any, high: Any, size: Any) -> Any:
    """Uniform numbers between two bounds."""
    u = rng.base.random(size_of(size, low, high))
    low, high = _value(rng, low), _value(rng, high)
    if not all(isinstance(x, GpuRef) or math.isfinite(x) for x in (low, high)):
        raise OverflowError("high - low range exceeds valid bounds")
    return u * (high - low) + low


@entered()
def standard_normal(rng: Any, size: Any, dtype: Any = float) -> Any:
    """Normal numbers."""
    return rng.base.standard_normal(size_of(size), dtype=_float(dtype))


@entered()
def normal(rng: Any, loc: Any, scale: Any, size: Any) -> Any:
    """Normal numbers of a mean and a standard deviation."""
    _least("scale", scale, 0)
    z = rng.base.standard_normal(size_of(size, loc, scale))
    return z * _value(rng, scale) + _value(rng, loc)


@entered()
def lognormal(rng: Any, mean: Any, sigma: Any, size: Any) -> Any:
    """Exponentials of normal numbers."""
    _least("sigma", sigma, 0)
    return rng.np.exp(normal(rng, mean, sigma, size))


@entered()
def standard_exponential(rng: Any, size: Any, dtype: Any = float) -> Any:
    """Exponentially distributed numbers of mean 1."""
    return rng.base.standard_exponential(size_of(size), dtype=_float(dtype))


@entered()
def exponential(rng: Any, scale: Any, size: Any) -> Any:
    """Exponentially distributed numbers."""
    _least("scale", scale, 0)
    return rng.base.standard_exponential(size_of(size, scale)) * _value(rng, scale)


@entered()
def standard_cauchy(rng: Any, size: Any) -> Any:
    """Cauchy numbers."""
    return rng.base.standard_cauchy(size_of(size))


def gamma_of(rng: Any, shape: float, size: Any) -> Any:
    """Gamma distributed numbers of scale 1."""
    return rng.np.zeros(size) if shape == 0 else rng.base.gamma(shape, 1.0, size)


@entered()
def standard_gamma(rng: Any, shape: Any, size: Any, dtype: Any = float) -> Any:
    """Gamma distributed numbers of scale 1."""
    _least("shape", shape, 0)
    return gamma_of(rng, number("shape", shape), size_of(size, numpy.zeros(numpy.shape(shape)))).astype(_float(dtype))


@entered()
def gamma(rng: Any, shape: Any, scale: Any, size: Any) -> Any:
    """Gamma distributed numbers."""
    _least("shape", shape, 0), _least("scale", scale, 0)
    return gamma_of(rng, number("shape", shape), size_of(size, shape, scale)) * _value(rng, scale)


@entered()
def beta(rng: Any, a: Any, b: Any, size: Any) -> Any:
    """Beta distributed numbers."""
    _least("a", a, 0, above=True), _least("b", b, 0, above=True)
    return rng.base.beta(number("a", a), number("b", b), size_of(size, a, b))


@entered()
def chisquare(rng: Any, df: Any, size: Any) -> Any:
    """Chi-square distributed numbers."""
    _least("df", df, 0, above=True)
    return gamma_of(rng, number("df", df) / 2, size_of(size, df)) * 2.0


@entered()
def f(rng: Any, dfnum: Any, dfden: Any, size: Any) -> Any:
    """F distributed numbers."""
    shape = size_of(size, dfnum, dfden)
    top, bottom = chisquare(rng, dfnum, shape), chisquare(rng, dfden, shape)
    return (top / number("dfnum", dfnum)) / (bottom / number("dfden", dfden))


@entered()
def standard_t(rng: Any, df: Any, size: Any) -> Any:
    """Student's t."""
    shape = size_of(size, df)
    return rng.base.standard_normal(shape) / rng.np.sqrt(chisquare(rng, df, shape) / number("df", df))


@entered()
def gumbel(rng: Any, loc: Any, scale: Any, size: Any) -> Any:
    """Gumbel's distribution."""
    _least("scale", scale, 0)
    e = rng.base.standard_exponential(size_of(size, loc, scale))
    return _value(rng, loc) - rng.np.log(e) * _value(rng, scale)


@entered()
def laplace(rng: Any, loc: Any, scale: Any, size: Any) -> Any:
    """Laplace's distribution."""
    _least("scale", scale, 0)
    shape = size_of(size, loc, scale)
    z = rng.base.standard_exponential(shape) - rng.base.standard_exponential(shape)
    return z * _value(rng, scale) + _value(rng, loc)


@entered()
def logistic(rng: Any, loc: Any, scale: Any, size: Any) -> Any:
    """The logistic distribution."""
    _least("scale", scale, 0)
    e = rng.base.standard_exponential(size_of(size, loc, scale))
    return rng.np.log(rng.np.expm1(e)) * _value(rng, scale) + _value(rng, loc)


@entered()
def pareto(rng: Any, a: Any, size: Any) -> Any:
    """Pareto's distribution, from 0."""
    _least("a", a, 0, above=True)
    return rng.np.expm1(rng.base.standard_exponential(size_of(size, a)) / _value(rng, a))


@entered()
def power(rng: Any, a: Any, size: Any) -> Any:
    """The power distribution on ``[0, 1]``."""
    _least("a", a, 0, above=True)
    e = rng.base.standard_exponential(size_of(size, a))
    return rng.np.power(-rng.np.expm1(-e), 1.0 / _value(rng, a))


@entered()
def rayleigh(rng: Any, scale: Any, size: Any) -> Any:
    """Rayleigh's distribution."""
    _least("scale", scale, 0)
    return rng.np.sqrt(rng.base.standard_exponential(size_of(size, scale)) * 2.0) * _value(rng, scale)


@entered()
def weibull(rng: Any, a: Any, size: Any) -> Any:
    """Weibull's distribution."""
    _least("a", a, 0)
    e = rng.base.standard_exponential(size_of(size, a))
    return rng.np.power(e, 1.0 / _value(rng, a)) if numpy.ndim(a) or a else e * 0.0


@entered()
def triangular(rng: Any, left: Any, mode: Any, right: Any, size: Any) -> Any:
    """The triangular distribution."""
    if not any(isinstance(x, GpuRef) for x in (left, mode, right)):
        low, middle, high = (numpy.asarray(x) for x in (left, mode, right))
        for wrong, why in (
            (low > middle, "left > mode"),
            (middle > high, "mode > right"),
            (low == high, "left == right"),
        ):
            if wrong.any():
                raise ValueError(why)
    u = rng.base.random(size_of(size, left, mode, right))
    left, mode, right = (_value(rng, x) for x in (left, mode, right))
    np = rng.np
    part = np.asarray(mode - left) / (right - left)
    up = left + np.sqrt(u * (right - left) * (mode - left))
    return np.where(u <= part, up, right - np.sqrt((1.0 - u) * (right - left) * (right - mode)))


@entered()
def wald(rng: Any, mean: Any, scale: Any, size: Any) -> Any:
    """The inverse Gaussian distribution."""
    _least("mean", mean, 0, above=True), _least("scale", scale, 0, above=True)
    shape = size_of(size, mean, scale)
    y, u = rng.np.square(rng.base.standard_normal(shape)), rng.base.random(shape)
    mean, scale = _value(rng, mean), _value(rng, scale)
    ratio = rng.np.asarray(mean) / scale / 2.0
    x = mean + ratio * (mean * y - rng.np.sqrt(4.0 * mean * scale * y + mean * mean * (y * y)))
    return rng.np.where(u <= mean / (mean + x), x, mean * mean / x)


# -- integers ----------------------------------------------------------------------------------------------------------


@entered()
def integers(rng: Any, low: Any, high: Any, size: Any, dtype: Any, endpoint: bool) -> Any:
    """Integers below a bound, or between two."""
    first, last = (0, low) if high is None else (low, high)
    to = dtype_of(dtype)
    if to is None or not (to.is_integer or to.kind == "bool"):
        raise TypeError(f"Unsupported dtype {dtype!r} for integers")
    if not all(numpy.ndim(x) == 0 or numpy.size(x) == 1 for x in (first, last)):
        return _between(rng, first, last, size, to, endpoint)
    shape = size_of(size, first, last)
    first, last = math.ceil(number("low", first)), math.floor(number("high", last)) + bool(endpoint)
    info = (0, 1) if to.kind == "bool" else (numpy.iinfo(to.np).min, numpy.iinfo(to.np).max)
    if first < info[0]:
        raise ValueError(f"low is out of bounds for {to.np}")
    if last - 1 > info[1]:
        raise ValueError(f"high is out of bounds for {to.np}")
    if first >= last:
        raise ValueError("low >= high" if not endpoint else "low > high")
    if last - first >= 2**64 or (to.name in ("i64", "u64") and last > info[1]):
        last = min(last, info[1])
    drawn = rng.base.integers(first, last, shape, dtype="u64" if to.name == "u64" else "i64")
    return drawn.astype(to) if drawn.dtype is not to else drawn


def _between(rng: Any, low: Any, high: Any, size: Any, to: Any, endpoint: bool) -> Any:
    shape = size_of(size, low, high)
    low, high = rng.asarray(low), rng.asarray(high)
    if bool(rng.np.any(low > high if endpoint else low >= high)):
        raise ValueError("low >= high" if not endpoint else "low > high")
    u = rng.base.random(shape)
    span = (high - low + int(endpoint)).astype("f64")
    found = low + rng.np.minimum(rng.np.floor(u * span), span - 1).astype("i64")
    return found.astype(to)


@entered()
def randint(rng: Any, low: Any, high: Any, size: Any, dtype: Any) -> Any:
    """Integers below a bound, or between two."""
    return integers(rng, low, high, size, dtype, False)


@entered()
def random_integers(rng: Any, low: Any, high: Any, size: Any) -> Any:
    """Integers up to a bound, inclusive."""
    return integers(rng, 1 if high is None else low, low if high is None else high, size, int, True)


@entered()
def poisson(rng: Any, lam: Any, size: Any) -> Any:
    """Poisson numbers."""
    _least("lam", lam, 0)
    return rng.base.poisson(number("lam", lam), size_of(size, lam))


@entered()
def geometric(rng: Any, p: Any, size: Any) -> Any:
    """The number of trials until a success."""
    if not isinstance(p, GpuRef) and not ((numpy.asarray(p) > 0) & (numpy.asarray(p) <= 1)).all():
        raise ValueError("p <= 0, p > 1 or p contains NaNs")
    np, e = rng.np, rng.base.standard_exponential(size_of(size, p))
    rate = -np.log1p(-np.asarray(p, dtype=float))
    return np.maximum(np.ceil(e / rate), 1).astype("i64")


@entered()
def binomial(rng: Any, n: Any, p: Any, size: Any) -> Any:
    """The number of successes in ``n`` trials: halved by an order statistic until few trials are left."""
    _least("n", n, 0)
    if not isinstance(p, GpuRef) and not ((numpy.asarray(p) >= 0) & (numpy.asarray(p) <= 1)).all():
        raise ValueError("p < 0, p > 1 or p contains NaNs")
    np, shape, left = rng.np, size_of(size, n, p), int(number("n", n))
    chance = np.broadcast_to(np.asarray(p, dtype=float), shape)
    found = np.zeros(shape)
    while left:
        if left % 2 == 0 or left < 16:
            found, left = found + (rng.base.random(shape) < chance), left - 1
            continue
        half = (left + 1) // 2
        middle = rng.base.beta(half, half, shape)
        above = middle < chance
        found = found + np.where(above, float(half), 0.0)
        chance = np.where(above, (chance - middle) / (1.0 - middle), chance / middle)
        left = half - 1
    return found.astype("i64")


@entered()
def multinomial(rng: Any, n: Any, pvals: Any, size: Any) -> Any:
    """How often each of several results occurs in ``n`` experiments."""
    host = numpy.asarray(pvals.get() if isinstance(pvals, GpuRef) else pvals, dtype=float)
    if host.ndim != 1 or (host < 0).any() or (host > 1).any():
        raise ValueError("pvals < 0, pvals > 1 or pvals contains NaNs")
    if host[:-1].sum() > 1.0 + 1e-12:
        raise ValueError("sum(pvals[:-1]) > 1.0")
    host[-1] = max(0.0, 1.0 - host[:-1].sum())
    _least("n", n, 0)
    shape, count = size_of(size), int(number("n", n))
    if not count:
        return rng.np.zeros((*shape, len(host)), dtype="i64")
    drawn = rng.base.choice(len(host), (*shape, count), True, rng.asarray(host))
    return rng.np.stack([rng.np.count_nonzero(drawn == k, axis=-1) for k in range(len(host))], axis=-1)
