"""Plans of singular values."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.solver.lapack import Array, Work, check_finite, lapack, name_of, outputs, staged, tag_of
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.solver import Svd, SvdValues
from callboard.kernel.solver.failures import unconverged_off_diagonals

__all__ = ["gesdd", "svd", "svd_values"]

Plan = Callable[..., None]


def gesdd(dtype: DType, job: str, a: Array, s: Array, u: Array, vt: Array) -> int:
    """Divide and conquer; destroys ``a``. ``info``."""
    (m, n), (low, high) = a.shape, sorted(a.shape)
    real: tuple[Any, ...] = ()
    if dtype.is_complex:
        length = 7 * low if job == "N" else low * max(5 * low + 7, 2 * high + 2 * low + 1)
        real = (np.empty(max(length, 1), dtype.real.np),)
    whole = np.empty(8 * low, np.int32)
    name = name_of(dtype, "gesdd")
    return lapack(
        name, job, m, n, a, m, s, u, max(u.shape[0], 1), vt, max(vt.shape[0], 1), Work(dtype.np), *real, whole
    )


def _gesvd(dtype: DType, job: str, a: Array, s: Array, u: Array, vt: Array) -> int:
    """QR iteration; destroys ``a``. ``info``."""
    m, n = a.shape
    real = (np.empty(5 * min(m, n), dtype.real.np),) if dtype.is_complex else ()
    name = name_of(dtype, "gesvd")
    return lapack(name, job, job, m, n, a, m, s, u, max(u.shape[0], 1), vt, max(vt.shape[0], 1), Work(dtype.np), *real)


@plans(Svd)
def svd(op: Svd) -> Plan:
    """Called with ``(a, u, s, vt)``."""
    dtype, tag, stage = op.a.dtype, tag_of(op), staged(op.a)
    view_u, view_s, view_vt = outputs(op, "u", "s", "vt")
    run = _gesvd if op.method == "gesvd" else gesdd
    job = "A" if op.full_matrices else "S"

    def work(a: int, u: int, s: int, vt: int) -> None:
        matrix = stage(a)
        check_finite(tag, matrix)
        out_u, out_s, out_vt = view_u(u), view_s(s), view_vt(vt)
        left = np.eye(*out_u.shape, dtype=dtype.np, order="F")  # of an empty matrix, any orthonormal columns
        right = np.eye(*out_vt.shape, dtype=dtype.np, order="F")
        values = np.empty(out_s.shape, dtype.real.np)
        if matrix.size:
            info = run(dtype, job, matrix, values, left, right)
            if info:
                raise unconverged_off_diagonals(tag, info)
        out_u[...], out_s[...], out_vt[...] = left, values, right

    return work


@plans(SvdValues)
def svd_values(op: SvdValues) -> Plan:
    """Called with ``(a, s)``."""
    dtype, tag, stage = op.a.dtype, tag_of(op), staged(op.a)
    (view_s,) = outputs(op, "s")
    run = _gesvd if op.method == "gesvd" else gesdd
    none = np.empty((0, 0), dtype.np)

    def work(a: int, s: int) -> None:
        matrix = stage(a)
        check_finite(tag, matrix)
        out = view_s(s)
        values = np.empty(out.shape, dtype.real.np)
        if matrix.size:
            info = run(dtype, "N", matrix, values, none, none)
            if info:
                raise unconverged_off_diagonals(tag, info)
        out[...] = values

    return work
