"""Plans of singular values."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.solver.cusolver import TYPES, name_of
from callboard.backends.cuda.solver.jobs import Job, Part, rows
from callboard.backends.cuda.solver.plans import SolverPlan
from callboard.backends.cuda.solver.waiting import solves
from callboard.core.layout import layout_of
from callboard.kernel.solver import Svd, SvdValues
from callboard.kernel.solver.failures import unconverged, unconverged_off_diagonals

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["svd", "svd_values"]

VECTORS, NO_VECTORS = 1, 0
"""``cusolverEigMode_t``."""


def without_gesdd(op: Svd | SvdValues) -> str | None:
    """The reason why an op is unsupported, with a cure; None if it is supported."""
    return "method is 'gesdd'; cuSOLVER has none, take 'gesvd' or 'gesvdj'" if op.method == "gesdd" else None


@solves(Svd, refuses=without_gesdd)
def svd(solver: "Cusolver", op: Svd) -> SolverPlan:
    """Called with ``(a, u, s, vt)``."""
    job = Job(solver, op)
    if not op.a.size:
        return _of_nothing(job)
    return _by_rotations(job, op) if op.method == "gesvdj" else _by_qr(job, op)


def _of_nothing(job: Job) -> SolverPlan:
    """Return the plan for an empty matrix, for which any orthonormal columns are valid."""
    u, vt = (job.array(layout.dtype, *layout.shape) for layout in (job.outputs["u"], job.outputs["vt"]))
    identity_u, identity_vt, store_u, store_vt = (
        job.identity(u),
        job.identity(vt),
        job.store("u", u),
        job.store("vt", vt),
    )

    def run(native: int, base: int, at_a: int, at_u: int, at_s: int, at_vt: int) -> None:
        identity_u(native, base)
        identity_vt(native, base)

    def end(native: int, base: int, at_a: int, at_u: int, at_s: int, at_vt: int) -> None:
        store_u(native, base, at_u)
        store_vt(native, base, at_vt)

    return job.plan(run, end=end)


def _gesvd(job: Job, letter: str, a: Part, u: Part, s: Part, vt: Part, m: int, n: int) -> Callable[[int], None]:
    """``run(base)`` for a column-major ``m x n`` matrix with ``m >= n``; overwrites ``a``."""
    kind, real = TYPES[a.layout.dtype.name], TYPES[s.layout.dtype.name]
    code, anchor = ord(letter), job.solver.anchor
    call = job.routine(
        "xgesvd",
        (code, code, m, n, kind, anchor, m, real, anchor, kind, anchor, m, kind, anchor, n, kind),
    )

    def run(base: int) -> None:
        call(
            *(base, code, code, m, n, kind, base + a.at, m, real, base + s.at),
            *(kind, base + u.at, m, kind, base + vt.at, n, kind),
        )

    return run


def _by_qr(job: Job, op: Svd) -> SolverPlan:
    (m, n), dtype = op.a.shape, op.a.dtype
    tall, (low, high) = m >= n, sorted((m, n))
    # The routine takes tall matrices. A wide one, stored by rows, is its tall transpose for the routine, whose left
    # vectors are the right ones of the matrix, and vice versa; stored by columns they are the requested vectors by
    # rows.
    a, load = job.load(op.a) if tall else job.load(op.a, rows(op.a.layout))
    large = job.array(dtype, high, high if op.full_matrices else low)
    small = job.array(dtype, low, low)
    s = job.array(dtype.real, low)
    decompose = _gesvd(job, "A" if op.full_matrices else "S", a, large, s, small, high, low)
    u, vt = (large, small) if tall else (_turned(small), _turned(large))
    store_u, store_s, store_vt = job.store("u", u), job.store("s", s), job.store("vt", vt)

    def run(native: int, base: int, at_a: int, at_u: int, at_s: int, at_vt: int) -> None:
        load(native, base, at_a)
        decompose(base)

    def end(native: int, base: int, at_a: int, at_u: int, at_s: int, at_vt: int) -> None:
        store_u(native, base, at_u)
        store_s(native, base, at_s)
        store_vt(native, base, at_vt)

    return job.plan(run, unconverged_off_diagonals, end=end)


def _turned(part: Part) -> Part:
    layout = part.layout
    return Part(part.at, layout_of(layout.dtype, layout.shape[::-1], layout.strides[::-1]))


def _gesvdj(job: Job, mode: int, reduced: bool, a: Part, u: Part, s: Part, v: Part) -> Callable[[int], None]:
    (m, n), dtype, anchor = a.layout.shape, a.layout.dtype, job.solver.anchor
    call = job.legacy(
        name_of(dtype, "gesvdj"),
        dtype,
        (mode, int(reduced), m, n, anchor, m, anchor, anchor, m, anchor, n),
        tail=(job.solver.gesvdj,),
    )
    return lambda base: call(
        base, mode, int(reduced), m, n, base + a.at, m, base + s.at, base + u.at, m, base + v.at, n
    )


def _by_rotations(job: Job, op: Svd) -> SolverPlan:
    (m, n), dtype = op.a.shape, op.a.dtype
    k = min(m, n)
    a, load = job.load(op.a)
    left, right = (m, n) if op.full_matrices else (k, k)
    u, v, s = job.array(dtype, m, left), job.array(dtype, n, right), job.array(dtype.real, k)
    decompose = _gesvdj(job, VECTORS, not op.full_matrices, a, u, s, v)
    conjugate = job.conjugate(v) if dtype.is_complex else None
    store_u, store_s, store_vt = job.store("u", u), job.store("s", s), job.store("vt", _turned(v))

    def run(native: int, base: int, at_a: int, at_u: int, at_s: int, at_vt: int) -> None:
        load(native, base, at_a)
        decompose(base)
        if conjugate is not None:
            conjugate(native, base)

    def end(native: int, base: int, at_a: int, at_u: int, at_s: int, at_vt: int) -> None:
        store_u(native, base, at_u)
        store_s(native, base, at_s)
        store_vt(native, base, at_vt)

    return job.plan(run, unconverged, end=end)


@solves(SvdValues, refuses=without_gesdd)
def svd_values(solver: "Cusolver", op: SvdValues) -> SolverPlan:
    """Called with ``(a, s)``."""
    job = Job(solver, op)
    if not op.a.size:
        return job.nothing()
    (m, n), dtype, jacobi = op.a.shape, op.a.dtype, op.method == "gesvdj"
    low, high = sorted((m, n))
    a, load = job.load(op.a) if m >= n or jacobi else job.load(op.a, rows(op.a.layout))
    s = job.array(dtype.real, low)
    if jacobi:  # which writes to the room of the vectors even if none are wanted
        u, v = job.array(dtype, m, low), job.array(dtype, n, low)
        decompose = _gesvdj(job, NO_VECTORS, True, a, u, s, v)
    else:
        none = job.array(dtype, 1)
        decompose = _gesvd(job, "N", a, none, s, none, high, low)
    store = job.store("s", s)

    def run(native: int, base: int, at_a: int, at_s: int) -> None:
        load(native, base, at_a)
        decompose(base)

    def end(native: int, base: int, at_a: int, at_s: int) -> None:
        store(native, base, at_s)

    return job.plan(run, unconverged if jacobi else unconverged_off_diagonals, end=end)
