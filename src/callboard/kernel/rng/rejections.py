"""Fills whose elements take a varying number of words: each element has a Philox subsequence of its own.

The element at position ``p`` draws from the blocks ``(t, 2**63 + p)``, ``t = 0, 1 …``, of Philox4x32-10 under the key
``seed`` (for ``philox64`` too); no plain stream uses these blocks. An element's number therefore depends on seed and
position only, however a fill is divided, and every element advances the position by one word (integers of 64 bits by
two).
"""

from typing import Any, ClassVar

import msgspec
import numpy as np

from callboard.core.dtype import DTYPES, DType
from callboard.core.op import Outputs
from callboard.core.operand import In, Placeholder, Scalar, Whole
from callboard.kernel.checks import refuse
from callboard.kernel.rng.fill import INTEGERS, Fill, positive
from callboard.kernel.rng.streams import COUNTER_BASED, words_per_element

__all__ = [
    "RngFillBeta",
    "RngFillDiscrete",
    "RngFillGamma",
    "RngFillIntegers",
    "RngFillPermutation",
    "RngFillPoisson",
]

LARGEST_RATE = 2.0**52
"""Largest rate of Poisson numbers: above it, doubles do not count exactly."""


class OwnSubsequence(Fill):
    """Base of fills by rejection."""

    kinds: ClassVar[tuple[str, ...]] = COUNTER_BASED

    @classmethod
    def step(cls, dtype: DType) -> int:
        return 1


class RngFillIntegers(OwnSubsequence, tag="rng.fill_integers"):
    """Integers of ``[low, high)``, each equally likely, on every backend the same.

    The word of the plain stream, multiplied by the range (Lemire, "Fast Random Integer Generation in an Interval", ACM
    TOMACS 29, 2019); where that would favour some numbers, words of the element's own subsequence.

    Args:
        out: i32, u32, i64 or u64 (not f32); any shape and strides.
        kind: ``philox`` or ``philox64``.
        ordering, seed, position: See :class:`callboard.kernel.rng.transforms.RngFillBits`.
        low, high: Integers within the dtype, ``low < high``; ``high`` itself may be one more than its largest.
    """

    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    low: Whole = 0
    high: Whole = 2

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if type(high) is int and high == 2**64:  # which has no 64 bits, and means what 0 would
            msgspec.structs.force_setattr(self, "high", 0)
        super().__post_init__()
        if not isinstance(self.out, Placeholder):
            self._check_range(int(low), int(high))

    def _check_range(self, low: int, high: int) -> None:
        if not self.out.dtype.is_integer:
            return  # refused by infer
        least, most = np.iinfo(self.out.dtype.np).min, int(np.iinfo(self.out.dtype.np).max)
        if not least <= low < high <= most + 1:
            raise refuse(
                self,
                f"low is {low} and high {high}; for {self.out.dtype} they must be {least} <= low < high <= {most + 1}",
            )

    @classmethod
    def step(cls, dtype: DType) -> int:
        return words_per_element(dtype)


class RngFillDiscrete(Fill, tag="rng.fill_discrete"):
    """Indices of ``weights``, each with a probability proportional to its weight.

    Sums of the weights are kept in f64, so a probability is exact to about 1e-16 of the sum; backends add in different
    orders, and may differ where a number falls between their sums.

    Args:
        out: i32, u32, i64 or u64; any shape and strides.
        kind: ``philox`` or ``philox64``.
        ordering, seed, position: See :class:`callboard.kernel.rng.transforms.RngFillBits`; an element takes two words.
        weights: ``[m]``, f32 or f64, contiguous; finite and >= 0, at least one > 0. Otherwise the fill fails with
            ``NumericalError``, since only the device reads the weights.
    """

    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS
    kinds: ClassVar[tuple[str, ...]] = COUNTER_BASED

    weights: In

    @classmethod
    def step(cls, dtype: DType) -> int:
        return 2

    def infer(self) -> Outputs:
        outputs = super().infer()
        weights = self.weights.layout
        if weights.dtype not in (DTYPES["f32"], DTYPES["f64"]) or weights.ndim != 1 or not weights.size:
            raise refuse(self, f"weights is {weights!r}; pass one axis of f32 or f64 with at least one element")
        if not weights.contiguous:
            raise refuse(self, f"weights is {weights!r}; it must be contiguous (dev.copy first)")
        if weights.size > np.iinfo(self.out.dtype.np).max:
            raise refuse(self, f"weights is {weights!r}, and {self.out.dtype} cannot hold its last index")
        return outputs


