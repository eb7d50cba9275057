"""Plans of QR and least squares."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from callboard.backends.cuda.solver.cholesky import keep_triangle
from callboard.backends.cuda.solver.cusolver import TYPES, name_of
from callboard.backends.cuda.solver.jobs import Job, Part, columns, rows
from callboard.backends.cuda.solver.lu import as_output
from callboard.backends.cuda.solver.plans import DIAGONAL, SPARE, SolverPlan
from callboard.backends.cuda.solver.scaling import Scales
from callboard.backends.cuda.solver.waiting import solves
from callboard.core.layout import layout_of
from callboard.kernel.solver import Geqrf, LeastSquares, Orgqr, Ormqr, Qr
from callboard.kernel.solver.failures import deficient

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["geqrf", "least_squares", "orgqr", "ormqr", "qr"]

LEFT, RIGHT = 0, 1
"""``cublasSideMode_t``."""
UPPER, NON_UNIT = 1, 0
"""``cublasFillMode_t``, ``cublasDiagType_t``."""


def _householder(job: Job, a: Part) -> tuple[Part, Callable[[int], None]]:
    """Room for ``tau``, and ``run(base)``, which factors the column-major ``a`` in place."""
    (m, n), dtype, anchor = a.layout.shape, a.layout.dtype, job.solver.anchor
    kind, tau = TYPES[dtype.name], job.array(dtype, min(m, n))
    factor = job.routine("xgeqrf", (m, n, kind, anchor, m, kind, anchor, kind))
    return tau, lambda base: factor(base, m, n, kind, base + a.at, m, kind, base + tau.at, kind)


def _form_q(job: Job, q: Part, k: int, tau: Part) -> Callable[[int], None]:
    """``run(base)``: the first columns of ``q`` hold ``k`` reflections, and it becomes Q."""
    (m, count), dtype, anchor = q.layout.shape, q.layout.dtype, job.solver.anchor
    form = job.legacy(name_of(dtype, "orgqr", "ungqr"), dtype, (m, count, k, anchor, m, anchor), info=4 * SPARE)
    return lambda base: form(base, m, count, k, base + q.at, m, base + tau.at)


def _apply_q(job: Job, side: int, turned: bool, h: Part, k: int, tau: Part, c: Part, ld: int) -> Callable[[int], None]:
    """``run(base)``: ``c`` becomes its product with Q."""
    (m, n), dtype, anchor = c.layout.shape, c.layout.dtype, job.solver.anchor
    operation = (2 if dtype.is_complex else 1) if turned else 0
    order = m if side == LEFT else n
    apply = job.legacy(
        name_of(dtype, "ormqr", "unmqr"),
        dtype,
        (side, operation, m, n, k, anchor, order, anchor, anchor, ld),
        info=4 * SPARE,
    )
    return lambda base: apply(base, side, operation, m, n, k, base + h.at, order, base + tau.at, base + c.at, ld)


def _top(part: Part, count: int) -> Part:
    """Return the first columns."""
    layout = part.layout
    return Part(part.at, layout_of(layout.dtype, (layout.shape[0], count), layout.strides))


@solves(Qr)
def qr(solver: "Cusolver", op: Qr) -> SolverPlan:
    """Called with ``(a, q, r)``."""
    job = Job(solver, op)
    (m, n), dtype = op.a.shape, op.a.dtype
    count, k = job.outputs["q"].shape[1], min(m, n)
    q = job.array(dtype, m, count)
    if not k:
        identity, store = job.identity(q), job.store("q", q)

        def empty(native: int, base: int, at_a: int, at_q: int, at_r: int) -> None:
            identity(native, base)
            store(native, base, at_q)

        return job.plan(empty)  # r is empty: one of its extents is that of a
    a, load = job.load(op.a)
    tau, factor = _householder(job, a)
    reflections = job.move(_top(a, k), _top(q, k))
    form, clear = _form_q(job, q, k, tau), keep_triangle(job, a, False)
    triangular = Part(a.at, layout_of(dtype, (count, n), a.layout.strides))
    store_q, store_r = job.store("q", q), job.store("r", triangular)

    def run(native: int, base: int, at_a: int, at_q: int, at_r: int) -> None:
        load(native, base, at_a)
        factor(base)
        reflections(native, base)
        clear(native, base)
        store_r(native, base, at_r)
        form(base)
        store_q(native, base, at_q)

    return job.plan(run)


@solves(Geqrf)
def geqrf(solver: "Cusolver", op: Geqrf) -> SolverPlan:
    """Called with ``(a, h, tau)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    a, load = job.load(op.a)
    tau, factor = _householder(job, a)
    store_h, store_tau = job.store("h", a), job.store("tau", tau)

    def run(native: int, base: int, at_a: int, at_h: int, at_tau: int) -> None:
        load(native, base, at_a)
        factor(base)
        store_h(native, base, at_h)
        store_tau(native, base, at_tau)

    return job.plan(run)


