"""``CpuSolver``: which plan serves which message."""

from collections.abc import Callable
from typing import Any, ClassVar

from callboard.backends.cpu.blas.routines import routine
from callboard.backends.cpu.solver import batched, cholesky, eigen, general, lu, qr, sparse, svd
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import AccelDevice, AccelStream, Status
from callboard.core.library import Entry, Library
from callboard.core.op import Op
from callboard.kernel import solver as messages
from callboard.kernel.solver.checks import too_large

__all__ = ["CpuSolver"]

Plan = Callable[..., None]

PLANS: dict[type[Op[Any, Any]], Callable[[Any], Plan]] = {
    messages.Cholesky: cholesky.cholesky,
    messages.CholeskyInverse: cholesky.cholesky_inverse,
    messages.CholeskySolve: cholesky.cholesky_solve,
    messages.Determinant: lu.determinant,
    messages.Geev: general.geev,
    messages.GeevValues: general.geev_values,
    messages.GelsBatched: batched.gels_batched,
    messages.Geqrf: qr.geqrf,
    messages.GeqrfBatched: batched.geqrf_batched,
    messages.GesvdjBatched: batched.gesvdj_batched,
    messages.GesvdjValuesBatched: batched.gesvdj_values_batched,
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
    messages.Svd: svd.svd,
    messages.SvdValues: svd.svd_values,
    messages.SyevBatched: batched.syev_batched,
    messages.Syevd: eigen.syevd,
    messages.SyevdValues: eigen.syevd_values,
    messages.SyevdxIndex: eigen.syevdx_index,
    messages.SyevdxRange: eigen.EigenRange,
    messages.Sygvd: eigen.sygvd,
    messages.SygvdValues: eigen.sygvd_values,
}
"""Maps a message, with placeholders for operands, to its work: a function of the launch arguments."""
SPARSE: dict[type[Op[Any, Any]], Callable[[sparse.Kept, Any], Plan]] = {
    messages.SparseCholesky: sparse.cholesky,
    messages.SparseLu: sparse.solve,
    messages.SparseQr: sparse.solve,
}
"""Ops that share the factorisations of their library."""


class CpuSolver(Library):
    """Serves :mod:`callboard.kernel.solver` with the LAPACK that SciPy brings, sparse matrices with its SuperLU."""

    name = "solver"
    table: ClassVar = {
        op: Entry(
            lambda _, op: PLANS[type(op)](op),
            inline=True,
            sizes=op is messages.SyevdxRange,
            refuses=too_large,
        )
        for op in PLANS
    } | {
        op: Entry(lambda library, op: SPARSE[type(op)](library.factorisations, op), inline=True, refuses=too_large)
        for op in SPARSE
    }

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self.factorisations = sparse.Kept()
        routine("dgetrf")  # imports SciPy now and not inside the first op

    def launch(self, stream: CpuStream, plan: Plan, *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run("scipy", plan, *dynamic)
