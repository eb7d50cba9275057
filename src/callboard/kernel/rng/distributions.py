"""Random numbers under NumPy's names, with NumPy's order of parameters."""

import math
from typing import TYPE_CHECKING, Any, Generic

from callboard.core.dtype import DTypeLike
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.ref.suggestions import unknown_name
from callboard.kernel.rng.generator import RngGenerator, Size, extents

__all__ = ["Distributions", "NumpyNames"]


class NumpyNames(Generic[Mode]):
    """The methods of ``numpy.random.Generator``, of a generator of the kind ``"philox"``.

    The distributions are NumPy's, the numbers are not. As with NumPy, numbers are f64 and integers i64 unless a dtype
    is given, and without a size the result is 0-d. Parameters are numbers; arrays of them do not broadcast.

    Raises:
        ShapeError: At each call: a parameter or a size is out of range; names it.
    """

    __slots__ = ()

    @property
    def _stream(self) -> RngGenerator[Mode]:
        raise NotImplementedError

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise unknown_name(f"random numbers have no {name!r}", name, object.__dir__(self), self)

    def random(self, size: Size | None = None, dtype: DTypeLike = "f64") -> GpuRef[Mode]:
        """Uniform numbers of ``[0, 1)``."""
        return self._stream.uniform(size, dtype=dtype)

    def uniform(
        self, low: float = 0.0, high: float = 1.0, size: Size | None = None, dtype: DTypeLike = "f64"
    ) -> GpuRef[Mode]:
        """Uniform numbers of ``[low, high)``."""
        return self._stream.uniform(size, low=low, high=high, dtype=dtype)

    def standard_normal(self, size: Size | None = None, dtype: DTypeLike = "f64") -> GpuRef[Mode]:
        """Normal numbers of mean 0 and standard deviation 1."""
        return self._stream.normal(size, dtype=dtype)

    def normal(
        self, loc: float = 0.0, scale: float = 1.0, size: Size | None = None, dtype: DTypeLike = "f64"
    ) -> GpuRef[Mode]:
        """Normal numbers of mean ``loc`` and standard deviation ``scale``."""
        return self._stream.normal(size, mean=loc, std=scale, dtype=dtype)

    def lognormal(
        self, mean: float = 0.0, sigma: float = 1.0, size: Size | None = None, dtype: DTypeLike = "f64"
    ) -> GpuRef[Mode]:
        """Exponentials of normal numbers of mean ``mean`` and standard deviation ``sigma``."""
        return self._stream.log_normal(size, mean=mean, std=sigma, dtype=dtype)

    def exponential(self, scale: float = 1.0, size: Size | None = None, dtype: DTypeLike = "f64") -> GpuRef[Mode]:
        """Exponentially distributed numbers of mean ``scale``."""
        if not scale > 0:
            raise ShapeError(f"exponential: scale is {scale}; it must be positive")
        return self._stream.exponential(size, rate=1 / scale, dtype=dtype)

    def standard_exponential(self, size: Size | None = None, dtype: DTypeLike = "f64") -> GpuRef[Mode]:
        """Exponentially distributed numbers of mean 1."""
        return self._stream.exponential(size, dtype=dtype)

    def standard_cauchy(self, size: Size | None = None, dtype: DTypeLike = "f64") -> GpuRef[Mode]:
        """Cauchy numbers around 0."""
        return self._stream.cauchy(size, dtype=dtype)

    def gamma(
        self, shape: float, scale: float = 1.0, size: Size | None = None, dtype: DTypeLike = "f64"
    ) -> GpuRef[Mode]:
        """Gamma distributed numbers of mean ``shape * scale``."""
        return self._stream.gamma(shape, scale, size, dtype=dtype)

    def beta(self, a: float, b: float, size: Size | None = None, dtype: DTypeLike = "f64") -> GpuRef[Mode]:
        """Beta distributed numbers."""
        return self._stream.beta(a, b, size, dtype=dtype)

    def poisson(self, lam: float = 1.0, size: Size | None = None, dtype: DTypeLike = "i64") -> GpuRef[Mode]:
        """Poisson numbers of mean ``lam``."""
        return self._stream.poisson(lam, size, dtype=dtype)

    def integers(
        self,
        low: int,
        high: int | None = None,
        size: Size | None = None,
        dtype: DTypeLike = "i64",
        endpoint: bool = False,
    ) -> GpuRef[Mode]:
        """Integers of ``[low, high)``, of ``[0, low)`` when ``high`` is None; ``high`` itself too with ``endpoint``."""
        first, last = (0, low) if high is None else (low, high)
        return self._stream.integers(first, last + endpoint, size, dtype=dtype)

    def choice(
        self,
        a: int | GpuRef[Mode],
        size: Size | None = None,
        replace: bool = True,
        p: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Random elements (lines) of an array, or integers of ``[0, a)``.

        Args:
            a: The number of integers, or an array: lines along its first axis.
            size: How many, as a shape; one without an axis when it is None.
            replace: An element may come again.
            p: Weights of the elements, f32 or f64, which need not sum to 1; with replacement only.

        Raises:
            ShapeError: There are no elements, or fewer than are drawn without replacement, or not as many as weights.
            TypeError: ``p`` is not an array of the device.
        """
        n, shape = _count("choice", a), () if size is None else extents(size)
        drawn = math.prod(shape)
        if n < 1 or not (replace or drawn <= n):
            how = "with" if replace else "without"
            raise ShapeError(f"choice: {drawn} of {n} elements {how} replacement; draw at most as many as there are")
        if p is None:
            places = self.integers(n, size=shape) if replace else self._stream.permutation(n)[:drawn].reshape(shape)
        elif not isinstance(p, GpuRef):
            raise TypeError(f"choice: p is {type(p).__name__}; pass an array of the device, dev.put(p)")
        elif not replace or p.shape != (n,):
            raise ShapeError(f"choice: p is {p.layout!r}; pass {n} weights, with replacement")
        else:
            places = self._stream.discrete(p, shape, dtype="i64")
        return places if isinstance(a, int) else _lines(a, places)

    def permutation(self, x: int | GpuRef[Mode]) -> GpuRef[Mode]:
        """0 to ``x - 1`` in random order, i64; of an array its lines along the first axis in random order, a copy."""
        order = self._stream.permutation(_count("permutation", x))
        return order if isinstance(x, int) else _lines(x, order)

    def shuffle(self, x: GpuRef[Mode]) -> None:
        """Bring the lines of ``x`` along its first axis in random order, in place."""
        x[...] = self.permutation(x)


def _count(what: str, x: Any) -> int:
    if isinstance(x, int):
        return x
    if not isinstance(x, GpuRef):
        raise TypeError(f"{what}: got {type(x).__name__}; pass a number, or an array of the device (dev.put)")
    if not x.ndim:
        raise ShapeError(f"{what}: the array is {x.layout!r}; it must have an axis")
    return x.shape[0]


def _lines(x: GpuRef[Mode], places: GpuRef[Mode]) -> GpuRef[Mode]:
    taken: GpuRef[Mode] = x._port.services.xp.take(x, places, axis=0)
    return taken


class Distributions(NumpyNames[Mode]):
    """The counterpart of ``numpy.random.Generator``: ``rng = dev.rng.default_rng(7)``, ``rng.normal(0, 2, (3, 4))``.

    Args:
        generator: A generator of the kind ``"philox"``; it keeps the place in the stream, and may be used beside.
    """

    __slots__ = ("generator",)

    def __init__(self, generator: RngGenerator[Mode]) -> None:
        self.generator = generator

    @property
    def _stream(self) -> RngGenerator[Mode]:
        return self.generator

    def __repr__(self) -> str:
        return f"Distributions({self.generator!r})"
