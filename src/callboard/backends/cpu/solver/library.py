"""``CpuSolver``: the modules whose plans serve the messages."""

from collections.abc import Callable

from callboard.backends.cpu.blas.routines import routine
from callboard.backends.cpu.library import CpuLibrary
from callboard.backends.cpu.solver import sparse
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.library import modules_of, plans
from callboard.kernel.solver import SparseCholesky, SparseLu, SparseQr
from callboard.kernel.solver.checks import too_large

__all__ = ["CpuSolver"]


Plan = Callable[..., None]


class CpuSolver(CpuLibrary):
    """Serves :mod:`callboard.kernel.solver` with the LAPACK that SciPy brings, sparse matrices with its SuperLU."""

    name = "solver"
    implementation = "scipy"
    modules = modules_of(__name__)
    brief = False  # what a factorisation or product of sparse matrices costs depends on the entries

    refuses = staticmethod(too_large)

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self.factorisations = sparse.Kept()
        routine("dgetrf")  # imports SciPy now and not inside the first op

    @plans(SparseCholesky)
    def sparse_cholesky(self, op: SparseCholesky) -> Plan:
        return sparse.cholesky(self.factorisations, op)

    @plans(SparseLu, SparseQr)
    def sparse_solve(self, op: SparseLu | SparseQr) -> Plan:
        return sparse.solve(self.factorisations, op)
