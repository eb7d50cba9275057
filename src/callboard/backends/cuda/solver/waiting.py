"""Ops executed before the launch because one of their routines blocks the calling thread.

Among cuSOLVER's routines for eigenvalues and singular values, only the batched ones for small matrices enqueue their
work and return, and can be recorded in graphs (CUDA 13.0, H200; each was called after a kernel of 40 ms and then
captured): ``XsyevBatched`` for matrices up to 128 x 128 and for a single one up to 512 x 512, which takes as long as
``Xsyevd``; ``syevjBatched`` up to 64 x 64; ``gesvdjBatched``, which takes matrices up to 32 x 32. These routines wait
for larger matrices, and ``Xsyevd``, ``Xsyevdx``, ``syevj``, ``sygvd``, ``sygvj``, ``Xgesvd``, ``Xgesvdp``, ``gesvdj``
and ``Xgeev`` wait for matrices of any size. cuSOLVER's sparse solves leave their outcome in host memory, and cuDSS
analyses on the host.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from callboard.core.library import plans
from callboard.core.op import Op
from callboard.kernel import solver as messages

__all__ = ["AHEAD", "EIGEN_LIMIT", "JACOBI_EIGEN_LIMIT", "JACOBI_LIMIT", "solves", "waits"]

F = TypeVar("F", bound=Callable[..., Any])

EIGEN_LIMIT, EIGEN_BATCH_LIMIT = 512, 128
"""Rows up to which ``XsyevBatched`` only enqueues: of a single matrix, and of several."""
JACOBI_EIGEN_LIMIT = 64
"""Rows up to which ``syevjBatched`` only enqueues."""
JACOBI_LIMIT = 32
"""Rows and columns that ``gesvdjBatched`` takes."""

AHEAD = (
    *(messages.Svd, messages.SvdValues, messages.GesvdjBatched, messages.GesvdjValuesBatched),
    *(messages.Syevd, messages.SyevdValues, messages.SyevdxIndex, messages.SyevdxRange, messages.SyevBatched),
    *(messages.Sygvd, messages.SygvdValues, messages.Geev, messages.GeevValues),
    *(messages.SparseCholesky, messages.SparseLu, messages.SparseQr),
)
"""The ops that may be."""


def waits(op: Op[Any, Any]) -> bool:
    """True if this op is executed before the launch."""
    if isinstance(op, messages.SyevdValues):
        return op.a.shape[0] > EIGEN_LIMIT
    if isinstance(op, messages.Syevd):
        return op.a.shape[0] > (JACOBI_EIGEN_LIMIT if op.method == "syevj" else EIGEN_LIMIT)
    if isinstance(op, messages.SyevBatched):
        return op.a.shape[1] > (EIGEN_LIMIT if op.a.shape[0] == 1 else EIGEN_BATCH_LIMIT)
    if isinstance(op, messages.GesvdjBatched | messages.GesvdjValuesBatched):
        return max(op.a.shape[1:]) > JACOBI_LIMIT
    return isinstance(op, AHEAD)


def solves(*ops: type[Op[Any, Any]], refuses: Callable[[Any], str | None] | None = None) -> Callable[[F], F]:
    """Register the function that makes the plans of these ops, as :func:`~callboard.core.library.plans` does."""

    def mark(make: F) -> F:
        for op in ops:
            plans(op, sizes=op in AHEAD, always=waits, refuses=refuses)(make)
        return make

    return mark
