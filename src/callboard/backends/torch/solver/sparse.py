"""Plans of sparse systems, by dense factors up to an order: PyTorch has no sparse direct solver."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.solver.checks import check_finite, columns, tag_of
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DTYPES
from callboard.core.library import plans
from callboard.kernel import solver
from callboard.kernel.solver.failures import (
    bad_indices,
    hermitian_tolerance,
    not_hermitian,
    sparse_indefinite,
    sparse_singular,
)
from callboard.kernel.solver.transversal import transversal

__all__ = ["DENSE", "definite", "regular"]

DENSE = 4096
"""The largest order of a system that is solved by dense factors: 256 MiB of c128."""


def _too_large(op: Any) -> str | None:
    n = op.a.shape[0]
    return None if n <= DENSE else f"a is of order {n}: PyTorch has no sparse solver, and dense factors end at {DENSE}"


def _dense(tag: str, arrays: Sequence[Tensor]) -> Tensor:
    """The checked matrix."""
    values, indices, offsets = arrays[0], arrays[1].to(torch.int64), arrays[2].to(torch.int64)
    n, count = offsets.shape[0] - 1, values.shape[0]
    starts = offsets.diff()
    bad = int(int(offsets[0]) != 0) + int(int(offsets[-1]) != count) + int((starts < 0).sum())
    bad += int(((indices < 0) | (indices >= n)).sum())
    rows = torch.empty(0)
    if not bad:
        rows = torch.repeat_interleave(torch.arange(n, device=values.device), starts)
        bad = int(((indices.diff() <= 0) & (rows.diff() == 0)).sum())
    if bad:
        raise bad_indices(tag, bad, "offsets and indices")
    found = torch.zeros(n, n, dtype=values.dtype, device=values.device)
    found[rows, indices] = values
    return found


@plans(solver.SparseLu, solver.SparseQr, refuses=_too_large)
def regular(library: TorchLibrary, op: Any) -> Plan:
    """Return the solution by LU."""
    tag = tag_of(op)

    def work(a: Sequence[Tensor], b: Tensor) -> Tensor:
        check_finite(tag, a[0], b)
        matrix = _dense(tag, a)
        if not b.numel():
            return b
        values, indices, offsets = (x.cpu().numpy() for x in a)
        transversal(tag, offsets, indices, values)
        factors, pivots, info = torch.linalg.lu_factor_ex(matrix)
        if int(info):
            raise sparse_singular(tag, 0)
        return torch.linalg.lu_solve(factors, pivots, columns(b, matrix)).reshape(b.shape)

    return library.planned(op, work)


@plans(solver.SparseCholesky, refuses=_too_large)
def definite(library: TorchLibrary, op: solver.SparseCholesky) -> Plan:
    """Return the solution by Cholesky factors."""
    tag = tag_of(op)
    tolerance = hermitian_tolerance(DTYPES[op.b.dtype.name].np)

    def work(a: Sequence[Tensor], b: Tensor) -> Tensor:
        check_finite(tag, a[0], b)
        matrix = _dense(tag, a)
        diagonal = torch.diagonal(matrix).abs().sqrt()
        differing = int(((matrix - matrix.mH).abs() > tolerance * torch.outer(diagonal, diagonal)).sum())
        if differing:
            raise not_hermitian(tag, differing)
        factor, info = torch.linalg.cholesky_ex(matrix)
        if int(info):
            raise sparse_indefinite(tag, 1)
        return torch.cholesky_solve(columns(b, matrix), factor).reshape(b.shape) if b.numel() else b

    return library.planned(op, work)
