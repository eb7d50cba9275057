"""The functions of expressions by NumPy and SciPy: each takes arrays and ``out``, where to write."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.elementwise.functions import FUNCTIONS

__all__ = ["Array", "Compute", "computed_in", "function"]

Array = np.ndarray[Any, Any]
Compute = Callable[..., Any]
"""``compute(*arguments, out=array)``."""


def computed_in(dtype: DType) -> "np.dtype[Any]":
    """In which type elements of this one are held between steps."""
    return DTYPES["f32"].np if dtype.name in ("f16", "bf16") else dtype.np


@lru_cache(maxsize=1024)
def function(name: str, arguments: Sequence[DType], dtype: DType) -> Compute:
    """A function of elements of these dtypes."""
    if name == "cast":
        return _cast(arguments[0], dtype)
    special = SPECIAL.get(name)
    if special is not None:
        return special(arguments, dtype)
    path = FUNCTIONS[name].numpy
    if path.startswith("special."):
        import scipy.special

        return getattr(scipy.special, path.partition(".")[2])  # type: ignore[no-any-return]
    return getattr(np, path)  # type: ignore[no-any-return]


def _cast(old: DType, dtype: DType) -> Compute:
    if dtype.name in ("f16", "bf16"):
        return lambda x, out: _copy(out, x.astype(dtype.np))  # rounded here, and held in f32
    return lambda x, out: _copy(out, x)


def _copy(out: Array, x: Any) -> None:
    np.copyto(out, x, casting="unsafe")


def _where(arguments: Sequence[DType], dtype: DType) -> Compute:
    size = computed_in(dtype).itemsize
    if size > 8:
        return lambda condition, x, y, out: _copy(out, np.where(condition, x, y))
    bits = np.dtype(f"i{size}")

    def where(condition: Any, x: Any, y: Any, out: Array) -> None:
        # Selected by bit masks: a branch per element would take several times as long
        first, second, into = np.asarray(x).view(bits), np.asarray(y).view(bits), out.view(bits)
        chosen = np.not_equal(np.asarray(condition).view(np.int8), 0).view(np.int8)  # each byte but 0 is true
        if first.ndim == 0 and not first:
            np.bitwise_and(second, np.subtract(chosen, np.int8(1)), out=into)
            return
        mask = np.negative(chosen)
        if second.ndim == 0 and not second:
            np.bitwise_and(first, mask, out=into)
            return
        mask = mask.astype(bits, copy=False)
        np.bitwise_xor(first, second, out=into)
        np.bitwise_and(into, mask, out=into)
        np.bitwise_xor(into, second, out=into)

    return where


def _power(arguments: Sequence[DType], dtype: DType) -> Compute:
    if dtype.is_float:
        return _float_power
    if not dtype.is_integer or dtype.kind == "uint":
        return np.power

    def power(x: Any, n: Any, out: Array) -> None:
        low = np.less(n, 0)
        if not np.any(low):
            np.power(x, n, out=out)
            return
        # 1 / x ** -n, cut off: 1 and -1 alone leave something; NumPy refuses the whole array
        sign = np.where(np.bitwise_and(n, 1), x, 1)
        inverse = np.where(x == 1, 1, np.where(x == -1, sign, 0))
        np.copyto(out, np.where(low, inverse, np.power(x, np.where(low, 0, n))), casting="unsafe")

    return power


def _float_power(x: Any, n: Any, out: Array) -> None:
    one = np.asarray(n)
    if any(one.strides) or one.size == 0 or one.flat[0] != 0.5:
        np.power(x, n, out=out)
        return
    # NumPy takes the square root for this one exponent, which has another sign of 0 and is NaN of -inf
    low = np.isneginf(x)
    np.power(x, n, out=out)
    np.add(out, 0.0, out=out)
    np.copyto(out, np.inf, where=low)


def _floor_divide(arguments: Sequence[DType], dtype: DType) -> Compute:
    if not dtype.is_float:
        return np.floor_divide

    def divide(x: Any, y: Any, out: Array) -> None:
        # If one of them is infinite, the array API rounds the quotient down; NumPy returns NaN, or -1
        odd = np.logical_or(np.isinf(x), np.isinf(y))
        if not np.any(odd):
            np.floor_divide(x, y, out=out)
            return
        quotient = np.floor(np.divide(x, y))
        np.floor_divide(x, y, out=out)
        np.copyto(out, quotient, where=odd)

    return divide


def _expm1(arguments: Sequence[DType], dtype: DType) -> Compute:
    if not dtype.is_complex:
        return np.expm1

    def expm1(x: Any, out: Array) -> None:
        # NumPy returns NaN for infinite numbers, and -0 for -0 + 0j; the array API requires exp(x) - 1
        odd = np.logical_or(np.logical_not(np.isfinite(x)), np.equal(x, 0))
        wanted = np.subtract(np.exp(x), 1) if np.any(odd) else None
        np.expm1(x, out=out)
        if wanted is not None:
            np.copyto(out, wanted, where=odd)

    return expm1


def _tanh(arguments: Sequence[DType], dtype: DType) -> Compute:
    if not dtype.is_complex:
        return np.tanh

    def tanh(x: Any, out: Array) -> None:
        # C99 has 0 * sin(2 * imag(x)) for an infinite real part, the array API a 0 of the sign of imag(x)
        odd, zero = np.isinf(np.real(x)), np.copysign(0.0, np.imag(x))
        np.tanh(x, out=out)
        np.copyto(out.imag, zero, where=odd, casting="same_kind")

    return tanh


def _sign(arguments: Sequence[DType], dtype: DType) -> Compute:
    if not dtype.is_complex:
        return np.sign

    def sign(x: Any, out: Array) -> None:
        # For an infinite part and a NaN, NumPy returns the sign of the infinite part
        odd = np.isnan(x)
        np.sign(x, out=out)
        np.copyto(out, complex(np.nan, np.nan), where=odd)

    return sign


def _rsqrt(arguments: Sequence[DType], dtype: DType) -> Compute:
    def rsqrt(x: Any, out: Array) -> None:
        np.sqrt(x, out=out)
        np.reciprocal(out, out=out)

    return rsqrt


def _same(arguments: Sequence[DType], dtype: DType) -> Compute:
    return lambda x, out: _copy(out, x)


def _real(arguments: Sequence[DType], dtype: DType) -> Compute:
    return lambda x, out: _copy(out, np.real(x))


def _imag(arguments: Sequence[DType], dtype: DType) -> Compute:
    return lambda x, out: _copy(out, np.imag(x))


def _angle(arguments: Sequence[DType], dtype: DType) -> Compute:
    return lambda x, out: np.arctan2(np.imag(x), np.real(x), out=out)


def _complex(arguments: Sequence[DType], dtype: DType) -> Compute:
    def joined(x: Any, y: Any, out: Array) -> None:
        out.real = x
        out.imag = y

    return joined


def _constant(value: bool) -> Callable[[Sequence[DType], DType], Compute]:
    def of_integers(arguments: Sequence[DType], dtype: DType) -> Compute:
        return lambda x, out: out.fill(value)

    return of_integers


def _unless_whole(name: str, otherwise: Callable[[Sequence[DType], DType], Compute]) -> Any:
    def of(arguments: Sequence[DType], dtype: DType) -> Compute:
        if arguments[0].kind in ("int", "uint", "bool"):
            return otherwise(arguments, dtype)
        return getattr(np, name)  # type: ignore[no-any-return]

    return of


def _neighbour(arguments: Sequence[DType], dtype: DType) -> Compute:
    """Return the next number; for f16 and bf16 the next one of that dtype, not of f32."""
    if dtype.name not in ("f16", "bf16"):
        return np.nextafter
    narrow = dtype.np
    return lambda x, y, out: _copy(out, np.nextafter(np.asarray(x).astype(narrow), np.asarray(y).astype(narrow)))


SPECIAL: Mapping[str, Callable[[Sequence[DType], DType], Compute]] = {
    "where": _where,
    "pow": _power,
    "floor_divide": _floor_divide,
    "expm1": _expm1,
    "tanh": _tanh,
    "sign": _sign,
    "rsqrt": _rsqrt,
    "real": _real,
    "imag": _imag,
    "angle": _angle,
    "complex": _complex,
    "nextafter": _neighbour,
    "positive": _same,
    "isnan": _unless_whole("isnan", _constant(False)),
    "isinf": _unless_whole("isinf", _constant(False)),
    "isfinite": _unless_whole("isfinite", _constant(True)),
    "conj": _unless_whole("conjugate", _same),
    "round": _unless_whole("rint", _same),
    "floor": _unless_whole("floor", _same),
    "ceil": _unless_whole("ceil", _same),
    "trunc": _unless_whole("trunc", _same),
}
"""Functions that need more than one call of NumPy."""
