"""Decompositions of matrices: Cholesky, QR, singular values, eigenvalues."""

import math
from typing import Literal

from callboard.arrays.handles import cast, submit
from callboard.arrays.linalg.householder import stacked_qr
from callboard.arrays.linalg.matrices import each_matrix, matrices, real_values
from callboard.arrays.linalg.results import EighResult, EigResult, QRResult, SVDResult
from callboard.arrays.manipulation import reshape
from callboard.core.dtype import DTYPES, DType
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel import solver

__all__ = ["cholesky", "eig", "eigh", "eigvals", "eigvalsh", "qr", "svd", "svdvals"]


def cholesky(x: GpuRef[Mode], /, *, upper: bool = False) -> GpuRef[Mode]:
    """The lower (upper) triangular factor of positive definite matrices.

    Raises:
        NumericalError: At the await: one of them is not positive definite.
    """
    a = matrices("cholesky", x, square=True)
    if a.ndim == 2:
        found: GpuRef[Mode] = submit(a, solver.Cholesky(a=a, lower=not upper))
        return found
    if not a.size:
        return a
    flat = reshape(a, (-1, *a.shape[-2:]))
    return reshape(submit(a, solver.PotrfBatched(a=flat, lower=not upper)), a.shape)


def qr(x: GpuRef[Mode], /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult[Mode]:
    """``x = Q @ R``."""
    a = matrices("qr", x)
    m, n = a.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    if math.prod(a.shape[:-2]) > min(m, n) > 0:
        return QRResult(*stacked_qr(a, k))
    return QRResult(
        *each_matrix(
            a, lambda one: submit(one, solver.Qr(a=one, mode=mode, check_finite=False)), lambda _: ((m, k), (k, n))
        )
    )


def svd(x: GpuRef[Mode], /, *, full_matrices: bool = True) -> SVDResult[Mode]:
    """``x = U * S @ Vh``; the singular values descend."""
    a = matrices("svd", x)
    m, n = a.shape[-2:]
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    if a.ndim > 2 and a.size and (m == n or not full_matrices):
        found = submit(a, solver.GesvdjBatched(a=reshape(a, (-1, m, n))))
        batch = a.shape[:-2]
        parts = [reshape(one, (*batch, *one.shape[1:])) for one in found]
        return SVDResult(parts[0], cast(parts[1], a.dtype.real), parts[2])
    u, s, vh = each_matrix(
        a,
        lambda one: submit(one, solver.Svd(a=one, full_matrices=full_matrices)),
        lambda _: ((m, left), (k,), (right, n)),
    )
    return SVDResult(u, real_values(s, a.dtype), vh)


def svdvals(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The singular values, descending."""
    a = matrices("svdvals", x)
    k = min(a.shape[-2:])
    if a.ndim > 2 and a.size:
        found = submit(a, solver.GesvdjValuesBatched(a=reshape(a, (-1, *a.shape[-2:]))))
        return cast(reshape(found, (*a.shape[:-2], k)), a.dtype.real)
    (s,) = each_matrix(a, lambda one: submit(one, solver.SvdValues(a=one)), lambda _: ((k,),))
    return real_values(s, a.dtype)


def eigh(x: GpuRef[Mode], /) -> EighResult[Mode]:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices, by their lower triangles."""
    a = matrices("eigh", x, square=True)
    if a.ndim == 2 or not a.size:
        n = a.shape[-1]
        w, v = each_matrix(a, lambda one: submit(one, solver.Syevd(a=one)), lambda _: ((n,), (n, n)))
        return EighResult(real_values(w, a.dtype), v)
    w, v = submit(a, solver.SyevBatched(a=reshape(a, (-1, *a.shape[-2:]))))
    return EighResult(reshape(w, a.shape[:-1]), reshape(v, a.shape))


def eigvalsh(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The eigenvalues of symmetric or Hermitian matrices, ascending."""
    a = matrices("eigvalsh", x, square=True)
    if a.ndim > 2 and a.size:
        return eigh(a).eigenvalues
    n = a.shape[-1]
    (w,) = each_matrix(a, lambda one: submit(one, solver.SyevdValues(a=one)), lambda _: ((n,),))
    return real_values(w, a.dtype)


def eig(x: GpuRef[Mode], /) -> EigResult[Mode]:
    """Eigenvalues and right eigenvectors of square matrices, always complex (of the array API standard 2025.12)."""
    a = matrices("eig", x, square=True)
    n = a.shape[-1]
    w, v = each_matrix(a, lambda one: submit(one, solver.Geev(a=one)), lambda _: ((n,), (n, n)))
    dtype = _complex(a.dtype)
    return EigResult(cast(w, dtype), cast(v, dtype))


def eigvals(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The eigenvalues of square matrices, always complex (of the array API standard 2025.12)."""
    a = matrices("eigvals", x, square=True)
    n = a.shape[-1]
    (w,) = each_matrix(a, lambda one: submit(one, solver.GeevValues(a=one)), lambda _: ((n,),))
    return cast(w, _complex(a.dtype))


def _complex(dtype: DType) -> DType:
    return dtype if dtype.is_complex else DTYPES["c64" if dtype.itemsize < 8 else "c128"]