@solves(Orgqr)
def orgqr(solver: "Cusolver", op: Orgqr) -> SolverPlan:
    """Called with ``(h, tau, q)``."""
    job = Job(solver, op)
    q = job.array(op.h.dtype, *job.outputs["q"].shape)
    k, store = op.tau.size, job.store("q", q)
    if not k:
        identity = job.identity(q)

        def empty(native: int, base: int, at_h: int, at_tau: int, at_q: int) -> None:
            identity(native, base)
            store(native, base, at_q)

        return job.plan(empty)
    h, load_h = job.load(op.h)
    tau, load_tau = job.load(op.tau)
    reflections, form = job.move(_top(h, k), _top(q, k)), _form_q(job, q, k, tau)
    clean = job.zero(q)

    def run(native: int, base: int, at_h: int, at_tau: int, at_q: int) -> None:
        load_h(native, base, at_h)
        load_tau(native, base, at_tau)
        clean(native, base)
        reflections(native, base)
        form(base)
        store(native, base, at_q)

    return job.plan(run)


@solves(Ormqr)
def ormqr(solver: "Cusolver", op: Ormqr) -> SolverPlan:
    """Called with ``(h, tau, c, out)``."""
    job = Job(solver, op)
    if not op.c.size:
        return job.nothing()
    c, load_c = job.load(op.c)
    store, k = job.store("out", c), op.tau.size
    if not k:

        def empty(native: int, base: int, at_h: int, at_tau: int, at_c: int, at_out: int) -> None:
            load_c(native, base, at_c)
            store(native, base, at_out)

        return job.plan(empty)
    h, load_h = job.load(op.h)
    tau, load_tau = job.load(op.tau)
    apply = _apply_q(job, LEFT if op.side == "left" else RIGHT, op.transpose, h, k, tau, c, op.c.shape[0])

    def run(native: int, base: int, at_h: int, at_tau: int, at_c: int, at_out: int) -> None:
        load_h(native, base, at_h)
        load_tau(native, base, at_tau)
        load_c(native, base, at_c)
        apply(base)
        store(native, base, at_out)

    return job.plan(run)


@solves(LeastSquares)
def least_squares(solver: "Cusolver", op: LeastSquares) -> SolverPlan:
    """Called with ``(a, b, x)``."""
    job = Job(solver, op)
    (m, n), dtype = op.a.shape, op.a.dtype
    count = op.b.shape[1] if op.b.ndim == 2 else 1
    tall, k = m >= n, min(m, n)
    order = max(m, n, 1)
    both = job.part(columns(layout_of(dtype, (order, count))))
    clean = job.zero(both)
    solution = Part(both.at, layout_of(dtype, (n, count), both.layout.strides))
    store = as_output(job, "x", solution)
    if not k or not count:

        def empty(native: int, base: int, at_a: int, at_b: int, at_x: int) -> None:
            clean(native, base)
            store(native, base, at_x)

        return job.plan(empty)
    # A wide matrix is factored as its adjoint: a.conj().T = Q R, so R.conj().T y = b and x = Q y.
    a, load_a = job.load(op.a) if tall else job.load(op.a, rows(op.a.layout))
    turned = a if tall else Part(a.at, columns(layout_of(dtype, (n, m))))
    conjugate = job.conjugate(turned) if dtype.is_complex and not tall else None
    strides = both.layout.strides if op.b.ndim == 2 else both.layout.strides[:1]
    _, load_b = job.load(op.b, into=Part(both.at, layout_of(dtype, op.b.shape, strides)))
    tau, factor = _householder(job, turned)
    apply = _apply_q(job, LEFT, tall, turned, k, tau, both, order)
    zeros = job.kernel(f"diagonal_{dtype}", 1, blocks=1, rows=k, ld=order)
    one = np.ones(1, dtype.np)
    trsm = job.cublas(name_of(dtype, "trsm"))
    operation = 0 if tall else 2 if dtype.is_complex else 1
    scales = Scales(job, turned, both)
    centre, restore = scales.centre(), scales.restore(n)

    def substitute(base: int) -> None:
        trsm(LEFT, UPPER, operation, NON_UNIT, k, count, one.ctypes.data, base + a.at, order, base + both.at, order)

    def run(native: int, base: int, at_a: int, at_b: int, at_x: int) -> None:
        clean(native, base)
        load_a(native, base, at_a)
        load_b(native, base, at_b)
        if conjugate is not None:
            conjugate(native, base)
        centre(native, base)
        factor(base)
        zeros(native, base, x=base + a.at)
        for step in (apply, substitute) if tall else (substitute, apply):
            step(base)
        restore(native, base)
        store(native, base, at_x)

    return job.plan(run, limits={DIAGONAL: (0, deficient)})
