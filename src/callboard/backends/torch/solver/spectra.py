"""Plans of eigenvalues and singular values; of single matrices and of batches alike."""

from typing import Any

from callboard.backends.torch.blas.forms import hermitian
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.solver.checks import checked, finite_plan, tag_of
from callboard.backends.torch.solver.scaling import centred, shifted
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import solver
from callboard.kernel.solver.failures import (
    generalised,
    indefinite,
    too_many,
    unconverged,
    unconverged_off_diagonals,
)

__all__ = ["general", "generalised_pencil", "some", "some_in_range", "symmetric", "values", "vectors"]


def _spectrum(op: Any, a: Tensor) -> tuple[Tensor, Tensor]:
    scaled, exponent = centred(a)
    w, v = torch.linalg.eigh(scaled, UPLO="L" if op.lower else "U")
    return shifted(w, -exponent), v


@plans(solver.Syevd, solver.SyevBatched)
def symmetric(library: TorchLibrary, op: Any) -> Plan:
    """Return eigenvalues and vectors."""
    return finite_plan(library, op, lambda a: _spectrum(op, a), unconverged)


@plans(solver.SyevdValues)
def values(library: TorchLibrary, op: solver.SyevdValues) -> Plan:
    """Return eigenvalues."""
    return finite_plan(library, op, lambda a: _spectrum(op, a)[0], unconverged_off_diagonals)


@plans(solver.SyevdxIndex)
def some(library: TorchLibrary, op: solver.SyevdxIndex) -> Plan:
    """Return eigenvalues by their positions, and their vectors."""

    def work(a: Tensor) -> tuple[Tensor, Tensor]:
        w, v = _spectrum(op, a)
        return w[op.start : op.stop], v[:, op.start : op.stop]

    return finite_plan(library, op, work, unconverged)


@plans(solver.SyevdxRange, sizes=True)
def some_in_range(library: TorchLibrary, op: solver.SyevdxRange) -> Plan:
    """Return eigenvalues of a range, and their vectors; NaN after them where more are asked for."""
    given = op.w if op.w is not None else op.v
    room = None if given is None else given.shape[-1]

    def work(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        w, v = _spectrum(op, a)
        kept = (w > op.low) & (w <= op.high)
        w, v, count = w[kept], v[:, kept], int(kept.sum())
        if room is not None:
            if count > room:
                raise too_many(tag_of(op), count, room)
            w = torch.nn.functional.pad(w, (0, room - count), value=torch.nan)
            v = torch.cat([v, torch.full((v.shape[0], room - count), torch.nan, dtype=v.dtype, device=v.device)], 1)
        return w, v, torch.tensor(count)

    return finite_plan(library, op, work, unconverged)


@plans(solver.Sygvd, solver.SygvdValues)
def generalised_pencil(library: TorchLibrary, op: Any) -> Plan:
    """Return eigenvalues of a pair of matrices, by the Cholesky factor of the second."""
    only_values = isinstance(op, solver.SygvdValues)

    def full(x: Tensor) -> Tensor:
        return hermitian(x.tril() if op.lower else x.triu())

    def work(a: Tensor, b: Tensor) -> Any:
        n = a.shape[0]
        factor, info = torch.linalg.cholesky_ex(full(b))
        checked(tag_of(op), torch.where(info > 0, info + n, 0), generalised(n, indefinite))
        if op.itype == 1:
            half = torch.linalg.solve_triangular(factor, full(a), upper=False)
            inner = torch.linalg.solve_triangular(factor, half.mH, upper=False)
        else:
            inner = factor.mH @ full(a) @ factor
        w, y = torch.linalg.eigh(inner)
        if only_values:
            return w
        back = factor @ y if op.itype == 3 else torch.linalg.solve_triangular(factor.mH, y, upper=True)
        return w, back

    return finite_plan(library, op, work, unconverged_off_diagonals if only_values else unconverged)


@plans(solver.Geev, solver.GeevValues)
def general(library: TorchLibrary, op: Any) -> Plan:
    """Return eigenvalues of a general matrix, complex, and vectors."""
    only_values = isinstance(op, solver.GeevValues)

    def work(a: Tensor) -> Any:
        if not a.numel():
            return a.new_empty(0) if only_values else (a.new_empty(0), a)
        scaled, exponent = centred(a)
        if only_values:
            return shifted(torch.linalg.eigvals(scaled), -exponent)
        w, v = torch.linalg.eig(scaled)
        return shifted(w, -exponent), v

    return finite_plan(library, op, work, unconverged)


@plans(solver.Svd, solver.SvdValues, solver.GesvdjBatched, solver.GesvdjValuesBatched)
def vectors(library: TorchLibrary, op: Any) -> Plan:
    """Return singular values, and vectors on both sides."""
    only_values = isinstance(op, solver.SvdValues | solver.GesvdjValuesBatched)

    def work(a: Tensor) -> Any:
        scaled, exponent = centred(a)
        if only_values:
            return shifted(torch.linalg.svdvals(scaled), -exponent)
        u, s, vt = torch.linalg.svd(scaled, full_matrices=getattr(op, "full_matrices", False))
        return u, shifted(s, -exponent), vt

    return finite_plan(library, op, work, unconverged_off_diagonals)
