"""``CpuSolver``: which plan serves which message."""

from collections.abc import Callable
from typing import Any

from callboard.backends.cpu.blas.routines import INT_MAX, routine
from callboard.backends.cpu.solver import batched, cholesky, eigen, lu, qr, sparse, svd
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.library import Extents, Library, launches, measures, prepares
from callboard.core.op import Op, info_of
from callboard.core.operand import Compound, operands_of
from callboard.kernel import solver as messages

__all__ = ["CpuSolver"]

Plan = Callable[..., None]
Check = Callable[[], None]

PLANS: dict[type[Op[Any, Any]], Callable[[Any], Plan]] = {
    messages.Cholesky: cholesky.cholesky,
    messages.CholeskyInverse: cholesky.cholesky_inverse,
    messages.CholeskySolve: cholesky.cholesky_solve,
    messages.Determinant: lu.determinant,
    messages.Geev: eigen.geev,
    messages.GeevValues: eigen.geev_values,
    messages.GelsBatched: batched.gels_batched,
    messages.Geqrf: qr.geqrf,
    messages.GeqrfBatched: batched.geqrf_batched,
    messages.GesvdjBatched: batched.gesvdj_batched,
    messages.GetrfBatched: batched.getrf_batched,
    messages.GetrsBatched: batched.getrs_batched,
    messages.Inverse: lu.inverse,
    messages.LeastSquares: qr.least_squares,
    messages.Lu: lu.lu,
    messages.LuSolve: lu.lu_solve,
    messages.Orgqr: qr.orgqr,
    messages.Ormqr: qr.ormqr,
    messages.PotrfBatched: batched.potrf_batched,
    messages.PotrsBatched: batched.potrs_batched,
    messages.Qr: qr.qr,
    messages.Solve: lu.solve,
    messages.SparseCholesky: sparse.cholesky,
    messages.SparseLu: sparse.solve,
    messages.SparseQr: sparse.solve,
    messages.Svd: svd.svd,
    messages.SvdValues: svd.svd_values,
    messages.SyevBatched: batched.syev_batched,
    messages.Syevd: eigen.syevd,
    messages.SyevdValues: eigen.syevd_values,
    messages.SyevdxIndex: eigen.syevdx_index,
    messages.SyevdxRange: eigen.EigenRange,
    messages.Sygvd: eigen.sygvd,
}
"""From the message, with placeholders for operands, to the work: a function of what its launch is given."""


def too_large(op: Op[Any, Any]) -> str | None:
    """The routines count in C ints."""
    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        for operand in operands_of(value).values() if isinstance(value, Compound) else (value,):
            layout = getattr(operand, "layout", None)
            if layout is not None and max(layout.shape, default=0) > INT_MAX:
                return f"{field.name} is {layout!r}; SciPy's LAPACK counts at most {INT_MAX} rows or columns"
    return None


def svd_refused(op: messages.Svd | messages.SvdValues) -> str | None:
    return svd.no_jacobi(op) or too_large(op)


def syevd_refused(op: messages.Syevd) -> str | None:
    return eigen.no_jacobi(op) or too_large(op)


