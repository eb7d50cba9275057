"""Plans of the batched ops: cuBLAS has LU and QR, cuSOLVER the others."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.solver.cholesky import fill_mode, keep_triangle
from callboard.backends.cuda.solver.cusolver import TYPES, name_of
from callboard.backends.cuda.solver.jobs import Job, Part
from callboard.backends.cuda.solver.lu import TRANSPOSES
from callboard.backends.cuda.solver.plans import SolverPlan, Step
from callboard.backends.cuda.solver.scaling import Scales
from callboard.backends.cuda.solver.waiting import JACOBI_LIMIT, solves
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Operand
from callboard.kernel.solver import (
    GelsBatched,
    GeqrfBatched,
    GesvdjBatched,
    GesvdjValuesBatched,
    GetrfBatched,
    GetrsBatched,
    PotrfBatched,
    PotrsBatched,
    SyevBatched,
)
from callboard.kernel.solver.failures import deficient, indefinite, singular, unconverged

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = [
    "gels_batched",
    "geqrf_batched",
    "gesvdj_batched",
    "gesvdj_values_batched",
    "getrf_batched",
    "getrs_batched",
    "potrf_batched",
    "potrs_batched",
    "syev_batched",
]

I32, I64 = DTYPES["i32"], DTYPES["i64"]
VECTORS, NO_VECTORS = 1, 0
"""``cusolverEigMode_t``."""
REDUCED = 1
"""``econ`` of ``gesvdj``: as many vectors as singular values."""


def _pointers(job: Job, part: Part, batch: int) -> tuple[Part, Callable[[int, int], None]]:
    """Room for the addresses of the items of a stack, and ``run(native, base)``, which writes them."""
    step = part.layout.strides[0] * part.layout.dtype.itemsize
    table = job.array(I64, batch)
    write = job.kernel("pointers", batch, rows=batch, cols=step)
    return table, lambda native, base: write(native, base, x=base + table.at, y=base + part.at)


def _infos(job: Job, batch: int) -> tuple[Part, Callable[[int, int], None]]:
    """Return room for the ``info`` of each item, and ``run(native, base)``, which sums them up in the status."""
    table = job.array(I32, batch)
    sum_up = job.kernel("infos", 1, blocks=1, rows=batch)
    return table, lambda native, base: sum_up(native, base, x=base + table.at)


@solves(GetrfBatched)
def getrf_batched(solver: "Cusolver", op: GetrfBatched) -> SolverPlan:
    """Called with ``(a, lu, pivots)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    (batch, n, _), dtype = op.a.shape, op.a.dtype
    a, load = job.load(op.a)
    table, write = _pointers(job, a, batch)
    infos, sum_up = _infos(job, batch)
    rows, kind = job.array(I32, batch * n), job.outputs["pivots"].dtype
    ours = job.part(layout_of(kind, (batch, n)))
    count_from_0 = job.kernel("pivots_out", batch * n, rows=batch * n, mode=2 if kind is I64 else 0)
    factor = job.cublas(name_of(dtype, "getrf_batched"))
    store_lu, store_pivots = job.store("lu", a), job.store("pivots", ours)
    scales = Scales(job, a)
    centre, uncentre = scales.centre(), scales.uncentre()

    def run(native: int, base: int, at_a: int, at_lu: int, at_pivots: int) -> None:
        load(native, base, at_a)
        write(native, base)
        centre(native, base)
        factor(n, base + table.at, n, base + rows.at, base + infos.at, batch)
        uncentre(native, base)
        sum_up(native, base)
        count_from_0(native, base, x=base + rows.at, y=base + ours.at)
        store_lu(native, base, at_lu)
        store_pivots(native, base, at_pivots)

    return job.plan(run, singular, batch)


