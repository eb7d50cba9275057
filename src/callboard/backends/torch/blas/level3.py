"""Plans of BLAS level 3, and of batched products."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.torch.blas.forms import hermitian, lincomb, merged, symmetric, triangle, turned, wide
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import blas

__all__ = ["batched", "grouped", "products", "rank_k", "sums", "triangular", "two_sided"]


def _product(op: Any, a: Tensor, b: Tensor, c: Tensor | None, alpha: Any, beta: Any) -> Tensor:
    a, b = turned(a, op.transpose_a, op.conj_a), turned(b, op.transpose_b, op.conj_b)
    if a.dtype != torch.int8:
        return lincomb(alpha, lambda: wide(a) @ wide(b), beta, c)
    found = (a.to(torch.float64) @ b.to(torch.float64)).to(torch.int64) * int(alpha)  # exact up to 2**39 terms
    return found if c is None or beta == 0 else found + int(beta) * c.to(torch.int64)


@plans(blas.Gemm, blas.GemmStridedBatched)
def products(library: TorchLibrary, op: Any) -> Plan:
    """Return a product, or one for each of a stack."""
    return library.planned(op, lambda a, b, c, alpha, beta: _product(op, a, b, c, alpha, beta))


@plans(blas.GemmBatched)
def batched(library: TorchLibrary, op: blas.GemmBatched) -> Plan:
    """Return the products of two lists."""

    def work(a: Sequence[Tensor], b: Sequence[Tensor], c: Tensor | None, alpha: Any, beta: Any) -> Tensor:
        return _product(op, torch.stack(a), torch.stack(b), c, alpha, beta)

    return library.planned(op, work)


@plans(blas.GemmGrouped)
def grouped(library: TorchLibrary, op: blas.GemmGrouped) -> Plan:
    """Return products of different shapes, one after the other."""

    def work(a: Sequence[Tensor], b: Sequence[Tensor], c: Sequence[Tensor], alpha: Any, beta: Any) -> Any:
        return ([_product(op, x, y, z, alpha, beta) for x, y, z in zip(a, b, c, strict=True)],)

    return library.planned(op, work)


@plans(blas.Geam)
def sums(library: TorchLibrary, op: blas.Geam) -> Plan:
    """Return the sum of two matrices."""

    def work(a: Tensor, b: Tensor, alpha: Any, beta: Any) -> Tensor:
        x, y = turned(a, op.transpose_a, op.conj_a), turned(b, op.transpose_b, op.conj_b)
        return lincomb(alpha, lambda: x, beta, y)

    return library.planned(op, work)


@plans(blas.Her2k, blas.Herk, blas.Syr2k, blas.Syrk)
def rank_k(library: TorchLibrary, op: Any) -> Plan:
    """Return a triangle of a matrix and of products of matrices with transposes."""
    twice = isinstance(op, blas.Her2k | blas.Syr2k)

    def work(*given: Any) -> Tensor:
        *factors, c, alpha, beta = given
        left = [turned(x, op.transpose, op.transpose and op.hermitian) for x in factors]
        right = [turned(x, not op.transpose, op.hermitian and not op.transpose) for x in factors]

        def product() -> Tensor:
            if not twice:
                return alpha * (left[0] @ right[0])
            back = alpha.conjugate() if op.hermitian else alpha
            return alpha * (left[0] @ right[1]) + back * (left[1] @ right[0])

        total = lincomb(0 if alpha == 0 else 1, product, beta, c)
        return merged(c, total, op.lower, op.hermitian)

    return library.planned(op, work)


@plans(blas.Hemm, blas.Symm)
def two_sided(library: TorchLibrary, op: Any) -> Plan:
    """Return a product with a symmetric or Hermitian matrix on one side."""
    whole = hermitian if op.hermitian else symmetric

    def work(a: Tensor, b: Tensor, c: Tensor | None, alpha: Any, beta: Any) -> Tensor:
        full = whole(triangle(a, a.shape[0], op.lower, "square", False))
        return lincomb(alpha, lambda: full @ b if op.left else b @ full, beta, c)

    return library.planned(op, work)


@plans(blas.Trmm, blas.Trsm)
def triangular(library: TorchLibrary, op: Any) -> Plan:
    """Return a product with a triangular matrix on one side, or the solution of systems with one."""
    solves = isinstance(op, blas.Trsm)

    def work(a: Tensor, b: Tensor, alpha: Any) -> Tensor:
        if alpha == 0:
            return torch.zeros_like(b)
        half = triangle(a, a.shape[0], op.lower, "square", False)
        if op.unit_diagonal:
            half.fill_diagonal_(1)
        half = turned(half, op.transpose, op.conj)
        if solves:
            upper = op.lower == op.transpose
            return torch.linalg.solve_triangular(half.resolve_conj(), alpha * b, upper=upper, left=op.left)
        return alpha * (half @ b if op.left else b @ half)

    return library.planned(op, work)
