"""Plans of eigenvalues.

Ranges are taken out of the whole spectrum: cuSOLVER's own routines for ranges leave their count in host memory and wait
for it, and most of the time goes into the tridiagonal form that all of them need.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.solver.cholesky import fill_mode
from callboard.backends.cuda.solver.cusolver import TYPES, name_of
from callboard.backends.cuda.solver.jobs import Job, Part
from callboard.backends.cuda.solver.plans import FOUND, Plan, Step
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import NumericalError
from callboard.core.layout import OpenLayout, layout_of
from callboard.core.library import Extents
from callboard.kernel.solver import Geev, GeevValues, Syevd, SyevdValues, SyevdxIndex, SyevdxRange, Sygvd
from callboard.kernel.solver.failures import generalised, too_many, unconverged, unconverged_off_diagonals

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["geev", "geev_values", "syevd", "syevd_values", "syevdx_index", "syevdx_range", "sygvd"]

VECTORS, NO_VECTORS = 1, 0
"""``cusolverEigMode_t``."""


def _syevd(job: Job, mode: int, lower: bool, a: Part) -> tuple[Part, Callable[[int], None]]:
    """Room for the eigenvalues, and ``run(base)``; vectors in place of ``a``."""
    n, dtype, anchor = a.layout.shape[0], a.layout.dtype, job.solver.anchor
    kind, real, fill = TYPES[dtype.name], TYPES[dtype.real.name], fill_mode(lower)
    w = job.array(dtype.real, n)
    call = job.routine("xsyevd", (mode, fill, n, kind, anchor, n, real, anchor, kind))
    return w, lambda base: call(base, mode, fill, n, kind, base + a.at, n, real, base + w.at, kind)


def _syevj(job: Job, lower: bool, a: Part) -> tuple[Part, Callable[[int], None]]:
    n, dtype, anchor, fill = a.layout.shape[0], a.layout.dtype, job.solver.anchor, fill_mode(lower)
    w = job.array(dtype.real, n)
    call = job.legacy(
        name_of(dtype, "syevj", "heevj"), dtype, (VECTORS, fill, n, anchor, n, anchor), tail=(job.solver.syevj,)
    )
    return w, lambda base: call(base, VECTORS, fill, n, base + a.at, n, base + w.at)


def syevd(solver: "Cusolver", op: Syevd) -> Plan:
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


def syevd_values(solver: "Cusolver", op: SyevdValues) -> Plan:
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


def syevdx_index(solver: "Cusolver", op: SyevdxIndex) -> Plan:
    """Called with ``(a, w, v)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    n, dtype, count = op.a.shape[0], op.a.dtype, job.outputs["w"].size
    a, load = job.load(op.a)
    w, solve = _syevd(job, VECTORS, op.lower, a)
    some_w = Part(w.at + op.start * dtype.real.itemsize, layout_of(dtype.real, (count,)))
    some_v = Part(a.at + op.start * n * dtype.itemsize, layout_of(dtype, (n, count), (1, n)))
    store_w, store_v = job.store("w", some_w), job.store("v", some_v)

    def run(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        load(native, base, at_a)
        solve(base)

    def end(native: int, base: int, at_a: int, at_w: int, at_v: int) -> None:
        store_w(native, base, at_w)
        store_v(native, base, at_v)

    return job.plan(run, unconverged, end=end)


def syevdx_range(solver: "Cusolver", op: SyevdxRange) -> Plan:
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
    w, solve = _syevd(job, VECTORS, op.lower, a) if n else (some_w, None)
    select = job.kernel(f"range_values_{dtype.real}", 1, blocks=1, rows=n, cols=capacity, low=op.low, high=op.high)
    gather = job.kernel(f"range_vectors_{dtype}", n * capacity, rows=n, cols=capacity)

    def run(native: int, base: int, at_a: int, at_w: int, at_v: int, at_found: int) -> None:
        if solve is not None:
            load(native, base, at_a)
            solve(base)
        select(native, base, x=base + w.at, y=base + some_w.at, z=base + found.at)
        gather(native, base, x=base + a.at, y=base + some_v.at)

    def end(native: int, base: int, at_a: int, at_w: int, at_v: int, at_found: int) -> None:
        stores["w"](native, base, at_w)
        stores["v"](native, base, at_v)
        stores["found"](native, base, at_found)

    def size(count: int) -> Extents:
        """Of the open form: the copies are made when it is known what of."""
        shapes = {"w": (count,), "v": (n, count)}
        for name, part in (("w", some_w), ("v", some_v)):
            layout = layout_of(part.layout.dtype, shapes[name], part.layout.strides)
            stores[name] = job.copy_out(Part(part.at, layout), layout_of(layout.dtype, layout.shape))
        return list(shapes.values())

    def capacity_exceeded(tag: str, count: int) -> NumericalError:
        return too_many(tag, count, capacity)

    limits = {FOUND: (capacity, capacity_exceeded)}
    return job.plan(run, unconverged, limits=limits, end=end, size=size if is_open else None)


def sygvd(solver: "Cusolver", op: Sygvd) -> Plan:
    """Called with ``(a, b, w, v)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    n, dtype, itype, fill, anchor = op.a.shape[0], op.a.dtype, op.itype, fill_mode(op.lower), solver.anchor
    a, load_a = job.load(op.a)
    b, load_b = job.load(op.b)
    w = job.array(dtype.real, n)
    call = job.legacy(name_of(dtype, "sygvd", "hegvd"), dtype, (itype, VECTORS, fill, n, anchor, n, anchor, n, anchor))
    store_w, store_v = job.store("w", w), job.store("v", a)

    def run(native: int, base: int, at_a: int, at_b: int, at_w: int, at_v: int) -> None:
        load_a(native, base, at_a)
        load_b(native, base, at_b)
        call(base, itype, VECTORS, fill, n, base + a.at, n, base + b.at, n, base + w.at)

    def end(native: int, base: int, at_a: int, at_b: int, at_w: int, at_v: int) -> None:
        store_w(native, base, at_w)
        store_v(native, base, at_v)

    return job.plan(run, generalised(n), end=end)


def _geev(job: Job, mode: int, a: Part, wide: DType) -> tuple[Part, Part, Callable[[int], None]]:
    """Room for eigenvalues (complex) and vectors (packed, where the matrix is real), and ``run(base)``."""
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


def geev(solver: "Cusolver", op: Geev) -> Plan:
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


def geev_values(solver: "Cusolver", op: GeevValues) -> Plan:
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