class CpuSolver(Library):
    """Serves :mod:`callboard.kernel.solver` with the LAPACK that SciPy brings."""

    name = "solver"

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        routine("dgetrf")  # imports SciPy now and not inside the first op

    @prepares(*PLANS, inline=True)
    def plan(self, op: Op[Any, Any]) -> Plan:
        return PLANS[type(op)](op)

    @launches(messages.Lu, messages.GetrfBatched, refuses=too_large)
    def factor(self, stream: CpuStream, plan: Plan, a: int, lu: int, pivots: int) -> Check:
        return stream.run("lapack", plan, a, lu, pivots)

    @launches(messages.LuSolve, messages.GetrsBatched, refuses=too_large)
    def substitute(self, stream: CpuStream, plan: Plan, lu: int, pivots: int, b: int, x: int) -> Check:
        return stream.run("lapack", plan, lu, pivots, b, x)

    @launches(messages.Solve, messages.LeastSquares, messages.GelsBatched, refuses=too_large)
    def solve(self, stream: CpuStream, plan: Plan, a: int, b: int, x: int) -> Check:
        return stream.run("lapack", plan, a, b, x)

    @launches(messages.CholeskySolve, messages.PotrsBatched, refuses=too_large)
    def cholesky_solve(self, stream: CpuStream, plan: Plan, factor: int, b: int, x: int) -> Check:
        return stream.run("lapack", plan, factor, b, x)

    @launches(messages.CholeskyInverse, refuses=too_large)
    def cholesky_inverse(self, stream: CpuStream, plan: Plan, factor: int, out: int) -> Check:
        return stream.run("lapack", plan, factor, out)

    @launches(messages.Inverse, messages.Determinant, messages.Cholesky, messages.PotrfBatched, refuses=too_large)
    def from_one(self, stream: CpuStream, plan: Plan, a: int, out: int) -> Check:
        return stream.run("lapack", plan, a, out)

    @launches(messages.Qr, refuses=too_large)
    def qr(self, stream: CpuStream, plan: Plan, a: int, q: int, r: int) -> Check:
        return stream.run("lapack", plan, a, q, r)

    @launches(messages.Geqrf, messages.GeqrfBatched, refuses=too_large)
    def reflections(self, stream: CpuStream, plan: Plan, a: int, h: int, tau: int) -> Check:
        return stream.run("lapack", plan, a, h, tau)

    @launches(messages.Orgqr, refuses=too_large)
    def form_q(self, stream: CpuStream, plan: Plan, h: int, tau: int, q: int) -> Check:
        return stream.run("lapack", plan, h, tau, q)

    @launches(messages.Ormqr, refuses=too_large)
    def apply_q(self, stream: CpuStream, plan: Plan, h: int, tau: int, c: int, out: int) -> Check:
        return stream.run("lapack", plan, h, tau, c, out)

    @launches(messages.Svd, refuses=svd_refused)
    def svd(self, stream: CpuStream, plan: Plan, a: int, u: int, s: int, vt: int) -> Check:
        return stream.run("lapack", plan, a, u, s, vt)

    @launches(messages.GesvdjBatched, refuses=too_large)
    def svd_batched(self, stream: CpuStream, plan: Plan, a: int, u: int, s: int, vt: int) -> Check:
        return stream.run("lapack", plan, a, u, s, vt)

    @launches(messages.SvdValues, refuses=svd_refused)
    def svd_values(self, stream: CpuStream, plan: Plan, a: int, s: int) -> Check:
        return stream.run("lapack", plan, a, s)

    @launches(messages.Syevd, refuses=syevd_refused)
    def syevd(self, stream: CpuStream, plan: Plan, a: int, w: int, v: int) -> Check:
        return stream.run("lapack", plan, a, w, v)

    @launches(messages.SyevdxIndex, messages.Geev, messages.SyevBatched, refuses=too_large)
    def eigenpairs(self, stream: CpuStream, plan: Plan, a: int, w: int, v: int) -> Check:
        return stream.run("lapack", plan, a, w, v)

    @measures(messages.SyevdxRange)
    def measure_range(self, plan: eigen.EigenRange, a: int, w: int | None, v: int | None, found: int | None) -> Extents:
        return plan.measure(a)

    @launches(messages.SyevdxRange, refuses=too_large)
    def eigen_range(self, stream: CpuStream, plan: Plan, a: int, w: int, v: int, found: int) -> Check:
        return stream.run("lapack", plan, a, w, v, found)

    @launches(messages.SyevdValues, messages.GeevValues, refuses=too_large)
    def eigenvalues(self, stream: CpuStream, plan: Plan, a: int, w: int) -> Check:
        return stream.run("lapack", plan, a, w)

    @launches(messages.Sygvd, refuses=too_large)
    def sygvd(self, stream: CpuStream, plan: Plan, a: int, b: int, w: int, v: int) -> Check:
        return stream.run("lapack", plan, a, b, w, v)

    @launches(messages.SparseLu, messages.SparseQr, messages.SparseCholesky, refuses=too_large)
    def sparse(self, stream: CpuStream, plan: Plan, a: list[int], b: int, x: int) -> Check:
        return stream.run("scipy", plan, a, b, x)
