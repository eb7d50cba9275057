"""Which ops are done before the launch, because a routine of theirs holds the thread that calls it.

Of cuSOLVER's routines for eigenvalues and singular values only the batched ones for small matrices enqueue their work
and return, and can be recorded in graphs (CUDA 13.0, H200; each was called behind a kernel of 40 ms and then captured):
``gesvdjBatched``, which takes matrices up to 32 x 32, ``XsyevBatched`` and ``syevjBatched`` up to 64 x 64. A single
small matrix is a batch of one. Those two wait for larger ones, and so do ``Xsyevd``, ``Xsyevdx``, ``syevj``, ``sygvd``,
``sygvj``, ``Xgesvd``, ``Xgesvdp``, ``gesvdj`` and ``Xgeev`` of any size. cuSOLVER's sparse solves leave their outcome
in host memory, and cuDSS analyses on the host.
"""

from typing import Any

from callboard.core.op import Op
from callboard.kernel import solver as messages

__all__ = ["AHEAD", "EIGEN_LIMIT", "JACOBI_LIMIT", "waits"]

EIGEN_LIMIT = 64
"""Rows up to which ``XsyevBatched`` only enqueues."""
JACOBI_LIMIT = 32
"""Rows and columns that ``gesvdjBatched`` takes."""

AHEAD = (
    *(messages.Svd, messages.SvdValues, messages.GesvdjBatched),
    *(messages.Syevd, messages.SyevdValues, messages.SyevdxIndex, messages.SyevdxRange, messages.SyevBatched),
    *(messages.Sygvd, messages.Geev, messages.GeevValues),
    *(messages.SparseCholesky, messages.SparseLu, messages.SparseQr),
)
"""The ops that may be."""


def waits(op: Op[Any, Any]) -> bool:
    """Whether this op is."""
    if isinstance(op, messages.SyevBatched | messages.Syevd | messages.SyevdValues):
        return op.a.shape[-1] > EIGEN_LIMIT
    if isinstance(op, messages.GesvdjBatched):
        return max(op.a.shape[1:]) > JACOBI_LIMIT
    if isinstance(op, messages.Svd | messages.SvdValues) and op.method == "gesvdj":
        return max(op.a.shape) > JACOBI_LIMIT
    return isinstance(op, AHEAD)
