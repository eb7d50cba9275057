"""Plans of BLAS level 2: a matrix, in any form of storage, and vectors."""

from typing import Any

from callboard.backends.torch.blas.forms import (
    hermitian,
    lincomb,
    merged,
    packing,
    symmetric,
    triangle,
    turned,
    wide,
)
from callboard.backends.torch.conversion import added
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import blas
from callboard.kernel.blas.symmetric import SymmetricProduct
from callboard.kernel.blas.triangular import TriangularVector

__all__ = ["banded", "general", "rank_1", "structured", "triangular", "updated"]


@plans(blas.Gemv)
def general(library: TorchLibrary, op: blas.Gemv) -> Plan:
    """Return a product of a matrix and a vector."""

    def work(a: Tensor, x: Tensor, y: Tensor | None, alpha: Any, beta: Any) -> Tensor:
        return lincomb(alpha, lambda: turned(wide(a), op.transpose, op.conj) @ wide(x), beta, y)

    return library.planned(op, work)


@plans(blas.Gbmv)
def banded(library: TorchLibrary, op: blas.Gbmv) -> Plan:
    """Return a product of a matrix that is stored as its diagonals."""
    width, n = op.a.shape
    above = width - 1 - op.below
    rows = n if op.rows is None else op.rows

    def full(a: Tensor) -> Tensor:
        made = torch.zeros(rows, n, dtype=a.dtype, device=a.device)
        for distance in range(-min(op.below, rows - 1), min(above, n - 1) + 1):
            diagonal = torch.diagonal(made, distance)
            first = max(distance, 0)
            diagonal.copy_(a[above - distance, first : first + diagonal.shape[0]])
        return made

    def work(a: Tensor, x: Tensor, y: Tensor | None, alpha: Any, beta: Any) -> Tensor:
        return lincomb(alpha, lambda: turned(full(a), op.transpose, op.conj) @ x, beta, y)

    return library.planned(op, work)


@plans(blas.Hbmv, blas.Hemv, blas.Hpmv, blas.Sbmv, blas.Spmv, blas.Symv)
def structured(library: TorchLibrary, op: SymmetricProduct) -> Plan:
    """Return a product of a symmetric or Hermitian matrix and a vector."""
    whole = hermitian if op.hermitian else symmetric

    def work(a: Tensor, x: Tensor, y: Tensor | None, alpha: Any, beta: Any) -> Tensor:
        half = triangle(a, x.shape[0], op.lower, op.storage, op.hermitian)
        return lincomb(alpha, lambda: whole(half) @ x, beta, y)

    return library.planned(op, work)


@plans(blas.Tbmv, blas.Tbsv, blas.Tpmv, blas.Tpsv, blas.Trmv, blas.Trsv)
def triangular(library: TorchLibrary, op: TriangularVector) -> Plan:
    """Return a product with a triangular matrix, or the solution of a system with one."""
    solves = isinstance(op, blas.Tbsv | blas.Tpsv | blas.Trsv)

    def work(a: Tensor, x: Tensor) -> Tensor:
        n = x.shape[0]
        half = triangle(a, n, op.lower, op.storage, False)
        if op.unit_diagonal:
            half = half - torch.diag(torch.diagonal(half)) + torch.eye(n, dtype=a.dtype, device=a.device)
            half.fill_diagonal_(1)  # also where the diagonal, which is not read, holds NaN
        half = turned(half, op.transpose, op.conj)
        if not solves:
            return half @ x
        upper = op.lower == op.transpose
        return torch.linalg.solve_triangular(half.resolve_conj(), x[:, None], upper=upper)[:, 0]

    return library.planned(op, work)


@plans(blas.Ger, blas.Gerc, blas.Geru)
def rank_1(library: TorchLibrary, op: Any) -> Plan:
    """Return a matrix and an outer product."""

    def work(x: Tensor, y: Tensor, a: Tensor, alpha: Any) -> Tensor:
        return a if alpha == 0 else added(a, alpha * torch.outer(x, y.conj() if isinstance(op, blas.Gerc) else y))

    return library.planned(op, work)


@plans(blas.Her, blas.Her2, blas.Hpr, blas.Hpr2, blas.Spr, blas.Spr2, blas.Syr, blas.Syr2)
def updated(library: TorchLibrary, op: Any) -> Plan:
    """Return a triangle of a matrix and outer products."""
    is_hermitian = isinstance(op, blas.Her | blas.Her2 | blas.Hpr | blas.Hpr2)
    twice = isinstance(op, blas.Her2 | blas.Hpr2 | blas.Spr2 | blas.Syr2)

    def work(*given: Any) -> Tensor:
        *vectors, a, alpha = given
        if alpha == 0:
            return a
        x, y = vectors if twice else (vectors[0], vectors[0])
        x, y = x.resolve_conj(), (y.conj() if is_hermitian else y)
        more = alpha * torch.outer(x, y)
        if twice:
            back = torch.outer(vectors[1], vectors[0].conj() if is_hermitian else vectors[0])
            more = more + (alpha.conjugate() if is_hermitian else alpha) * back
        if not op.packed:
            return merged(a, added(a, more), op.lower, is_hermitian)
        rows, columns = packing(x.shape[0], op.lower, is_hermitian, a.device)
        total = added(a, more[rows, columns])
        return torch.where(rows == columns, total.real + 0j, total) if is_hermitian else total

    return library.planned(op, work)