@solves(GetrsBatched)
def getrs_batched(solver: "Cusolver", op: GetrsBatched) -> SolverPlan:
    """Called with ``(lu, pivots, b, x)``."""
    job = Job(solver, op)
    if not op.b.size:
        return job.nothing()
    (batch, n, count), dtype, operation = op.b.shape, op.lu.dtype, TRANSPOSES[op.transpose]
    factors, load_factors = job.load(op.lu)
    ours, load_pivots = job.load(op.pivots, layout_of(op.pivots.dtype, (batch, n)))
    b, load_b = job.load(op.b)
    rows = job.array(I32, batch * n)
    count_from_1 = job.kernel("pivots_in", batch * n, rows=batch * n, cols=n, mode=1 if op.pivots.dtype is I64 else 0)
    table_a, write_a = _pointers(job, factors, batch)
    table_b, write_b = _pointers(job, b, batch)
    substitute, store = job.cublas(name_of(dtype, "getrs_batched")), job.store("x", b)
    told = np.zeros(1, np.int32)  # of its arguments only, at the call
    scales = Scales(job, factors, b)
    centre, restore = scales.centre_factors(), scales.restore(n)

    def run(native: int, base: int, at_lu: int, at_pivots: int, at_b: int, at_x: int) -> None:
        load_factors(native, base, at_lu)
        load_pivots(native, base, at_pivots)
        load_b(native, base, at_b)
        count_from_1(native, base, x=base + ours.at, y=base + rows.at)
        write_a(native, base)
        write_b(native, base)
        centre(native, base)
        substitute(
            operation, n, count, base + table_a.at, n, base + rows.at, base + table_b.at, n, told.ctypes.data, batch
        )
        restore(native, base)
        store(native, base, at_x)

    return job.plan(run)


@solves(PotrfBatched)
def potrf_batched(solver: "Cusolver", op: PotrfBatched) -> SolverPlan:
    """Called with ``(a, out)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    (batch, n, _), dtype, fill = op.a.shape, op.a.dtype, fill_mode(op.lower)
    a, load = job.load(op.a)
    table, write = _pointers(job, a, batch)
    infos, sum_up = _infos(job, batch)
    name = name_of(dtype, "potrf_batched")
    factor = solver.guarded(name, getattr(solver.library, name))
    clear, store = keep_triangle(job, a, op.lower), job.store("out", a)

    def run(native: int, base: int, at_a: int, at_out: int) -> None:
        load(native, base, at_a)
        write(native, base)
        factor(solver.handle, fill, n, base + table.at, n, base + infos.at, batch)
        sum_up(native, base)
        clear(native, base)
        store(native, base, at_out)

    return job.plan(run, indefinite, batch)


@solves(PotrsBatched)
def potrs_batched(solver: "Cusolver", op: PotrsBatched) -> SolverPlan:
    """Called with ``(factor, b, x)``; by two triangular solves: ``potrsBatched`` takes one column only."""
    job = Job(solver, op)
    if not op.b.size:
        return job.nothing()
    (batch, n, count), dtype, fill = op.b.shape, op.b.dtype, fill_mode(op.lower)
    factors, load_factors = job.load(op.factor)
    b, load_b = job.load(op.b)
    table_a, write_a = _pointers(job, factors, batch)
    table_b, write_b = _pointers(job, b, batch)
    one, trsm, store = np.ones(1, dtype.np), job.cublas(name_of(dtype, "trsm_batched")), job.store("x", b)
    plain, adjoint = 0, 2 if dtype.is_complex else 1
    operations = (plain, adjoint) if op.lower else (adjoint, plain)

    def run(native: int, base: int, at_factor: int, at_b: int, at_x: int) -> None:
        load_factors(native, base, at_factor)
        load_b(native, base, at_b)
        write_a(native, base)
        write_b(native, base)
        for operation in operations:
            trsm(0, fill, operation, 0, n, count, one.ctypes.data, base + table_a.at, n, base + table_b.at, n, batch)
        store(native, base, at_x)

    return job.plan(run)


@solves(GeqrfBatched)
def geqrf_batched(solver: "Cusolver", op: GeqrfBatched) -> SolverPlan:
    """Called with ``(a, h, tau)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    (batch, m, n), dtype = op.a.shape, op.a.dtype
    a, load = job.load(op.a)
    tau = job.part(layout_of(dtype, (batch, min(m, n))))
    table_a, write_a = _pointers(job, a, batch)
    table_tau, write_tau = _pointers(job, tau, batch)
    factor = job.cublas(name_of(dtype, "geqrf_batched"))
    store_h, store_tau = job.store("h", a), job.store("tau", tau)
    told = np.zeros(1, np.int32)

    def run(native: int, base: int, at_a: int, at_h: int, at_tau: int) -> None:
        load(native, base, at_a)
        write_a(native, base)
        write_tau(native, base)
        factor(m, n, base + table_a.at, m, base + table_tau.at, told.ctypes.data, batch)
        store_h(native, base, at_h)
        store_tau(native, base, at_tau)

    return job.plan(run)


