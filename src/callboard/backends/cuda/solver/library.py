"""``CudaSolver``: linear algebra on a GPU through cuSOLVER."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.solver import batched, cholesky, eigen, lu, qr, sparse, svd
from callboard.backends.cuda.solver.cusolver import Cusolver
from callboard.backends.cuda.solver.plans import SolverPlan
from callboard.backends.cuda.solver.waiting import AHEAD, waits
from callboard.backends.cuda.stream import CudaStream
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import Entry, Library
from callboard.core.op import Op
from callboard.core.operand import Placeholder
from callboard.kernel import solver as messages
from callboard.kernel.solver.checks import too_large

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSolver"]

PLANS: dict[type[Op[Any, Any]], Callable[[Cusolver, Any], SolverPlan]] = {
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
    messages.SparseCholesky: sparse.sparse_cholesky,
    messages.SparseLu: sparse.sparse_lu,
    messages.SparseQr: sparse.sparse_qr,
    messages.Svd: svd.svd,
    messages.SvdValues: svd.svd_values,
    messages.SyevBatched: batched.syev_batched,
    messages.Syevd: eigen.syevd,
    messages.SyevdValues: eigen.syevd_values,
    messages.SyevdxIndex: eigen.syevdx_index,
    messages.SyevdxRange: eigen.syevdx_range,
    messages.Sygvd: eigen.sygvd,
    messages.SygvdValues: eigen.sygvd_values,
}
"""From the message, with placeholders for operands, to its plan."""


def refuses(op: Op[Any, Any]) -> str | None:
    """The reason why an op is unsupported, with a cure; None if it is supported."""
    if isinstance(op, messages.Svd | messages.SvdValues) and op.method == "gesdd":
        return "method is 'gesdd'; cuSOLVER has none, take 'gesvd' or 'gesvdj'"
    return too_large(op)


class CudaSolver(Library):
    """Serves :mod:`callboard.kernel.solver`: cuSOLVER, cuBLAS for triangular solves and some batches, cuDSS if there.

    Plans are made on the host's helper thread, with a handle of their own for size queries. LU, Cholesky, QR, symmetric
    eigenvalues of matrices that are not large, and singular values of batches of small ones are enqueued, and can be
    recorded in graphs. Routines that block the calling thread (H200, 1024 x 1024 f32: ``xgesvd`` for 189 of 194 ms,
    ``xgeev`` for all of its time; :mod:`callboard.backends.cuda.solver.waiting` has the list) are called on the helper
    thread before the launch, which copies their results. Meanwhile the library's other ops wait, those of other
    libraries do not. Such ops cannot be recorded.
    """

    name = "solver"
    max_plans = 512
    table: ClassVar = {
        op: Entry(
            lambda library, op: PLANS[type(op)](library.solver, op),
            sizes=op in AHEAD,
            always=waits,
            refuses=refuses,
        )
        for op in PLANS
    }
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.solver = Cusolver(device, stream)

    def warm_up(self) -> None:
        """Load our kernels and make a first workspace."""
        a = Placeholder(layout_of(DTYPES["f32"], (32, 32)))
        lu.lu(self.solver, messages.Lu(a=a)).close()

    def close(self) -> None:
        self.solver.close()
