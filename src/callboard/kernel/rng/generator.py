"""``RngGenerator``: a stream of random numbers and the current position in it."""

import operator
import threading
from collections.abc import Sequence
from typing import Any, Generic

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import shape_of
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.api import Submit
from callboard.kernel.memory import Empty
from callboard.kernel.recording import recorder
from callboard.kernel.rng.fill import Fill
from callboard.kernel.rng.rejections import (
    RngFillBeta,
    RngFillDiscrete,
    RngFillGamma,
    RngFillIntegers,
    RngFillPermutation,
    RngFillPoisson,
)
from callboard.kernel.rng.streams import KINDS, RngOrdering, is_kind, max_dimensions, order_of, points_of
from callboard.kernel.rng.transforms import (
    RngFillBits,
    RngFillCauchy,
    RngFillExponential,
    RngFillLogNormal,
    RngFillNormal,
    RngFillUniform,
)

__all__ = ["RngGenerator", "Size"]

Size = int | Sequence[int]
DTYPES: dict[type[Fill], str] = {
    RngFillBits: "u32",
    RngFillPoisson: "i32",
    RngFillIntegers: "i32",
    RngFillDiscrete: "i32",
    RngFillPermutation: "i64",
}
"""Default dtype of a new array; f32 for all other fills."""