@solves(GelsBatched)
def gels_batched(solver: "Cusolver", op: GelsBatched) -> SolverPlan:
    """Called with ``(a, b, x)``."""
    job = Job(solver, op)
    if not op.a.size or not op.b.size:
        return job.nothing()
    (batch, m, n), count, dtype = op.a.shape, op.b.shape[2], op.a.dtype
    a, load_a = job.load(op.a)
    b, load_b = job.load(op.b)
    table_a, write_a = _pointers(job, a, batch)
    table_b, write_b = _pointers(job, b, batch)
    infos, sum_up = _infos(job, batch)
    solve = job.cublas(name_of(dtype, "gels_batched"))
    store = job.store("x", Part(b.at, layout_of(dtype, (batch, n, count), b.layout.strides)))
    told = np.zeros(1, np.int32)
    scales = Scales(job, a, b)
    centre, restore = scales.centre(), scales.restore(n)

    def run(native: int, base: int, at_a: int, at_b: int, at_x: int) -> None:
        load_a(native, base, at_a)
        load_b(native, base, at_b)
        write_a(native, base)
        write_b(native, base)
        centre(native, base)
        solve(
            *(0, m, n, count, base + table_a.at, m, base + table_b.at, m),
            *(told.ctypes.data, base + infos.at, batch),
        )
        sum_up(native, base)
        restore(native, base)
        store(native, base, at_x)

    return job.plan(run, deficient, batch)


@solves(GesvdjBatched)
def gesvdj_batched(solver: "Cusolver", op: GesvdjBatched) -> SolverPlan:
    """Called with ``(a, u, s, vt)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    (batch, m, n), dtype = op.a.shape, op.a.dtype
    k = min(m, n)
    u, s, v, decompose = _rotations(job, VECTORS, op.a)
    conjugate = job.conjugate(v) if dtype.is_complex else None
    some_u = Part(u.at, layout_of(dtype, (batch, m, k), u.layout.strides))
    step, row, col = v.layout.strides
    some_vt = Part(v.at, layout_of(dtype, (batch, k, n), (step, col, row)))
    store_u, store_s, store_vt = job.store("u", some_u), job.store("s", s), job.store("vt", some_vt)

    def run(native: int, base: int, at_a: int, at_u: int, at_s: int, at_vt: int) -> None:
        decompose(native, base, at_a)
        if conjugate is not None:
            conjugate(native, base)

    def end(native: int, base: int, at_a: int, at_u: int, at_s: int, at_vt: int) -> None:
        store_u(native, base, at_u)
        store_s(native, base, at_s)
        store_vt(native, base, at_vt)

    return job.plan(run, unconverged, batch, end=end)


@solves(GesvdjValuesBatched)
def gesvdj_values_batched(solver: "Cusolver", op: GesvdjValuesBatched) -> SolverPlan:
    """Called with ``(a, s)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    _, s, _, decompose = _rotations(job, NO_VECTORS, op.a)
    store = job.store("s", s)

    def run(native: int, base: int, at_a: int, at_s: int) -> None:
        decompose(native, base, at_a)

    def end(native: int, base: int, at_a: int, at_s: int) -> None:
        store(native, base, at_s)

    return job.plan(run, unconverged, op.a.shape[0], end=end)


