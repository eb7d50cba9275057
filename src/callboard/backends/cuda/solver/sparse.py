"""Plans of the sparse direct solves: cuSOLVER's ``csrlsvqr`` and ``csrlsvchol``.

They leave word of a singular matrix in host memory and wait for it, so they are called before the launch, which copies
the result. Since one waits anyway, one looks first whether the arrays are a matrix at all: an index out of range would
let the routine write beside its memory.
"""

from typing import TYPE_CHECKING

import numpy as np

from callboard.backends.cuda.solver.cusolver import name_of
from callboard.backends.cuda.solver.jobs import Job
from callboard.backends.cuda.solver.lu import as_output, right_hand_side
from callboard.backends.cuda.solver.plans import BAD_INDICES, DIAGONAL, FAILED, NOT_FINITE, STATUS, Plan
from callboard.core.dtype import DTYPES
from callboard.kernel.solver import SparseCholesky, SparseQr
from callboard.kernel.solver.failures import (
    bad_indices,
    not_finite,
    not_hermitian,
    sparse_indefinite,
    sparse_singular,
)

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["solve"]

REORDER = 1
"""Symmetric reverse Cuthill-McKee: less fill-in than the order as given."""


def solve(solver: "Cusolver", op: SparseQr | SparseCholesky) -> Plan:
    """Called with ``(a, b, x)``."""
    job = Job(solver, op)
    n, count, dtype, definite = op.a.shape[0], op.a.nnz, op.a.values.dtype, isinstance(op, SparseCholesky)
    values, load_values = job.load(op.a.values)
    offsets, load_offsets = job.load(op.a.indptr)
    indices, load_indices = job.load(op.a.indices)
    b, load_b = right_hand_side(job, op.b)
    x = job.array(dtype, *b.layout.shape)
    structure = job.array(DTYPES["i32"], n + 1 + count)
    wide = int(op.a.indptr.dtype is DTYPES["i64"])
    check = job.kernel("csr_check", max(n + 1, count), rows=n, cols=count, mode=wide)
    ascending = job.kernel("csr_ascending", n, rows=n, cols=count)
    mirrored = job.kernel(f"csr_mirrored_{dtype}", n, rows=n, cols=count) if definite else None
    store = as_output(job, "x", x)
    library, handle, description = solver.sparse()
    name = name_of(dtype, "csrlsvchol" if definite else "csrlsvqr")
    call = solver.guarded(name, getattr(library, name))
    columns, step = b.layout.shape[1], n * dtype.itemsize
    tag = job.tag

    def refuse(base: int) -> None:
        readback = solver.device.read_back(solver.stream, base, 4 * STATUS)
        solver.stream.synchronize()
        status = np.frombuffer(readback.take(), np.int32).tolist()
        if status[NOT_FINITE]:
            raise not_finite(tag, status[NOT_FINITE])
        if status[BAD_INDICES] or status[FAILED]:
            raise bad_indices(tag, status[BAD_INDICES] + status[FAILED], "offsets and indices")
        if status[DIAGONAL]:
            raise not_hermitian(tag, status[DIAGONAL])

    def run(native: int, base: int, at_a: list[int], at_b: int, at_x: int) -> None:
        for load, address in zip((load_values, load_indices, load_offsets), at_a, strict=True):
            load(native, base, address)
        load_b(native, base, at_b)
        lists = base + structure.at
        check(native, base, x=base + offsets.at, y=base + indices.at, z=lists)
        ascending(native, base, x=lists)
        if mirrored is not None:
            mirrored(native, base, x=base + values.at, y=lists)
        refuse(base)
        told = np.full(1, -1, np.int32)
        for column in range(columns if n else 0):
            call(
                *(handle, n, count, description, base + values.at, lists, lists + 4 * (n + 1)),
                *(base + b.at + column * step, 0.0, REORDER, base + x.at + column * step, told.ctypes.data),
            )
            if told[0] >= 0:
                raise sparse_indefinite(tag) if definite else sparse_singular(tag, 0)

    def end(native: int, base: int, at_a: list[int], at_b: int, at_x: int) -> None:
        store(native, base, at_x)

    return job.plan(run, end=end)
