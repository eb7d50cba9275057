"""``CudaSolver``: linear algebra on a GPU through cuSOLVER."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.solver import batched, cholesky, eigen, lu, qr, sparse, svd
from callboard.backends.cuda.solver.cusolver import Cusolver
from callboard.backends.cuda.solver.jobs import Plan
from callboard.backends.cuda.stream import CudaStream
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import Library, launches, prepares
from callboard.core.op import Op, info_of
from callboard.core.operand import Placeholder
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
        layout = getattr(getattr(op, field.name), "layout", None)
        if layout is not None and max(layout.shape, default=0) > INT_MAX:
            return f"{field.name} is {layout!r}; cuSOLVER counts at most {INT_MAX} rows or columns"
    return None


def svd_refused(op: messages.Svd | messages.SvdValues) -> str | None:
    """Why not, of singular values."""
    return svd.no_division(op) or too_large(op)


class CudaSolver(Library):
    """Serves :mod:`callboard.kernel.solver`: cuSOLVER and, for triangular solves and some batches, cuBLAS.

    Plans are made on the host's helper thread, with a handle of their own to ask for sizes. LU, Cholesky and QR are
    enqueued and can be captured in a graph (on addresses of a workspace that later plans may replace). The routines for
    eigenvalues and singular values (``xsyevd``, ``xgesvd``, ``xgeev``, and the Jacobi methods) work in part on the
    calling thread and hold it for most of their time, the admission of other ops with it; they cannot be captured.
    """

    name = "solver"
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.solver = Cusolver(device, stream)

    def warm_up(self) -> None:
        """Load our kernels and the library's for a first factorisation."""
        a = Placeholder(layout_of(DTYPES["f32"], (32, 32)))
        lu.lu(self.solver, messages.Lu(a=a))

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

    @launches(messages.Svd, refuses=svd_refused)
    def svd(self, stream: CudaStream, plan: Plan, a: int, u: int, s: int, vt: int) -> Check:
        return plan(stream, a, u, s, vt)

    @launches(messages.GesvdjBatched, refuses=too_large)
    def svd_batched(self, stream: CudaStream, plan: Plan, a: int, u: int, s: int, vt: int) -> Check:
        return plan(stream, a, u, s, vt)

    @launches(messages.SvdValues, refuses=svd_refused)
    def svd_values(self, stream: CudaStream, plan: Plan, a: int, s: int) -> Check:
        return plan(stream, a, s)

    @launches(messages.Syevd, refuses=too_large)
    def syevd(self, stream: CudaStream, plan: Plan, a: int, w: int, v: int) -> Check:
        return plan(stream, a, w, v)

    @launches(messages.SyevdxIndex, messages.Geev, messages.SyevBatched, refuses=too_large)
    def eigen(self, stream: CudaStream, plan: Plan, a: int, w: int, v: int) -> Check:
        return plan(stream, a, w, v)

    @launches(messages.SyevdxRange, refuses=too_large)
    def eigen_range(self, stream: CudaStream, plan: Plan, a: int, w: int, v: int, found: int) -> Check:
        return plan(stream, a, w, v, found)

    @launches(messages.SyevdValues, messages.GeevValues, refuses=too_large)
    def eigenvalues(self, stream: CudaStream, plan: Plan, a: int, w: int) -> Check:
        return plan(stream, a, w)

    @launches(messages.Sygvd, refuses=too_large)
    def sygvd(self, stream: CudaStream, plan: Plan, a: int, b: int, w: int, v: int) -> Check:
        return plan(stream, a, b, w, v)

    @launches(messages.SparseQr, messages.SparseCholesky, refuses=too_large)
    def sparse(self, stream: CudaStream, plan: Plan, values: int, offsets: int, indices: int, b: int, x: int) -> Check:
        return plan(stream, values, offsets, indices, b, x)
