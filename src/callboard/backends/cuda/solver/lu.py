"""Plans of LU."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.solver.cusolver import TYPES
from callboard.backends.cuda.solver.jobs import Job, Part
from callboard.backends.cuda.solver.plans import SPARE, SolverPlan
from callboard.backends.cuda.solver.scaling import Scales
from callboard.backends.cuda.solver.waiting import solves
from callboard.core.dtype import DTYPES
from callboard.core.operand import Operand
from callboard.kernel.solver import Determinant, Inverse, Lu, LuSolve, Solve
from callboard.kernel.solver.failures import singular

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["TRANSPOSES", "as_output", "determinant", "inverse", "lu", "lu_solve", "right_hand_side", "solve"]

TRANSPOSES = {"n": 0, "t": 1, "c": 2}
"""``cublasOperation_t``."""
WIDE_TO_I32, I32_TO_WIDE, WIDE_TO_WIDE = 1, 2, 3
"""Modes of the kernels that count pivots anew."""


def _load_matrix(job: Job, a: Operand) -> tuple[Part, Callable[[int, int, int], None]]:
    """Load the matrix of an op that may have ``check_finite=False``.

    ``xgetrf`` of small matrices takes a NaN for 0 (cuSOLVER of CUDA 13 on an H100), and gives finite factors or a pivot
    of 0. So it never gets one: :meth:`Job.without_result` writes the NaN of the result.
    """
    return job.load(a, replaces=True)


def _getrf(job: Job, a: Part) -> tuple[Part, Callable[[int], None]]:
    """Room for the pivots (i64, from 1), and ``run(base)``, which factors ``a`` in place."""
    (m, n), kind, anchor = a.layout.shape, TYPES[a.layout.dtype.name], job.solver.anchor
    pivots = job.array(DTYPES["i64"], min(m, n))
    factor = job.routine("xgetrf", (m, n, kind, anchor, m, kind))
    return pivots, lambda base: factor(base, m, n, kind, base + a.at, m, base + pivots.at, kind)


def _getrs(job: Job, transpose: str, a: Part, pivots: Part, b: Part) -> Callable[[int], None]:
    """``run(base)``, which solves in place of ``b``."""
    (n, columns), kind, operation = b.layout.shape, TYPES[a.layout.dtype.name], TRANSPOSES[transpose]
    solver = job.solver
    call = solver.guarded("xgetrs", solver.library.xgetrs)
    if not b.layout.size:
        return lambda base: None

    def run(base: int) -> None:
        call(
            *(solver.handle, solver.params, operation, n, columns, kind, base + a.at, n, base + pivots.at),
            *(kind, base + b.at, n, base + 4 * SPARE),
        )

    return run


def right_hand_side(job: Job, b: Operand) -> tuple[Part, Callable[[int, int, int], None]]:
    """A vector as a matrix of one column."""
    part, load = job.load(b)
    if b.ndim == 2:
        return part, load
    return Part(part.at, job.array(b.dtype, b.size, 1).layout), load


def as_output(job: Job, name: str, part: Part) -> Callable[[int, int, int], None]:
    """Store a matrix; one column if the output is a vector."""
    layout = job.outputs[name]
    return job.store(name, part if layout.ndim == 2 else job.vector_of(part))


@solves(Lu)
def lu(solver: "Cusolver", op: Lu) -> SolverPlan:
    """Called with ``(a, lu, pivots)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    a, load = job.load(op.a)
    rows, factor = _getrf(job, a)
    dtype, count = job.outputs["pivots"].dtype, rows.layout.size
    ours = job.array(dtype, count)
    mode = WIDE_TO_WIDE if dtype is DTYPES["i64"] else WIDE_TO_I32
    count_from_0 = job.kernel("pivots_out", count, rows=count, mode=mode)
    store_lu, store_pivots = job.store("lu", a), job.store("pivots", ours)
    scales = Scales(job, a)
    centre, uncentre = scales.centre(), scales.uncentre()

    def run(native: int, base: int, at_a: int, at_lu: int, at_pivots: int) -> None:
        load(native, base, at_a)
        centre(native, base)
        factor(base)
        uncentre(native, base)
        count_from_0(native, base, x=base + rows.at, y=base + ours.at)
        store_lu(native, base, at_lu)
        store_pivots(native, base, at_pivots)

    return job.plan(run, singular)


