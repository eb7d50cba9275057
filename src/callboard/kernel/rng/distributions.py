"""Random numbers under NumPy's names, with NumPy's order of parameters."""

from typing import Generic

from callboard.core.dtype import DTypeLike
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.rng.generator import RngGenerator, Size

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

    def permutation(self, n: int) -> GpuRef[Mode]:
        """0 to ``n - 1`` in random order, i64."""
        return self._stream.permutation(n)


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
