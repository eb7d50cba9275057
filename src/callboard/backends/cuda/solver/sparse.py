"""Plans of the sparse direct solves: by cuDSS, by cuSOLVER's ``csrlsvqr``, and without cuDSS by its ``csrlsvchol``.

All of them work before the launch, which copies the result: cuSOLVER's wait for the device, and cuDSS analyses on the
host. Since one waits anyway, one looks first whether the arrays are a matrix at all: an index out of range would let
the routine write beside its memory.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from callboard.backends.cuda.solver.cusolver import name_of
from callboard.backends.cuda.solver.direct import by_cudss
from callboard.backends.cuda.solver.jobs import Job
from callboard.backends.cuda.solver.lu import as_output
from callboard.backends.cuda.solver.plans import SolverPlan
from callboard.backends.cuda.solver.system import System
from callboard.backends.cuda.solver.waiting import solves
from callboard.core.errors import BackendUnavailable
from callboard.kernel.solver import SparseCholesky, SparseLu, SparseQr
from callboard.kernel.solver.failures import sparse_indefinite, sparse_singular

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["sparse_cholesky", "sparse_lu", "sparse_qr"]

REORDER = 1
"""Symmetric reverse Cuthill-McKee: less fill-in than the order as given."""
Solve = Callable[[int, int], None]
"""``solve(native, base)``: from the system to its solution, in the workspace."""


@solves(SparseLu)
def sparse_lu(solver: "Cusolver", op: SparseLu) -> SolverPlan:
    """Called with ``(a, b, x)``."""
    try:
        cudss = solver.cudss()
    except BackendUnavailable as e:
        raise BackendUnavailable(f"{e}; without it take solver.sparse_qr") from None
    return _plan(solver, op, False, lambda job, system: by_cudss(job, system, cudss))


@solves(SparseCholesky)
def sparse_cholesky(solver: "Cusolver", op: SparseCholesky) -> SolverPlan:
    """Called with ``(a, b, x)``."""
    try:
        cudss = solver.cudss()
    except BackendUnavailable:  # cuSOLVER can do it, too
        return _plan(solver, op, True, _by_cusolver)
    return _plan(solver, op, True, lambda job, system: by_cudss(job, system, cudss))


@solves(SparseQr)
def sparse_qr(solver: "Cusolver", op: SparseQr) -> SolverPlan:
    """Called with ``(a, b, x)``."""
    return _plan(solver, op, False, _by_cusolver)


def _plan(
    solver: "Cusolver",
    op: SparseLu | SparseQr | SparseCholesky,
    hermitian: bool,
    method: Callable[[Job, System], Solve],
) -> SolverPlan:
    job = Job(solver, op)
    system = System(job, op.a, op.b, hermitian)
    solve, store = method(job, system), as_output(job, "x", system.x)

    def run(native: int, base: int, at_a: list[int], at_b: int, at_x: int) -> None:
        system.load(native, base, at_a, at_b)
        if system.x.layout.size:
            solve(native, base)

    def end(native: int, base: int, at_a: list[int], at_b: int, at_x: int) -> None:
        store(native, base, at_x)

    return job.plan(run, end=end)


def _by_cusolver(job: Job, system: System) -> Solve:
    """One right-hand side after the other; reports a singular matrix in host memory."""
    (n, columns), dtype = system.x.layout.shape, system.x.layout.dtype
    library, handle, description = job.solver.sparse()
    name = name_of(dtype, "csrlsvchol" if system.hermitian else "csrlsvqr")
    call = job.solver.guarded(name, getattr(library, name))
    step, lists = n * dtype.itemsize, system.structure.at

    def solve(native: int, base: int) -> None:
        system.transversal(native, base, None)
        told = np.full(1, -1, np.int32)
        for column in range(columns):
            call(
                *(handle, n, system.count, description, base + system.values.at, base + lists),
                *(base + lists + 4 * (n + 1), base + system.b.at + column * step, 0.0, REORDER),
                *(base + system.x.at + column * step, told.ctypes.data),
            )
            if told[0] >= 0:
                raise sparse_indefinite(job.tag, 1) if system.hermitian else sparse_singular(job.tag, 0)

    return solve
