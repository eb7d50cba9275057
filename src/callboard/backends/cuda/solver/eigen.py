"""Plans of eigenvalues."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.solver.cholesky import fill_mode
from callboard.backends.cuda.solver.cusolver import TYPES, name_of
from callboard.backends.cuda.solver.jobs import Job, Part
from callboard.backends.cuda.solver.plans import FOUND, SolverPlan, Step
from callboard.backends.cuda.solver.waiting import EIGEN_LIMIT, JACOBI_EIGEN_LIMIT, solves
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import NumericalError
from callboard.core.layout import OpenLayout, layout_of
from callboard.core.library import Extents
from callboard.kernel.solver import (
    Geev,
    GeevValues,
    Syevd,
    SyevdValues,
    SyevdxIndex,
    SyevdxRange,
    Sygvd,
    SygvdValues,
)
from callboard.kernel.solver.failures import generalised, too_many, unconverged, unconverged_off_diagonals

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["geev", "geev_values", "syevd", "syevd_values", "syevdx_index", "syevdx_range", "sygvd", "sygvd_values"]

VECTORS, NO_VECTORS = 1, 0
"""``cusolverEigMode_t``."""
BY_POSITION, BY_VALUE = 1002, 1003
"""``cusolverEigRange_t``."""


def _syevd(job: Job, mode: int, lower: bool, a: Part) -> tuple[Part, Callable[[int], Any]]:
    """Room for the eigenvalues, and ``run(base)``; vectors in place of ``a``. If not large, it is a batch of one."""
    n, dtype, anchor = a.layout.shape[0], a.layout.dtype, job.solver.anchor
    kind, real, fill = TYPES[dtype.name], TYPES[dtype.real.name], fill_mode(lower)
    w = job.array(dtype.real, n)
    sizing: tuple[int, ...] = (mode, fill, n, kind, anchor, n, real, anchor, kind)
    if n > EIGEN_LIMIT:
        call = job.routine("xsyevd", sizing)
    else:
        call = job.routine("xsyev_batched", (*sizing, 1), tail=(1,))
    return w, lambda base: call(base, mode, fill, n, kind, base + a.at, n, real, base + w.at, kind)


def _syevdx(job: Job, op: SyevdxIndex | SyevdxRange, a: Part) -> tuple[Part, Callable[[int], int]]:
    """Room for the eigenvalues, and ``run(base)``: how many there are; vectors in the first columns of ``a``.

    The tridiagonal form, which all eigenvalues need as much as one, takes most of the time (H200, 8192 x 8192 f64: one
    pair 0.68 s, 128 pairs 0.77 s, all 0.90 s).
    """
    n, dtype, anchor = a.layout.shape[0], a.layout.dtype, job.solver.anchor
    kind, real, fill = TYPES[dtype.name], TYPES[dtype.real.name], fill_mode(op.lower)
    w, told, bounds = job.array(dtype.real, n), np.zeros(1, np.int64), np.zeros(2, dtype.real.np)
    if isinstance(op, SyevdxIndex):
        select, first, last = BY_POSITION, op.start + 1, op.start + job.outputs["w"].size
    else:
        select, first, last = BY_VALUE, 1, n
        bounds[:] = _within(op.low, dtype.real), _within(op.high, dtype.real)

    def range_of() -> tuple[int, int, int, int]:
        return bounds.ctypes.data, bounds.ctypes.data + bounds.itemsize, first, last

    sizing = (VECTORS, select, fill, n, kind, anchor, n, *range_of(), told.ctypes.data, real, anchor, kind)
    call = job.routine("xsyevdx", sizing)

    def run(base: int) -> int:
        return int(call(base, VECTORS, select, fill, n, kind, base + a.at, n, *range_of(), real, base + w.at, kind))

    return w, run


def _within(bound: float, real: DType) -> Any:
    """The largest number of this type that is not above a bound; an infinite bound is replaced by a large number."""
    far = float(np.finfo(real.np).max) / 4
    near = real.np.type(min(max(bound, -far), far))
    return np.nextafter(near, real.np.type(-np.inf)) if float(near) > bound else near


def _syevj(job: Job, lower: bool, a: Part) -> tuple[Part, Callable[[int], None]]:
    n, dtype, anchor, fill = a.layout.shape[0], a.layout.dtype, job.solver.anchor, fill_mode(lower)
    w, sizing = job.array(dtype.real, n), (VECTORS, fill, n, anchor, n, anchor)
    if n > JACOBI_EIGEN_LIMIT:
        call = job.legacy(name_of(dtype, "syevj", "heevj"), dtype, sizing, tail=(job.solver.syevj,))
    else:
        call = job.legacy(name_of(dtype, "syevj_batched", "heevj_batched"), dtype, sizing, tail=(job.solver.syevj, 1))
    return w, lambda base: call(base, VECTORS, fill, n, base + a.at, n, base + w.at)


@solves(Syevd)
def syevd(solver: "Cusolver", op: Syevd) -> SolverPlan:
    """Called with ``(a, w, v)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    a, load = job.load(op.a)
    w, solve = _syevj(job, op.lower, a) if op.method == "syevj" else _syevd(job, VECTORS, op.lower, a)
    store_w, store_v = job.store("w", w), job.store("v", a)

    def run(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        load(native, base, at_a)
        solve(base)

    def end(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        store_w(native, base, at_w)
        store_v(native, base, at_v)

    return job.plan(run, unconverged, end=end)


@solves(SyevdValues)
def syevd_values(solver: "Cusolver", op: SyevdValues) -> SolverPlan:
    """Called with ``(a, w)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    a, load = job.load(op.a)
    w, solve = _syevd(job, NO_VECTORS, op.lower, a)
    store = job.store("w", w)

    def run(native: int, base: int, at_a: int, at_w: int) -> None:
        load(native, base, at_a)
        solve(base)

    def end(native: int, base: int, at_a: int, at_w: int) -> None:
        store(native, base, at_w)

    return job.plan(run, unconverged_off_diagonals, end=end)


@solves(SyevdxIndex)
def syevdx_index(solver: "Cusolver", op: SyevdxIndex) -> SolverPlan:
    """Called with ``(a, w, v)``."""
    job = Job(solver, op)
    n, dtype, count = op.a.shape[0], op.a.dtype, job.outputs["w"].size
    if not count:
        return job.nothing()
    a, load = job.load(op.a)
    w, solve = _syevd(job, VECTORS, op.lower, a) if count == n else _syevdx(job, op, a)
    store_w = job.store("w", Part(w.at, layout_of(dtype.real, (count,))))
    store_v = job.store("v", Part(a.at, layout_of(dtype, (n, count), (1, n))))

    def run(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        load(native, base, at_a)
        solve(base)

    def end(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        store_w(native, base, at_w)
        store_v(native, base, at_v)

    return job.plan(run, unconverged, end=end)


@solves(SyevdxRange)
def syevdx_range(solver: "Cusolver", op: SyevdxRange) -> SolverPlan:
    """Called with ``(a, w, v, found)``."""
    job = Job(solver, op)
    n, dtype, is_open = op.a.shape[0], op.a.dtype, isinstance(job.outputs["w"], OpenLayout)
    capacity = n if is_open else job.outputs["w"].size
    some_w, some_v = job.array(dtype.real, capacity), job.array(dtype, n, capacity)
    found = job.array(DTYPES["i64"], 1, 1)
    stores: dict[str, Step] = {"found": job.store("found", job.scalar_of(found))}
    if not is_open:
        stores |= {"w": job.store("w", some_w), "v": job.store("v", some_v)}
    a, load = job.load(op.a)
    empty = not n or not _within(op.low, dtype.real) < _within(op.high, dtype.real)
    w, solve = (job.array(dtype.real, n), None) if empty else _syevdx(job, op, a)
    # NaN follows the eigenvalues that were found, so that the kernels count no further and decide about the bounds.
    no_numbers = job.not_a_number(w)
    select = job.kernel(f"range_values_{dtype.real}", 1, blocks=1, rows=n, cols=capacity, low=op.low, high=op.high)
    gather = job.kernel(f"range_vectors_{dtype}", n * capacity, rows=n, cols=capacity)

    def run(native: int, base: int, at_a: int, at_w: int, at_v: int, at_found: int) -> None:
        load(native, base, at_a)
        count = 0 if solve is None else solve(base)
        no_numbers(native, base, count)
        select(native, base, x=base + w.at, y=base + some_w.at, z=base + found.at)
        gather(native, base, x=base + a.at, y=base + some_v.at)

    def end(native: int, base: int, at_a: int, at_w: int, at_v: int, at_found: int) -> None:
        stores["w"](native, base, at_w)
        stores["v"](native, base, at_v)
        stores["found"](native, base, at_found)

    def size(count: int) -> Extents:
        """Find the extents of open outputs: the copies are made once these are known."""
        shapes = {"w": (count,), "v": (n, count)}
        for name, part in (("w", some_w), ("v", some_v)):
            layout = layout_of(part.layout.dtype, shapes[name], part.layout.strides)
            stores[name] = job.copy_out(Part(part.at, layout), layout_of(layout.dtype, layout.shape))
        return list(shapes.values())

    def capacity_exceeded(tag: str, count: int) -> NumericalError:
        return too_many(tag, count, capacity)

    limits = {FOUND: (capacity, capacity_exceeded)}
    return job.plan(run, unconverged, limits=limits, end=end, size=size if is_open else None)


def _sygvd(job: Job, op: Sygvd | SygvdValues, mode: int) -> tuple[Part, Part, Callable[[int, int, int, int], None]]:
    """Room for the eigenvalues and for ``a``, which the vectors replace, and ``run(native, base, at_a, at_b)``."""
    n, dtype, itype, fill, anchor = op.a.shape[0], op.a.dtype, op.itype, fill_mode(op.lower), job.solver.anchor
    a, load_a = job.load(op.a)
    b, load_b = job.load(op.b)
    w = job.array(dtype.real, n)
    call = job.legacy(name_of(dtype, "sygvd", "hegvd"), dtype, (itype, mode, fill, n, anchor, n, anchor, n, anchor))

    def run(native: int, base: int, at_a: int, at_b: int) -> None:
        load_a(native, base, at_a)
        load_b(native, base, at_b)
        call(base, itype, mode, fill, n, base + a.at, n, base + b.at, n, base + w.at)

    return w, a, run


@solves(Sygvd)
def sygvd(solver: "Cusolver", op: Sygvd) -> SolverPlan:
    """Called with ``(a, b, w, v)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    w, v, solve = _sygvd(job, op, VECTORS)
    store_w, store_v = job.store("w", w), job.store("v", v)

    def run(native: int, base: int, at_a: int, at_b: int, at_w: int, at_v: int) -> None:
        solve(native, base, at_a, at_b)

    def end(native: int, base: int, at_a: int, at_b: int, at_w: int, at_v: int) -> None:
        store_w(native, base, at_w)
        store_v(native, base, at_v)

    return job.plan(run, generalised(op.a.shape[0], unconverged), end=end)


@solves(SygvdValues)
def sygvd_values(solver: "Cusolver", op: SygvdValues) -> SolverPlan:
    """Called with ``(a, b, w)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    w, _, solve = _sygvd(job, op, NO_VECTORS)
    store = job.store("w", w)

    def run(native: int, base: int, at_a: int, at_b: int, at_w: int) -> None:
        solve(native, base, at_a, at_b)

    def end(native: int, base: int, at_a: int, at_b: int, at_w: int) -> None:
        store(native, base, at_w)

    return job.plan(run, generalised(op.a.shape[0], unconverged_off_diagonals), end=end)


def _geev(job: Job, mode: int, a: Part, wide: DType) -> tuple[Part, Part, Callable[[int], None]]:
    """Room for eigenvalues (complex) and vectors (packed, if the matrix is real), and ``run(base)``."""
    n, dtype, anchor = a.layout.shape[0], a.layout.dtype, job.solver.anchor
    kind, kind_w = TYPES[dtype.name], TYPES[wide.name]
    w, v = job.array(wide, n), job.array(dtype, *((n, n) if mode == VECTORS else (1, 1)))
    call = job.routine(
        "xgeev", (NO_VECTORS, mode, n, kind, anchor, n, kind_w, anchor, kind, 0, n, kind, anchor, n, kind)
    )

    def run(base: int) -> None:
        call(
            *(base, NO_VECTORS, mode, n, kind, base + a.at, n, kind_w, base + w.at),
            *(kind, 0, n, kind, base + v.at, n, kind),
        )

    return w, v, run


@solves(Geev)
def geev(solver: "Cusolver", op: Geev) -> SolverPlan:
    """Called with ``(a, w, v)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    n, dtype, wide = op.a.shape[0], op.a.dtype, job.outputs["w"].dtype
    a, load = job.load(op.a)
    w, packed, solve = _geev(job, VECTORS, a, wide)
    v = packed if dtype.is_complex else job.array(wide, n, n)
    unpack = None if dtype.is_complex else job.kernel(f"unpack_{dtype}", n * n, rows=n)
    store_w, store_v = job.store("w", w), job.store("v", v)

    def run(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        load(native, base, at_a)
        solve(base)
        if unpack is not None:
            unpack(native, base, x=base + w.at, y=base + packed.at, z=base + v.at)

    def end(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        store_w(native, base, at_w)
        store_v(native, base, at_v)

    return job.plan(run, unconverged, end=end)


@solves(GeevValues)
def geev_values(solver: "Cusolver", op: GeevValues) -> SolverPlan:
    """Called with ``(a, w)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    a, load = job.load(op.a)
    w, _, solve = _geev(job, NO_VECTORS, a, job.outputs["w"].dtype)
    store = job.store("w", w)

    def run(native: int, base: int, at_a: int, at_w: int) -> None:
        load(native, base, at_a)
        solve(base)

    def end(native: int, base: int, at_a: int, at_w: int) -> None:
        store(native, base, at_w)

    return job.plan(run, unconverged, end=end)
