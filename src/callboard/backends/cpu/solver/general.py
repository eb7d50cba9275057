"""Plans of eigenvalues of general matrices."""

from collections.abc import Callable

import numpy as np

from callboard.backends.cpu.solver.lapack import Array, Work, check_finite, lapack, name_of, outputs, staged, tag_of
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.solver import Geev, GeevValues
from callboard.kernel.solver.failures import unconverged

__all__ = ["geev", "geev_values"]

Plan = Callable[..., None]


def _scale(dtype: DType, a: Array) -> int:
    """Multiply ``a`` by a power of two if it is outside the range of ``geev``.

    Returns the exponent for the eigenvalues.

    LAPACK scales a matrix whose largest element is outside ``sqrt(tiny) / eps`` and its inverse to that limit, and its
    eigenvalues back. The ``geev`` of OpenBLAS 0.3.29 and 0.3.30 does not scale them back. Here the matrix is scaled
    before, to the same limits, so that ``geev`` does not scale.
    """
    info = np.finfo(dtype.real.np)
    limit = -info.minexp // 2 - info.nmant - 1  # 1: the modulus of a complex number may be larger than its parts
    parts = a.T.view(dtype.real.np)  # contiguous: LAPACK's matrices are column-major
    exponent = int(np.frexp(np.abs(parts).max())[1])
    shift = exponent - min(max(exponent, -limit), limit)
    if shift:
        np.ldexp(parts, -shift, out=parts)
    return shift


def _scaled(values: Array, shift: int) -> Array:
    """``values * 2**shift``, in place; one rounding, if the result is subnormal."""
    if shift:
        parts = values.view(values.real.dtype)
        np.ldexp(parts, shift, out=parts)
    return values


def _eig(dtype: DType, vectors: bool, a: Array) -> tuple[Array, Array, int]:
    """Eigenvalues and right vectors, complex, and ``info``; destroys ``a``.

    An eigenvalue that the dtype cannot hold is infinite or 0.
    """
    n, job = len(a), "V" if vectors else "N"
    wide = np.result_type(dtype.np, np.complex64)
    right = np.empty((n, n) if vectors else (1, 1), dtype.np, order="F")
    none, name, lead = np.empty(1, dtype.np), name_of(dtype, "geev"), max(len(right), 1)
    if not n:
        return np.empty(0, wide), np.empty((0, 0), wide), 0
    shift = _scale(dtype, a)
    if dtype.is_complex:
        values, real = np.empty(n, dtype.np), np.empty(2 * n, dtype.real.np)
        info = lapack(name, "N", job, n, a, n, values, none, 1, right, lead, Work(dtype.np), real)
        return _scaled(values, shift), right, info
    re, im = np.empty(n, dtype.np), np.empty(n, dtype.np)
    info = lapack(name, "N", job, n, a, n, re, im, none, 1, right, lead, Work(dtype.np))
    values = np.empty(n, wide)
    values.real, values.imag = re, im
    unpacked = right.astype(wide)
    if vectors and not info:
        # For a conjugate pair, LAPACK returns the real part in the first column and the imaginary part in the second.
        first = np.flatnonzero(im > 0)
        unpacked[:, first] = right[:, first] + 1j * right[:, first + 1]
        unpacked[:, first + 1] = unpacked[:, first].conj()
    return _scaled(values, shift), unpacked, info


@plans(Geev)
def geev(op: Geev) -> Plan:
    """Called with ``(a, w, v)``."""
    dtype, tag, stage = op.a.dtype, tag_of(op), staged(op.a)
    view_w, view_v = outputs(op, "w", "v")

    def work(a: int, w: int, v: int) -> None:
        matrix = stage(a)
        check_finite(tag, matrix)
        values, vectors, info = _eig(dtype, True, matrix)
        if info:
            raise unconverged(tag, info)
        view_w(w)[...], view_v(v)[...] = values, vectors

    return work


@plans(GeevValues)
def geev_values(op: GeevValues) -> Plan:
    """Called with ``(a, w)``."""
    dtype, tag, stage = op.a.dtype, tag_of(op), staged(op.a)
    (view_w,) = outputs(op, "w")

    def work(a: int, w: int) -> None:
        matrix = stage(a)
        check_finite(tag, matrix)
        values, _, info = _eig(dtype, False, matrix)
        if info:
            raise unconverged(tag, info)
        view_w(w)[...] = values

    return work
