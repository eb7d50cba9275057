"""Fills whose every element is made of a fixed number of words: any generator serves them."""

from typing import Any, ClassVar

from callboard.core.dtype import DType
from callboard.core.errors import UnsupportedOp
from callboard.core.op import Outputs
from callboard.core.operand import Scalar
from callboard.kernel.checks import refuse
from callboard.kernel.rng.fill import INTEGERS, Fill, finite, positive
from callboard.kernel.rng.streams import KINDS

__all__ = ["RngFillBits", "RngFillCauchy", "RngFillExponential", "RngFillLogNormal", "RngFillNormal", "RngFillUniform"]


class RngFillBits(Fill, tag="rng.fill_bits"):
    """The words of the stream themselves (``FillUniformU32``).

    Args:
        out: i32, u32, i64 or u64 (not f32); any shape and strides. Sobol points are words of their own 32 or 64 bits.
        kind: The generator, a name of :data:`callboard.kernel.rng.streams.KINDS`.
        ordering: One of its orders, see :mod:`callboard.kernel.rng.streams`.
        seed: Integer of 64 bits; none for ``sobol32`` and ``sobol64``.
        position: Position of the first element in the stream: words of 32 bits, or points.
    """

    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def infer(self) -> Outputs:
        outputs = super().infer()
        kind = KINDS[self.kind]
        if kind.quasi and kind.bits != 8 * self.out.dtype.itemsize:
            raise UnsupportedOp(
                f"{self.tag()}: out is {self.out.layout!r} and {kind.name} has words of {kind.bits} bits"
            )
        return outputs


class RngFillUniform(Fill, tag="rng.fill_uniform"):
    """Uniform numbers of ``[low, high)``.

    Multiples of 2**-53 (f64), 2**-24 (f32), 2**-11 (f16) or 2**-8 (bf16) of the range, then rounded; ``high`` itself
    does not occur. The same bits on every backend, for every kind whose words are.

    Args:
        out: f16, bf16, f32 or f64; any shape and strides.
        kind, ordering, seed, position: See :class:`RngFillBits`.
        low, high: Finite, ``low <= high``; so is their difference. All elements are ``low`` where both are equal.
    """

    low: Scalar = 0.0
    high: Scalar = 1.0

    def check_numbers(self) -> None:
        finite(self, "low", "high")
        low, high = _real(self.low), _real(self.high)
        if not 0 <= high - low < float("inf"):
            raise refuse(self, f"low is {low!r} and high {high!r}; low must not be larger, and high - low finite")


class RngFillNormal(Fill, tag="rng.fill_normal"):
    """Normal numbers.

    Philox generators use the Box-Muller transform. Other generators use the inverse of the distribution function, so
    that points keep their order.

    Args:
        out: f16, bf16, f32 or f64; any shape and strides.
        kind, ordering, seed, position: See :class:`RngFillBits`.
        mean: Finite.
        std: Finite, >= 0.
    """

    mean: Scalar = 0.0
    std: Scalar = 1.0

    def check_numbers(self) -> None:
        _check_normal(self)


class RngFillLogNormal(Fill, tag="rng.fill_log_normal"):
    """Exponentials of normal numbers.

    Args:
        out: f16, bf16, f32 or f64; any shape and strides.
        kind, ordering, seed, position: See :class:`RngFillBits`.
        mean, std: Mean and standard deviation of the logarithm; finite, ``std >= 0``.
    """

    mean: Scalar = 0.0
    std: Scalar = 1.0

    def check_numbers(self) -> None:
        _check_normal(self)


class RngFillExponential(Fill, tag="rng.fill_exponential"):
    """Exponentially distributed numbers, ``-log(u) / rate`` of a uniform ``u`` in ``(0, 1]``.

    Args:
        out: f16, bf16, f32 or f64; any shape and strides.
        kind, ordering, seed, position: See :class:`RngFillBits`.
        rate: The original's ``lambda``; finite, > 0. The mean is ``1 / rate``.
    """

    rate: Scalar = 1.0

    def check_numbers(self) -> None:
        positive(self, "rate")


class RngFillCauchy(Fill, tag="rng.fill_cauchy"):
    """Numbers of the Cauchy (Lorentz) distribution; both tails are resolved alike.

    Args:
        out: f16, bf16, f32 or f64; any shape and strides.
        kind, ordering, seed, position: See :class:`RngFillBits`.
        loc: The median, finite.
        scale: Half the width at half the height; finite, > 0.
    """

    loc: Scalar = 0.0
    scale: Scalar = 1.0

    def check_numbers(self) -> None:
        finite(self, "loc")
        positive(self, "scale")


def _check_normal(op: RngFillNormal | RngFillLogNormal) -> None:
    finite(op, "mean", "std")
    if _real(op.std) < 0:
        raise refuse(op, f"std is {op.std!r}; it must not be negative")


def _real(number: Any) -> float:
    """A number that has been found real."""
    return float(number)


TRANSFORMS = (RngFillBits, RngFillUniform, RngFillNormal, RngFillLogNormal, RngFillExponential, RngFillCauchy)
"""What a backend serves by one plan, with a formula for each."""
