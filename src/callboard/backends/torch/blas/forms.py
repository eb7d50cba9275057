"""What the operands of BLAS stand for: turned and conjugated matrices, triangles in their forms of storage, sums."""

from collections.abc import Callable
from typing import Any

from callboard.backends.torch.conversion import added
from callboard.backends.torch.vendor import Tensor, torch

__all__ = ["hermitian", "lincomb", "merged", "packing", "symmetric", "triangle", "turned", "wide"]


def wide(x: Tensor) -> Tensor:
    """Halves in f32, in which they are multiplied and summed."""
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def turned(x: Tensor, transpose: bool, conj: bool) -> Tensor:
    """``op(x)``."""
    x = x.mT if transpose else x
    return torch.conj(x) if conj and x.is_complex() else x


def lincomb(alpha: Any, product: Callable[[], Tensor], beta: Any, addend: Tensor | None) -> Tensor:
    """``alpha * product() + beta * addend``; what has a factor of 0 is not read.

    Args:
        alpha, beta: Numbers.
        product: Computes the product.
        addend: An array; None where ``beta`` is 0.
    """
    if alpha == 0 and (beta == 0 or addend is None):
        return torch.zeros_like(product())
    total: Tensor = None
    if alpha != 0:
        total = product()
        total = total if alpha == 1 else total * alpha
    if beta != 0 and addend is not None:
        scaled = wide(addend) if beta == 1 else wide(addend) * beta
        total = scaled if total is None else added(total, scaled)
    return total


def packing(n: int, lower: bool, by_columns: bool, where: Any) -> tuple[Tensor, Tensor]:
    """Row and column of each element of a packed triangle."""
    indices = torch.tril_indices if lower != by_columns else torch.triu_indices
    first, second = indices(n, n, device=where)
    return (second, first) if by_columns else (first, second)


def triangle(a: Tensor, n: int, lower: bool, storage: str, by_columns: bool) -> Tensor:
    """The stored triangle as a square matrix, 0 elsewhere.

    Args:
        a: The operand.
        n: Order of the matrix.
        lower: The lower triangle is stored.
        storage: ``"square"``, ``"packed"`` or ``"banded"``.
        by_columns: A packed triangle is stored column by column.
    """
    if storage == "square":
        return torch.tril(a) if lower else torch.triu(a)
    full = torch.zeros(n, n, dtype=a.dtype, device=a.device)
    if storage == "packed":
        full[packing(n, lower, by_columns, a.device)] = a
        return full
    for distance in range(min(a.shape[0], n)):
        if lower:
            torch.diagonal(full, -distance).copy_(a[distance, : n - distance])
        else:
            torch.diagonal(full, distance).copy_(a[a.shape[0] - 1 - distance, distance:])
    return full


def symmetric(half: Tensor) -> Tensor:
    """The symmetric matrix of a triangle."""
    return half + half.mT - torch.diag_embed(torch.diagonal(half, dim1=-2, dim2=-1))


def hermitian(half: Tensor) -> Tensor:
    """The Hermitian matrix of a triangle; the imaginary parts of the diagonal are taken as 0."""
    diagonal = torch.diagonal(half, dim1=-2, dim2=-1)
    strict = half - torch.diag_embed(diagonal)
    return strict + strict.mH + torch.diag_embed(diagonal.real.to(half.dtype))


def merged(a: Tensor, update: Tensor, lower: bool, real_diagonal: bool) -> Tensor:
    """``a`` with the elements of one triangle of ``update``, whose diagonal may have to be real."""
    if real_diagonal:
        diagonal = torch.diagonal(update)
        update = update - torch.diag_embed(diagonal) + torch.diag_embed(diagonal.real.to(update.dtype))
        update = torch.where(torch.eye(a.shape[0], dtype=torch.bool, device=a.device), update.real + 0j, update)
    mask = torch.ones(a.shape, dtype=torch.bool, device=a.device)
    return torch.where(mask.tril() if lower else mask.triu(), update.to(a.dtype), a)