class RngFillPoisson(OwnSubsequence, tag="rng.fill_poisson"):
    """Poisson numbers.

    Uses inversion for rates below 10, and transformed rejection above (Hörmann, "The transformed rejection method for
    generating Poisson random variables", Insurance: Mathematics and Economics 12, 1993: PTRS).

    Args:
        out: i32, u32, i64 or u64 (not f32); any shape and strides.
        kind: ``philox`` or ``philox64``.
        ordering, seed, position: See :class:`callboard.kernel.rng.transforms.RngFillBits`.
        rate: The original's ``lambda``, the mean; >= 0, at most 2**52, and so far below the dtype's largest number that
            no element exceeds it.
    """

    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    rate: Scalar = 1.0

    def check_numbers(self) -> None:
        rate: Any = self.rate
        most = LARGEST_RATE
        if self.out.dtype.is_integer:
            limit = float(np.iinfo(self.out.dtype.np).max)
            most = min(most, limit - 20 * limit**0.5)
        if isinstance(rate, complex) or not 0 <= rate <= most:
            raise refuse(self, f"rate is {rate!r}; for {self.out.dtype} it must lie between 0 and {most:.0f}")


class RngFillGamma(OwnSubsequence, tag="rng.fill_gamma"):
    """Gamma distributed numbers.

    Uses Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000), in f64.

    Args:
        out: f16, bf16, f32 or f64; any shape and strides.
        kind: ``philox`` or ``philox64``.
        ordering, seed, position: See :class:`callboard.kernel.rng.transforms.RngFillBits`.
        shape: Finite, > 0.
        scale: Finite, > 0. The mean is ``shape * scale``.
    """

    shape: Scalar
    scale: Scalar = 1.0

    def check_numbers(self) -> None:
        positive(self, "shape", "scale")


class RngFillBeta(OwnSubsequence, tag="rng.fill_beta"):
    """Beta distributed numbers, from two gamma numbers whose ratio is formed of their logarithms, in f64.

    Args:
        out: f16, bf16, f32 or f64; any shape and strides.
        kind: ``philox`` or ``philox64``.
        ordering, seed, position: See :class:`callboard.kernel.rng.transforms.RngFillBits`.
        alpha, beta: Finite, > 0.
    """

    alpha: Scalar
    beta: Scalar

    def check_numbers(self) -> None:
        positive(self, "alpha", "beta")


class RngFillPermutation(Fill, tag="rng.fill_permutation"):
    """The numbers 0 to ``n - 1`` in random order, every order equally likely, on every backend the same.

    The order of ``n`` random keys of 64 bits (equal keys, which a fill of 10**6 has with a probability of 3e-8, stay in
    order).

    Args:
        out: ``[n]``; i32, u32, i64 or u64 (not f32).
        kind: ``philox`` or ``philox64``.
        ordering, seed, position: See :class:`callboard.kernel.rng.transforms.RngFillBits`; an element takes two words.
    """

    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS
    kinds: ClassVar[tuple[str, ...]] = COUNTER_BASED

    @classmethod
    def step(cls, dtype: DType) -> int:
        return 2

    def infer(self) -> Outputs:
        outputs = super().infer()
        if self.out.ndim != 1:
            raise refuse(self, f"out is {self.out.layout!r}; it must have 1 axis")
        if self.out.size - 1 > np.iinfo(self.out.dtype.np).max:
            raise refuse(self, f"out is {self.out.layout!r}, and {self.out.dtype} cannot hold its last number")
        return outputs
