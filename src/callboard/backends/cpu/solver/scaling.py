"""Scaling of matrices by powers of two, for elements at the ends of a dtype's range.

LAPACK as OpenBLAS and MKL have it multiplies by the reciprocals of pivots, which are infinite for denormal ones. Powers
of two change no digit of a normal number (J. Demmel et al., "LAPACK Users' Guide", §4.4, equilibration).
"""

import math
from typing import Any

import numpy as np

from callboard.backends.cpu.solver.lapack import Array

__all__ = ["Equilibrated", "centre", "centre_columns", "centre_factors", "product", "shift"]

CHUNK = 32
"""Factors of a product that are multiplied before it is scaled: their mantissas stay in the range of every dtype."""


def _sizes(a: Array) -> Array:
    """Absolute values, of a complex number the larger one of its parts: they never overflow."""
    return np.maximum(np.abs(a.real), np.abs(a.imag)) if a.dtype.kind == "c" else np.abs(a)


def _range(dtype: np.dtype[Any]) -> tuple[float, float]:
    info = np.finfo(dtype)
    return float(info.tiny / info.eps), float(info.max * info.eps)


def shift(a: Array, exponents: Any) -> None:
    """Multiply by powers of two, in place: ``a *= 2.0**exponents``, without an overflow of the power."""
    for part in (a.real, a.imag) if a.dtype.kind == "c" else (a,):
        np.ldexp(part, exponents, out=part)


def _exponents(sizes: Array) -> Array:
    """The powers of two that bring sizes to ``[0.5, 1)``; 0 for those that are 0 or not finite."""
    _, exponents = np.frexp(sizes)
    return np.where((sizes > 0) & np.isfinite(sizes), -exponents, 0).astype(np.int32)


def _outside(sizes: Array, low: float, high: float) -> bool:
    return bool(((sizes < low) & (sizes > 0)).any() or (sizes > high).any())


def _uneven(tops: Array, low: float, high: float) -> bool:
    """The largest elements of rows are at an end of the range, or so far apart that their quotients would be."""
    return _outside(tops, low, high) or bool(tops.max() * math.sqrt(low) > tops.min(where=tops > 0, initial=math.inf))


class Equilibrated:
    """The system ``a @ x = b`` with rows and columns of ``a`` in the middle of the range, in place.

    Nothing is changed where all rows and columns have elements there already, of about one size.

    Args:
        a: Square matrix, overwritten.

    Attributes:
        exponent: The determinant of ``a`` is that of the scaled matrix times two to this power.
    """

    def __init__(self, a: Array) -> None:
        self._rows = self._columns = None
        self.exponent = 0
        if not a.size:
            return
        low, high = _range(a.dtype)
        sizes = _sizes(a)
        rows, columns = sizes.max(1), sizes.max(0)
        if not (_uneven(rows, low, high) or _outside(columns, low, high)):
            return
        if np.ptp(_exponents(rows)) >= np.ptp(_exponents(columns)):
            self._rows = self._scaled(a, 1)
            self._columns = self._scaled(a, 0)
        else:
            self._columns = self._scaled(a, 0)
            self._rows = self._scaled(a, 1)
        self.exponent = -int(self._rows.sum() + self._columns.sum())

    @staticmethod
    def _scaled(a: Array, axis: int) -> Array:
        """Bring what lies along an axis near 1; returns the exponents."""
        exponents = _exponents(_sizes(a).max(axis))
        shift(a, np.expand_dims(exponents, axis))
        return exponents

    def begin(self, b: Array) -> Array | None:
        """Scale right-hand sides ``[n, k]`` in place; returns what :meth:`finish` needs."""
        if self._rows is None:
            return None
        sizes = _sizes(b)
        _, sizes_exponents = np.frexp(sizes)
        places = np.where(sizes > 0, sizes_exponents + self._rows[:, None], np.iinfo(np.int32).min)
        top = places.max(0)
        down = np.where(top == np.iinfo(np.int32).min, 0, -top).astype(np.int32)
        shift(b, self._rows[:, None] + down)
        return down

    def finish(self, x: Array, begun: Array | None) -> None:
        """Make the solutions of the scaled system those of the given one, in place."""
        if self._columns is not None and begun is not None:
            shift(x, self._columns[:, None] - begun)


def centre(a: Array) -> int:
    """Scale a matrix whose largest element is at an end of the range, in place; returns the exponent of the scale."""
    low, high = _range(a.dtype)
    top = _sizes(a).max()
    if not _outside(top[None], low, high) or not np.isfinite(top):
        return 0
    exponent = int(_exponents(top))
    shift(a, exponent)
    return exponent


def centre_columns(b: Array) -> Array:
    """Bring the largest element of each column to ``[0.5, 1)``, in place; returns the exponents of the scales."""
    exponents = _exponents(_sizes(b).max(0))
    shift(b, exponents)
    return exponents


def centre_factors(lu: Array) -> int:
    """Scale the upper triangle of LU factors whose elements are at an end of the range, in place.

    Returns:
        The exponent ``e`` of the scale: solutions of the given factors are those of the scaled ones times ``2**e``.
    """
    low, high = _range(lu.dtype)
    diagonal = _sizes(np.diagonal(lu))
    if not lu.size or not _outside(diagonal, low, high):
        return 0
    exponent = int(_exponents(diagonal.max()))
    rows, columns = np.triu_indices(len(lu))
    upper = lu[rows, columns]
    shift(upper, exponent)
    lu[rows, columns] = upper
    return exponent


def product(values: Array, exponent: int) -> Any:
    """``prod(values) * 2**exponent`` of a vector, without an overflow or underflow on the way to it."""
    exponents = _exponents(_sizes(values))
    if not exponent and 2 * int(np.abs(exponents).sum()) < np.finfo(values.dtype).maxexp:
        return np.prod(values, dtype=values.dtype)
    mantissas = values.copy()
    shift(mantissas, exponents)
    found, exponent = np.ones(1, values.dtype), exponent - int(exponents.sum())
    for start in range(0, len(mantissas), CHUNK):
        found *= np.prod(mantissas[start : start + CHUNK])
        scale = _exponents(_sizes(found))
        shift(found, scale)
        exponent -= int(scale[0])
    shift(found, exponent)
    return found[0]
