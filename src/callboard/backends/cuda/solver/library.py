"""``CudaSolver``: linear algebra on a GPU through cuSOLVER."""

from typing import TYPE_CHECKING

from callboard.backends.cuda.solver import lu
from callboard.backends.cuda.solver.cusolver import Cusolver
from callboard.backends.cuda.solver.plans import SolverPlan
from callboard.backends.cuda.stream import CudaStream
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import AnyOp, Library, modules_of
from callboard.core.operand import Placeholder
from callboard.kernel.solver import Lu
from callboard.kernel.solver.checks import too_large

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSolver"]


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
    modules = modules_of(__name__)
    refuses = staticmethod(too_large)
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.solver = Cusolver(device, stream)

    def prepare(self, op: AnyOp) -> SolverPlan:
        plan: SolverPlan = self.makers[type(op)](self.solver, op)
        return plan

    def warm_up(self) -> None:
        """Load our kernels and make a first workspace."""
        a = Placeholder(layout_of(DTYPES["f32"], (32, 32)))
        lu.lu(self.solver, Lu(a=a)).close()

    def close(self) -> None:
        self.solver.close()
