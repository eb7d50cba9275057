"""Powers of two that keep what is computed from matrices inside the range of their dtype; they change no digit."""

from typing import NamedTuple

from callboard.arrays import statistics
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import Ref
from callboard.core.dtype import DType

__all__ = ["Levelled", "levelled", "normalised", "powers"]


class Levelled(NamedTuple):
    """Matrices whose rows are of about one size, that of the largest.

    Attributes:
        matrices: ``a * first * second``.
        first: A power of two for each row, ``[..., n, 1]``.
        second: Another one: their product may be too large for the dtype.
    """

    matrices: Ref
    first: Ref
    second: Ref


def normalised(a: Ref) -> tuple[Ref, Ref]:
    """Matrices times powers of two that bring their largest elements near 1, and these powers, ``[..., 1, 1]``."""
    power = powers(a, (-2, -1))
    return apply("a * p", a=a, p=power), power


def levelled(a: Ref) -> Levelled:
    """Scale the rows of matrices up to the largest one, if they are so far apart that quotients leave the range."""
    unit = statistics.units(statistics.max(apply("abs(a)", a=a), axis=-1, keepdims=True))
    largest = statistics.max(unit, axis=-2, keepdims=True)
    power, far = _reciprocal(unit, a.dtype), 2.0 ** (_last_exponent(a.dtype) // 3)
    first = apply("where(p * q > f, where(isfinite(p * q), p * q, p), 1.0)", p=power, q=largest, f=far)
    second = apply("where(isfinite(p * q), 1.0, q)", p=power, q=largest)
    return Levelled(apply("a * f * s", a=a, f=first, s=second), first, second)


def powers(a: Ref, axis: int | tuple[int, int]) -> Ref:
    """The power of two that brings the largest magnitude along some axes near 1; they are kept with the extent 1."""
    return _reciprocal(statistics.units(statistics.max(apply("abs(a)", a=a), axis=axis, keepdims=True)), a.dtype)


def _last_exponent(dtype: DType) -> int:
    """Of the largest power of two of the dtype."""
    return 1023 if dtype.real.itemsize == 8 else 127


def _reciprocal(unit: Ref, dtype: DType) -> Ref:
    """Of powers of two, none too large for the dtype."""
    most = 2.0 ** _last_exponent(dtype)
    found: Ref = apply("1 / clip(u, s, m)", u=unit, s=1 / most, m=most)
    return found