@solves(LuSolve)
def lu_solve(solver: "Cusolver", op: LuSolve) -> SolverPlan:
    """Called with ``(lu, pivots, b, x)``."""
    job = Job(solver, op)
    if not op.b.size:
        return job.nothing()
    n, dtype = op.lu.shape[0], op.pivots.dtype
    factors, load_factors = job.load(op.lu)
    ours, load_pivots = job.load(op.pivots)
    b, load_b = right_hand_side(job, op.b)
    pivots = job.array(DTYPES["i64"], n)
    count_from_1 = job.kernel(
        "pivots_in", n, rows=n, cols=n, mode=WIDE_TO_WIDE if dtype is DTYPES["i64"] else I32_TO_WIDE
    )
    substitute = _getrs(job, op.transpose, factors, pivots, b)
    store = as_output(job, "x", b)
    scales = Scales(job, factors, b)
    centre, restore = scales.centre_factors(), scales.restore(n)

    def run(native: int, base: int, at_lu: int, at_pivots: int, at_b: int, at_x: int) -> None:
        load_factors(native, base, at_lu)
        load_pivots(native, base, at_pivots)
        load_b(native, base, at_b)
        count_from_1(native, base, x=base + ours.at, y=base + pivots.at)
        centre(native, base)
        substitute(base)
        restore(native, base)
        store(native, base, at_x)

    return job.plan(run)


@solves(Solve)
def solve(solver: "Cusolver", op: Solve) -> SolverPlan:
    """Called with ``(a, b, x)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    a, load_a = _load_matrix(job, op.a)
    b, load_b = right_hand_side(job, op.b)
    pivots, factor = _getrf(job, a)
    substitute, spread_nan = _getrs(job, "n", a, pivots, b), job.without_result(b)
    store = as_output(job, "x", b)
    scales = Scales(job, a, b)
    equilibrate, restore = scales.equilibrate(), scales.restore(op.a.shape[0])

    def run(native: int, base: int, at_a: int, at_b: int, at_x: int) -> None:
        load_a(native, base, at_a)
        load_b(native, base, at_b)
        equilibrate(native, base)
        factor(base)
        substitute(base)
        restore(native, base)
        spread_nan(native, base)
        store(native, base, at_x)

    return job.plan(run, singular)


@solves(Inverse)
def inverse(solver: "Cusolver", op: Inverse) -> SolverPlan:
    """Called with ``(a, out)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    a, load = _load_matrix(job, op.a)
    pivots, factor = _getrf(job, a)
    b = job.array(op.a.dtype, *op.a.shape)
    identity, substitute, store = job.identity(b), _getrs(job, "n", a, pivots, b), job.store("out", b)
    spread_nan = job.without_result(b)
    scales = Scales(job, a, b)
    equilibrate, restore = scales.equilibrate(), scales.restore(op.a.shape[0])

    def run(native: int, base: int, at_a: int, at_out: int) -> None:
        load(native, base, at_a)
        identity(native, base)
        equilibrate(native, base)
        factor(base)
        substitute(base)
        restore(native, base)
        spread_nan(native, base)
        store(native, base, at_out)

    return job.plan(run, singular)


@solves(Determinant)
def determinant(solver: "Cusolver", op: Determinant) -> SolverPlan:
    """Called with ``(a, out)``."""
    job = Job(solver, op)
    n, dtype = op.a.shape[0], op.a.dtype
    value = job.array(dtype, 1, 1)
    store = job.store("out", job.scalar_of(value))
    if not n:
        one = job.identity(value)

        def empty(native: int, base: int, at_a: int, at_out: int) -> None:
            one(native, base)
            store(native, base, at_out)

        return job.plan(empty)
    a, load = _load_matrix(job, op.a)
    pivots, factor = _getrf(job, a)
    scales, spread_nan = Scales(job, a), job.without_result(value)
    equilibrate = scales.equilibrate()
    product = scales.determinant(a, pivots, value)

    def run(native: int, base: int, at_a: int, at_out: int) -> None:
        load(native, base, at_a)
        equilibrate(native, base)
        factor(base)
        product(native, base)
        spread_nan(native, base)
        store(native, base, at_out)

    return job.plan(run)  # a pivot of 0 is an answer here