class RngGenerator(Generic[Mode]):
    """Makes arrays of random numbers, one after the other from one stream.

    The position is kept here, in the application, and each fill carries its own: the numbers are the same whether or
    not a context is lost in between, and a repeated fill (``position`` set back) gives the same numbers again. Methods
    may be called from any thread; each call takes its part of the stream atomically.

    Each method returns a new array of ``size`` and ``dtype`` (f32 by default; u32 for bits, u64 for bits of 64-bit
    Sobol sequences, i64 for permutations, i32 for other integers), or fills ``out``. It returns at once, like every op.
    Parameters without a default come first, then ``size``; all others are keyword-only. A wrong argument raises at the
    call and leaves the position unchanged.

    Args:
        submit: Submit function of the device.
        kind: The generator, a name of :data:`callboard.kernel.rng.streams.KINDS`.
        seed: Integer from 0 to 2**64 - 1; 0 for Sobol sequences that are not scrambled.
        position: First position, in words of 32 bits (points, for quasi-random kinds).
        dimensions: Dimensions of the points of a quasi-random kind; if more than 1, they are the last axis of every
            array.
        ordering: One of the orders of the kind, see :mod:`callboard.kernel.rng.streams`.

    Raises:
        TypeError: An integer, or an order, has another type.
        ShapeError: No such generator, or more dimensions than it has.
        UnsupportedOp: It does not have this order.
    """

    __slots__ = ("_lock", "_position", "_submit", "dimensions", "kind", "ordering", "seed")

    def __init__(
        self,
        submit: Submit,
        kind: str,
        seed: int = 0,
        position: int = 0,
        dimensions: int = 1,
        ordering: RngOrdering = "default",
    ) -> None:
        if not is_kind(kind):
            raise ShapeError(f"kind {kind!r} is not a generator; use one of {', '.join(KINDS)}")
        if not 1 <= (dimensions := _whole("dimensions", dimensions)) <= max_dimensions(kind):
            raise ShapeError(f"dimensions is {dimensions}; {kind} has 1 to {max_dimensions(kind)}")
        self.kind = kind
        self.ordering: RngOrdering = order_of(kind, ordering)
        if not 0 <= (seed := _whole("seed", seed)) < 2**64:
            raise ShapeError(f"seed is {seed}; it must lie between 0 and 2**64 - 1")
        self.seed = seed
        self.dimensions = dimensions
        self._submit = submit
        self._lock = threading.Lock()
        self.position = position

    @property
    def position(self) -> int:
        """The next word of 32 bits (or point) that has not been taken. May be set."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if not 0 <= (position := _whole("position", position)) < 2**64:
            raise ShapeError(f"position is {position}; it must lie between 0 and 2**64 - 1")
        self._position = position

    def skip(self, count: int) -> None:
        """Leave out ``count`` words of 32 bits (or points)."""
        with self._lock:
            self.position = self._position + _whole("count", count)

    def __repr__(self) -> str:
        return f"RngGenerator({self.kind!r}, seed={self.seed}, position={self._position})"

    # -- distributions -------------------------------------------------------------------------------------------------

    def bits(
        self, size: Size | None = None, *, dtype: DTypeLike | None = None, out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """The words themselves (:class:`RngFillBits`)."""
        return self._fill(RngFillBits, size, dtype, out)

    def uniform(
        self,
        size: Size | None = None,
        *,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Uniform numbers of ``[low, high)`` (:class:`RngFillUniform`)."""
        return self._fill(RngFillUniform, size, dtype, out, low=low, high=high)

    def normal(
        self,
        size: Size | None = None,
        *,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Normal numbers (:class:`RngFillNormal`)."""
        return self._fill(RngFillNormal, size, dtype, out, mean=mean, std=std)

    def log_normal(
        self,
        size: Size | None = None,
        *,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Exponentials of normal numbers (:class:`RngFillLogNormal`)."""
        return self._fill(RngFillLogNormal, size, dtype, out, mean=mean, std=std)

    def exponential(
        self,
        size: Size | None = None,
        *,
        rate: float = 1.0,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Exponentially distributed numbers of mean ``1 / rate`` (:class:`RngFillExponential`)."""
        return self._fill(RngFillExponential, size, dtype, out, rate=rate)

    def cauchy(
        self,
        size: Size | None = None,
        *,
        loc: float = 0.0,
        scale: float = 1.0,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Cauchy numbers (:class:`RngFillCauchy`)."""
        return self._fill(RngFillCauchy, size, dtype, out, loc=loc, scale=scale)

    def gamma(
        self,
        shape: float,
        scale: float = 1.0,
        size: Size | None = None,
        *,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Gamma distributed numbers of mean ``shape * scale`` (:class:`RngFillGamma`); Philox only."""
        return self._fill(RngFillGamma, size, dtype, out, shape=shape, scale=scale)

    def beta(
        self,
        alpha: float,
        beta: float,
        size: Size | None = None,
        *,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Beta distributed numbers (:class:`RngFillBeta`); Philox only."""
        return self._fill(RngFillBeta, size, dtype, out, alpha=alpha, beta=beta)

    def poisson(
        self,
        rate: float,
        size: Size | None = None,
        *,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Poisson numbers of mean ``rate`` (:class:`RngFillPoisson`); Philox only."""
        return self._fill(RngFillPoisson, size, dtype, out, rate=rate)

    def integers(
        self,
        low: int,
        high: int,
        size: Size | None = None,
        *,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Integers of ``[low, high)``, each equally likely (:class:`RngFillIntegers`); Philox only."""
        return self._fill(RngFillIntegers, size, dtype, out, low=low, high=high)

    def discrete(
        self,
        weights: GpuRef[Mode],
        size: Size | None = None,
        *,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Indices with probabilities proportional to their weights (:class:`RngFillDiscrete`); Philox only."""
        return self._fill(RngFillDiscrete, size, dtype, out, weights=weights)

    def permutation(
        self, n: int | None = None, *, dtype: DTypeLike | None = None, out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """0 to ``n - 1`` in random order (:class:`RngFillPermutation`); Philox only."""
        return self._fill(RngFillPermutation, n, dtype, out)

    def _fill(
        self, message: type[Fill], size: Size | None, dtype: DTypeLike | None, out: GpuRef[Mode] | None, **numbers: Any
    ) -> GpuRef[Mode]:
        array: GpuRef[Mode] = (
            self._empty(size, self._usual(message) if dtype is None else dtype) if out is None else out
        )
        if out is not None and size is not None and extents(size) != out.shape:
            raise ShapeError(f"{message.tag()}: size is {size} and out is {out.layout!r}; leave size out")
        if out is not None and dtype is not None and as_dtype(dtype) is not out.dtype:
            raise ShapeError(f"{message.tag()}: dtype is {as_dtype(dtype)} and out is {out.layout!r}; leave dtype out")
        quasi = KINDS[self.kind].quasi
        if quasi:
            self._check_points(message, array)
        with self._lock:  # also around the call: the order of the calls is that of their places
            step = 1 if quasi else message.step(array.dtype)
            at = -(-self._position // step) * step
            taken = message.taken(self.kind, array)
            fill = message(out=array, kind=self.kind, ordering=self.ordering, seed=self.seed, position=at, **numbers)
            recording = recorder.get()
            if recording is not None:
                recording.draw(self, (step, taken))
            answer: GpuRef[Mode] = self._submit(fill)
            if recording is None or recording.drawn():  # replays take the numbers of a recorded fill
                self._position = at + taken
        return answer

    def take(self, fills: Sequence[tuple[int, int]], passes: int) -> list[list[int]]:
        """Take numbers for fills that come one after the other, ``passes`` times over (replays of a recording).

        Args:
            fills: For each fill, ``(multiple at which its position lies, number of words it takes)``, in words (or
                points).
            passes: The number of times.

        Returns:
            For each pass, the position of each fill.
        """
        with self._lock:
            positions: list[list[int]] = []
            position = self._position
            for _ in range(passes):
                row: list[int] = []
                for step, taken in fills:
                    row.append(-(-position // step) * step)
                    position = row[-1] + taken
                positions.append(row)
            self.position = position
        return positions

    def _usual(self, message: type[Fill]) -> str:
        if message is RngFillBits and KINDS[self.kind].bits == 64:
            return "u64"
        return DTYPES.get(message, "f32")

    def _empty(self, size: Size | None, dtype: DTypeLike) -> GpuRef[Mode]:
        made: GpuRef[Mode] = self._submit(Empty(shape=extents(size), dtype=as_dtype(dtype).name))
        return made

    def _check_points(self, message: type[Fill], out: GpuRef[Mode]) -> None:
        dimensions = points_of(out.layout)[1]
        if dimensions == self.dimensions:
            return
        if self.dimensions > 1:
            raise ShapeError(
                f"{message.tag()}: out is {out.layout!r} and the points have {self.dimensions} dimensions; "
                "pass an array with two or more axes, the last of which has the dimensions"
            )
        raise ShapeError(
            f"{message.tag()}: out is {out.layout!r} and the points have 1 dimension; create the generator with "
            f"dimensions={dimensions}, or pass an array with one axis"
        )


def extents(size: Size | None) -> tuple[int, ...]:
    """The shape that ``size`` names; None is 0-d, as in NumPy.

    Raises:
        ShapeError: It names none.
    """
    return () if size is None else shape_of(size, "size")


def _whole(name: str, number: int) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{name} is {number!r}; pass an integer") from None
