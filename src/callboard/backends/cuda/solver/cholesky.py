"""Plans of Cholesky."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.solver.cusolver import TYPES
from callboard.backends.cuda.solver.jobs import Job, Part, rows
from callboard.backends.cuda.solver.lu import as_output, right_hand_side
from callboard.backends.cuda.solver.plans import SPARE, SolverPlan
from callboard.backends.cuda.solver.waiting import solves
from callboard.kernel.solver import Cholesky, CholeskyInverse, CholeskySolve
from callboard.kernel.solver.failures import indefinite

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["cholesky", "cholesky_inverse", "cholesky_solve", "fill_mode", "keep_triangle"]


LOWER, UPPER = 0, 1
"""``cublasFillMode_t``."""


def fill_mode(lower: bool) -> int:
    """``cublasFillMode_t``."""
    return LOWER if lower else UPPER


def keep_triangle(job: Job, part: Part, lower: bool) -> Callable[[int, int], None]:
    """``run(native, base)``: zeros in the other triangle, of each matrix of a stack."""
    layout = part.layout
    rows, cols = layout.shape[-2:]
    batch = layout.shape[0] if layout.ndim == 3 else 1
    clear = job.kernel(f"triangle_{layout.dtype}", layout.size, rows=rows, cols=cols, batch=batch, mode=int(not lower))
    return lambda native, base: clear(native, base, x=base + part.at)


def _potrs(job: Job, lower: bool, factor: Part, b: Part) -> Callable[[int], None]:
    (n, columns), kind, mode = b.layout.shape, TYPES[b.layout.dtype.name], fill_mode(lower)
    solver = job.solver
    call = solver.guarded("xpotrs", solver.library.xpotrs)

    def run(base: int) -> None:
        call(
            *(solver.handle, solver.params, mode, n, columns, kind, base + factor.at, n),
            *(kind, base + b.at, n, base + 4 * SPARE),
        )

    return run


@solves(Cholesky)
def cholesky(solver: "Cusolver", op: Cholesky) -> SolverPlan:
    """Called with ``(a, out)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    # The routine is faster with a lower factor (H200, 4096 x 4096 f32, with the copies: 1.9 ms against 4.9). Stored by
    # rows the matrix is its conjugate to the routine, whose lower factor by columns is the upper one of it by rows.
    n, kind = op.a.shape[0], TYPES[op.a.dtype.name]
    a, load = job.load(op.a) if op.lower else job.load(op.a, rows(op.a.layout))
    factor = job.routine("xpotrf", (LOWER, n, kind, solver.anchor, n, kind))
    clear, store = keep_triangle(job, a, True), job.store("out", a)

    def run(native: int, base: int, at_a: int, at_out: int) -> None:
        load(native, base, at_a)
        factor(base, LOWER, n, kind, base + a.at, n, kind)
        clear(native, base)
        store(native, base, at_out)

    return job.plan(run, indefinite)


@solves(CholeskySolve)
def cholesky_solve(solver: "Cusolver", op: CholeskySolve) -> SolverPlan:
    """Called with ``(factor, b, x)``."""
    job = Job(solver, op)
    if not op.b.size:
        return job.nothing()
    factor, load_factor = job.load(op.factor)
    b, load_b = right_hand_side(job, op.b)
    substitute, store = _potrs(job, op.lower, factor, b), as_output(job, "x", b)

    def run(native: int, base: int, at_factor: int, at_b: int, at_x: int) -> None:
        load_factor(native, base, at_factor)
        load_b(native, base, at_b)
        substitute(base)
        store(native, base, at_x)

    return job.plan(run)


@solves(CholeskyInverse)
def cholesky_inverse(solver: "Cusolver", op: CholeskyInverse) -> SolverPlan:
    """Called with ``(factor, out)``."""
    job = Job(solver, op)
    if not op.factor.size:
        return job.nothing()
    factor, load = job.load(op.factor)
    b = job.array(op.factor.dtype, *op.factor.shape)
    identity, substitute, store = job.identity(b), _potrs(job, op.lower, factor, b), job.store("out", b)

    def run(native: int, base: int, at_factor: int, at_out: int) -> None:
        load(native, base, at_factor)
        identity(native, base)
        substitute(base)
        store(native, base, at_out)

    return job.plan(run)