def _rotations(job: Job, mode: int, operand: Operand) -> tuple[Part, Part, Part, Step]:
    """Return room for U, S and V, and ``run(native, base, at_a)``.

    Items too large for the batched kernel are processed in turn.

    The routines write to the room of the vectors even if none are requested: the batched one to square matrices of
    every item; the other one, called for reduced matrices, to room that the items can share in turn if it is not read.
    """
    (batch, m, n), dtype = operand.shape, operand.dtype
    k, at_once = min(m, n), max(m, n) <= JACOBI_LIMIT
    a, load = job.load(operand)
    rooms = batch if at_once or mode == VECTORS else 1
    u, v = (job.array(dtype, rooms, rows, rows if at_once else k) for rows in (m, n))
    s = job.part(layout_of(dtype.real, (batch, k)))
    infos, sum_up = _infos(job, batch)
    decompose = _at_once(job, mode, a, u, s, v, infos) if at_once else _in_turn(job, mode, a, u, s, v, infos)

    def run(native: int, base: int, at_a: int) -> None:
        load(native, base, at_a)
        decompose(base)
        sum_up(native, base)

    return u, s, v, run


def _at_once(job: Job, mode: int, a: Part, u: Part, s: Part, v: Part, infos: Part) -> Callable[[int], None]:
    (batch, m, n), dtype, anchor = a.layout.shape, a.layout.dtype, job.solver.anchor
    call = job.legacy(
        name_of(dtype, "gesvdj_batched"),
        dtype,
        (mode, m, n, anchor, m, anchor, anchor, m, anchor, n),
        tail=(job.solver.gesvdj, batch),
        info=infos.at,
    )
    return lambda base: call(base, mode, m, n, base + a.at, m, base + s.at, base + u.at, m, base + v.at, n)


def _in_turn(job: Job, mode: int, a: Part, u: Part, s: Part, v: Part, infos: Part) -> Callable[[int], None]:
    (batch, m, n), dtype, anchor = a.layout.shape, a.layout.dtype, job.solver.anchor
    call = job.legacy(
        name_of(dtype, "gesvdj"),
        dtype,
        (mode, REDUCED, m, n, anchor, m, anchor, anchor, m, anchor, n),
        tail=(job.solver.gesvdj,),
    )
    parts = a, s, u, v
    steps = [x.layout.strides[0] * x.layout.dtype.itemsize if x.layout.shape[0] > 1 else 0 for x in parts]

    def run(base: int) -> None:
        for i in range(batch):
            x, values, left, right = (base + part.at + i * step for part, step in zip(parts, steps, strict=True))
            call(base, mode, REDUCED, m, n, x, m, values, left, m, right, n, info=infos.at + 4 * i)

    return run


@solves(SyevBatched)
def syev_batched(solver: "Cusolver", op: SyevBatched) -> SolverPlan:
    """Called with ``(a, w, v)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    (batch, n, _), dtype, fill, anchor = op.a.shape, op.a.dtype, fill_mode(op.lower), solver.anchor
    kind, real = TYPES[dtype.name], TYPES[dtype.real.name]
    a, load = job.load(op.a)
    w = job.part(layout_of(dtype.real, (batch, n)))
    infos, sum_up = _infos(job, batch)
    sizing: tuple[Any, ...] = (1, fill, n, kind, anchor, n, real, anchor, kind, batch)
    call = job.routine("xsyev_batched", sizing, tail=(batch,), info=infos.at)
    store_w, store_v = job.store("w", w), job.store("v", a)

    def run(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        load(native, base, at_a)
        call(base, 1, fill, n, kind, base + a.at, n, real, base + w.at, kind)
        sum_up(native, base)

    def end(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        store_w(native, base, at_w)
        store_v(native, base, at_v)

    return job.plan(run, unconverged, batch, end=end)
