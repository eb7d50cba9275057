"""Plans of LU, Cholesky, QR and least squares; of single matrices and of batches alike."""

from typing import Any

from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.solver.checks import (
    checked,
    columns,
    finite_plan,
    rows_of_pivots,
    tag_of,
)
from callboard.backends.torch.solver.scaling import Equilibrated, centred, product, shifted
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import solver
from callboard.kernel.solver.failures import deficient, indefinite, singular

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "determinant",
    "householder",
    "householder_columns",
    "householder_product",
    "inverse",
    "least_squares",
    "lu",
    "lu_solve",
    "qr",
    "solve",
]


def _factored(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Factors, pivots from 1, infos; of a matrix at an end of the range as of one in its middle."""
    if not a.numel():
        shape = (*a.shape[:-2], min(a.shape[-2:]))
        empty = torch.zeros(shape, dtype=torch.int32, device=a.device)
        return a, empty, torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)
    a, exponent = centred(a)
    found, pivots, infos = torch.linalg.lu_factor_ex(a)
    if exponent:
        upper = torch.ones(a.shape[-2:], dtype=torch.bool, device=a.device).triu()
        found = torch.where(upper, shifted(found, -exponent), found)
    return found, pivots, infos


@plans(solver.Lu, solver.GetrfBatched)
def lu(library: TorchLibrary, op: Any) -> Plan:
    """Return packed factors and pivots."""

    def work(a: Tensor) -> tuple[Tensor, Tensor]:
        found, pivots, infos = _factored(a)
        checked(tag_of(op), infos, singular)
        return found, pivots - 1

    return finite_plan(library, op, work)


def _substituted(factors: Tensor, pivots: Tensor, b: Tensor, transpose: str) -> Tensor:
    if not b.numel():
        return b
    if transpose != "t":
        return torch.linalg.lu_solve(factors, pivots, b, adjoint=transpose == "c")
    return torch.linalg.lu_solve(factors, pivots, b.conj().resolve_conj(), adjoint=True).conj()


@plans(solver.LuSolve, solver.GetrsBatched)
def lu_solve(library: TorchLibrary, op: Any) -> Plan:
    """Return solutions by factors."""

    def work(factors: Tensor, pivots: Tensor, b: Tensor) -> Tensor:
        pivots = rows_of_pivots(tag_of(op), pivots, factors.shape[-1])
        right, down = columns(b, factors), 0
        _, exponent = centred(torch.diagonal(factors, dim1=-2, dim2=-1))
        if exponent:
            upper = torch.ones(factors.shape[-2:], dtype=torch.bool, device=b.device).triu()
            factors = torch.where(upper, shifted(factors, exponent), factors)
            right, down = centred(right)
        return shifted(_substituted(factors, pivots, right, op.transpose), exponent - down).reshape(b.shape)

    return finite_plan(library, op, work)


@plans(solver.Solve)
def solve(library: TorchLibrary, op: solver.Solve) -> Plan:
    """Return the solution of a system."""
    return finite_plan(library, op, lambda a, b: _solved(op, a, columns(b, a)).reshape(b.shape))


@plans(solver.Inverse)
def inverse(library: TorchLibrary, op: solver.Inverse) -> Plan:
    """Return the inverse: the solution for the columns of the identity."""
    return finite_plan(library, op, lambda a: _solved(op, a, torch.eye(a.shape[0], dtype=a.dtype, device=a.device)))


def _solved(op: Any, a: Tensor, b: Tensor) -> Tensor:
    if bool(torch.isnan(a).any()):
        return torch.full_like(b, torch.nan)
    system = Equilibrated(a)
    factors, pivots, info = _factored(system.a)
    checked(tag_of(op), info, singular)
    right, begun = system.begin(b)
    return system.finish(_substituted(factors, pivots, right, "n"), begun)


@plans(solver.Determinant)
def determinant(library: TorchLibrary, op: solver.Determinant) -> Plan:
    """Return the determinant."""

    def work(a: Tensor) -> Tensor:
        if bool(torch.isnan(a).any()):
            return torch.full((), torch.nan, dtype=a.dtype)
        system = Equilibrated(a)
        factors, pivots, _ = _factored(system.a)
        exchanges = int((pivots != torch.arange(1, pivots.shape[0] + 1, device=a.device)).sum())
        found = product(torch.diagonal(factors), system.exponent)
        return -found if exchanges % 2 else found

    return finite_plan(library, op, work)


@plans(solver.Cholesky, solver.PotrfBatched)
def cholesky(library: TorchLibrary, op: Any) -> Plan:
    """Return the triangular factor."""

    def work(a: Tensor) -> Tensor:
        found, infos = torch.linalg.cholesky_ex(a if op.lower else a.mH)
        checked(tag_of(op), infos, indefinite)
        return found if op.lower else found.mH

    return finite_plan(library, op, work)


def _by_factor(factor: Tensor, b: Tensor, lower: bool) -> Tensor:
    return torch.cholesky_solve(b, factor.tril() if lower else factor.triu(), upper=not lower) if b.numel() else b


@plans(solver.CholeskySolve, solver.PotrsBatched)
def cholesky_solve(library: TorchLibrary, op: Any) -> Plan:
    """Return solutions by the factor."""
    return finite_plan(library, op, lambda factor, b: _by_factor(factor, columns(b, factor), op.lower).reshape(b.shape))


@plans(solver.CholeskyInverse)
def cholesky_inverse(library: TorchLibrary, op: solver.CholeskyInverse) -> Plan:
    """Return the inverse by the factor."""
    return finite_plan(
        library, op, lambda a: _by_factor(a, torch.eye(a.shape[0], dtype=a.dtype, device=a.device), op.lower)
    )


# -- QR ----------------------------------------------------------------------------------------------------------------


@plans(solver.Qr)
def qr(library: TorchLibrary, op: solver.Qr) -> Plan:
    """Return both factors."""

    def work(a: Tensor) -> tuple[Tensor, Tensor]:
        scaled, exponent = centred(a)
        q, r = torch.linalg.qr(scaled, op.mode)
        return q, shifted(r, -exponent)

    return finite_plan(library, op, work)


@plans(solver.Geqrf, solver.GeqrfBatched)
def householder(library: TorchLibrary, op: Any) -> Plan:
    """Return the factors as LAPACK has them."""

    def work(a: Tensor) -> tuple[Tensor, Tensor]:
        if not a.numel():
            return a, torch.zeros(*a.shape[:-2], min(a.shape[-2:]), dtype=a.dtype, device=a.device)
        return tuple(torch.geqrf(a))

    return finite_plan(library, op, work)


@plans(solver.Orgqr)
def householder_columns(library: TorchLibrary, op: solver.Orgqr) -> Plan:
    """Return columns of Q."""
    wanted = op.infer()["q"].shape[1]

    def work(h: Tensor, tau: Tensor) -> Tensor:
        kept = h[:, : tau.shape[0]]
        padded = torch.nn.functional.pad(kept, (0, wanted - kept.shape[1]))
        return torch.linalg.householder_product(padded, tau) if padded.numel() else padded

    return finite_plan(library, op, work)


@plans(solver.Ormqr)
def householder_product(library: TorchLibrary, op: solver.Ormqr) -> Plan:
    """Return a product with Q."""

    def work(h: Tensor, tau: Tensor, c: Tensor) -> Tensor:
        if not tau.shape[0] or not c.numel():
            return c
        return torch.ormqr(h[:, : tau.shape[0]], tau, c, left=op.side == "left", transpose=op.transpose)

    return finite_plan(library, op, work)


@plans(solver.LeastSquares, solver.GelsBatched)
def least_squares(library: TorchLibrary, op: Any) -> Plan:
    """Return the solutions with the least residual, or the shortest of them."""
    tag = tag_of(op)

    def work(a: Tensor, b: Tensor) -> Tensor:
        right = columns(b, a)
        m, n = a.shape[-2:]
        if not (m and n and right.shape[-1]):
            return torch.zeros(*a.shape[:-2], n, *b.shape[a.ndim - 1 :], dtype=a.dtype, device=a.device)
        (a, exponent), (right, down) = centred(a), centred(right)
        q, r = torch.linalg.qr(a if m >= n else a.mH)
        zero = torch.diagonal(r, dim1=-2, dim2=-1) == 0
        place = torch.arange(1, zero.shape[-1] + 1, device=a.device)
        infos = torch.where(zero, place, zero.shape[-1] + 1).amin(-1)
        checked(tag, torch.where(zero.any(-1), infos, 0), deficient)
        if m >= n:
            found = torch.linalg.solve_triangular(r, q.mH @ right, upper=True)
        else:
            found = q @ torch.linalg.solve_triangular(r.mH, right, upper=False)
        found = shifted(found, exponent - down)
        return found if b.ndim == a.ndim else found[..., 0]

    return finite_plan(library, op, work)
