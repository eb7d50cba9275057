"""``CudaSolver``: linear algebra on a GPU through cuSOLVER."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.solver import batched, cholesky, eigen, lu, qr, sparse, svd
from callboard.backends.cuda.solver.cusolver import Cusolver
from callboard.backends.cuda.solver.plans import Plan
from callboard.backends.cuda.stream import CudaStream
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import Extents, Library, launches, measures, prepares
from callboard.core.op import Op, info_of
from callboard.core.operand import Compound, Placeholder, operands_of
from callboard.kernel import solver as messages

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSolver"]

Check = Callable[[], None]
INT_MAX = 2**31 - 1

PLANS: dict[type[Op[Any, Any]], Callable[[Cusolver, Any], Plan]] = {
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
    messages.SparseCholesky: sparse.solve,
    messages.SparseQr: sparse.solve,
    messages.Svd: svd.svd,
    messages.SvdValues: svd.svd_values,
    messages.SyevBatched: batched.syev_batched,
    messages.Syevd: eigen.syevd,
    messages.SyevdValues: eigen.syevd_values,
    messages.SyevdxIndex: eigen.syevdx_index,
    messages.SyevdxRange: eigen.syevdx_range,
    messages.Sygvd: eigen.sygvd,
}
"""From the message, with placeholders for operands, to its plan."""


def too_large(op: Op[Any, Any]) -> str | None:
    """Some of the routines count in C ints."""
    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        for operand in operands_of(value).values() if isinstance(value, Compound) else (value,):
            layout = getattr(operand, "layout", None)
            if layout is not None and max(layout.shape, default=0) > INT_MAX:
                return f"{field.name} is {layout!r}; cuSOLVER counts at most {INT_MAX} rows or columns"
    return None


def svd_refused(op: messages.Svd | messages.SvdValues) -> str | None:
    """Why not, of singular values."""
    return svd.no_division(op) or too_large(op)


class CudaSolver(Library):
    """Serves :mod:`callboard.kernel.solver`: cuSOLVER and, for triangular solves and some batches, cuBLAS.

    Plans are made on the host's helper thread, with a handle of their own to ask for sizes. LU, Cholesky and QR are
    enqueued, and can be recorded in graphs. The routines of eigenvalues and singular values work in part on the thread
    that calls them and hold it for most of their time (H200, 1024 x 1024 f32: ``xgesvd`` for 189 of 194 ms, ``xgeev``
    for all of its time); so do the sparse solves. They are called on the helper thread before the launch, which copies
    their results; meanwhile the library's other ops wait, those of other libraries do not. They cannot be recorded.
    """

    name = "solver"
    max_plans = 512
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

    @prepares(*PLANS)
    def plan(self, op: Op[Any, Any]) -> Plan:
        return PLANS[type(op)](self.solver, op)

    @launches(messages.Lu, messages.GetrfBatched, refuses=too_large)
    def factor(self, stream: CudaStream, plan: Plan, a: int, lu: int, pivots: int) -> Check:
        return plan(stream, a, lu, pivots)

    @launches(messages.LuSolve, messages.GetrsBatched, refuses=too_large)
    def substitute(self, stream: CudaStream, plan: Plan, lu: int, pivots: int, b: int, x: int) -> Check:
        return plan(stream, lu, pivots, b, x)

    @launches(messages.Solve, messages.LeastSquares, messages.GelsBatched, refuses=too_large)
    def solve(self, stream: CudaStream, plan: Plan, a: int, b: int, x: int) -> Check:
        return plan(stream, a, b, x)

    @launches(messages.CholeskySolve, messages.PotrsBatched, refuses=too_large)
    def cholesky_solve(self, stream: CudaStream, plan: Plan, factor: int, b: int, x: int) -> Check:
        return plan(stream, factor, b, x)

    @launches(messages.CholeskyInverse, refuses=too_large)
    def cholesky_inverse(self, stream: CudaStream, plan: Plan, factor: int, out: int) -> Check:
        return plan(stream, factor, out)

    @launches(messages.Inverse, messages.Determinant, messages.Cholesky, messages.PotrfBatched, refuses=too_large)
    def from_one(self, stream: CudaStream, plan: Plan, a: int, out: int) -> Check:
        return plan(stream, a, out)

    @launches(messages.Qr, refuses=too_large)
    def qr(self, stream: CudaStream, plan: Plan, a: int, q: int, r: int) -> Check:
        return plan(stream, a, q, r)

    @launches(messages.Geqrf, messages.GeqrfBatched, refuses=too_large)
    def reflections(self, stream: CudaStream, plan: Plan, a: int, h: int, tau: int) -> Check:
        return plan(stream, a, h, tau)

    @launches(messages.Orgqr, refuses=too_large)
    def form_q(self, stream: CudaStream, plan: Plan, h: int, tau: int, q: int) -> Check:
        return plan(stream, h, tau, q)

    @launches(messages.Ormqr, refuses=too_large)
    def apply_q(self, stream: CudaStream, plan: Plan, h: int, tau: int, c: int, out: int) -> Check:
        return plan(stream, h, tau, c, out)

    @measures(messages.Svd, always=True)
    def begin_svd(self, plan: Plan, a: int, u: int | None, s: int | None, vt: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, u, s, vt)

    @launches(messages.Svd, refuses=svd_refused, captures=False)
    def svd(self, stream: CudaStream, plan: Plan, a: int, u: int, s: int, vt: int) -> Check:
        return plan.end(stream, a, u, s, vt)

    @measures(messages.GesvdjBatched, always=True)
    def begin_svd_batched(self, plan: Plan, a: int, u: int | None, s: int | None, vt: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, u, s, vt)

    @launches(messages.GesvdjBatched, refuses=too_large, captures=False)
    def svd_batched(self, stream: CudaStream, plan: Plan, a: int, u: int, s: int, vt: int) -> Check:
        return plan.end(stream, a, u, s, vt)

    @measures(messages.SvdValues, always=True)
    def begin_svd_values(self, plan: Plan, a: int, s: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, s)

    @launches(messages.SvdValues, refuses=svd_refused, captures=False)
    def svd_values(self, stream: CudaStream, plan: Plan, a: int, s: int) -> Check:
        return plan.end(stream, a, s)

    @measures(messages.Syevd, always=True)
    def begin_syevd(self, plan: Plan, a: int, w: int | None, v: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, w, v)

    @launches(messages.Syevd, refuses=too_large, captures=False)
    def syevd(self, stream: CudaStream, plan: Plan, a: int, w: int, v: int) -> Check:
        return plan.end(stream, a, w, v)

    @measures(messages.SyevdxIndex, messages.Geev, messages.SyevBatched, always=True)
    def begin_eigenpairs(self, plan: Plan, a: int, w: int | None, v: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, w, v)

    @launches(messages.SyevdxIndex, messages.Geev, messages.SyevBatched, refuses=too_large, captures=False)
    def eigenpairs(self, stream: CudaStream, plan: Plan, a: int, w: int, v: int) -> Check:
        return plan.end(stream, a, w, v)

    @measures(messages.SyevdxRange, always=True)
    def begin_eigen_range(self, plan: Plan, a: int, w: int | None, v: int | None, found: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, w, v, found)

    @launches(messages.SyevdxRange, refuses=too_large, captures=False)
    def eigen_range(self, stream: CudaStream, plan: Plan, a: int, w: int, v: int, found: int) -> Check:
        return plan.end(stream, a, w, v, found)

    @measures(messages.SyevdValues, messages.GeevValues, always=True)
    def begin_eigenvalues(self, plan: Plan, a: int, w: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, w)

    @launches(messages.SyevdValues, messages.GeevValues, refuses=too_large, captures=False)
    def eigenvalues(self, stream: CudaStream, plan: Plan, a: int, w: int) -> Check:
        return plan.end(stream, a, w)

    @measures(messages.Sygvd, always=True)
    def begin_sygvd(self, plan: Plan, a: int, b: int, w: int | None, v: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, b, w, v)

    @launches(messages.Sygvd, refuses=too_large, captures=False)
    def sygvd(self, stream: CudaStream, plan: Plan, a: int, b: int, w: int, v: int) -> Check:
        return plan.end(stream, a, b, w, v)

    @measures(messages.SparseQr, messages.SparseCholesky, always=True)
    def begin_sparse(self, plan: Plan, a: list[int], b: int, x: int | None) -> Extents:
        return plan.measure(self.solver.stream, a, b, x)

    @launches(messages.SparseQr, messages.SparseCholesky, refuses=too_large, captures=False)
    def sparse(self, stream: CudaStream, plan: Plan, a: list[int], b: int, x: int) -> Check:
        return plan.end(stream, a, b, x)
