"""Lengths and sums of magnitudes of f16 and bf16 vectors, by custom kernels.

cuBLAS 13 has no ``asumEx`` for halves (``CUBLAS_STATUS_NOT_SUPPORTED``), and its binding no 64-bit form of ``nrm2Ex``.
Sums are kept in f64, in which the squares of bf16 neither overflow nor underflow.
"""

import ctypes
from typing import TYPE_CHECKING

from callboard.backends.cuda.launching import THREADS, kernel_launcher

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run

__all__ = ["NormArgs", "half_norm"]

MAX_BLOCKS = 1024
"""Each leaves one sum, and one block adds them all up."""
PER_THREAD = 16
"""Elements below which a further block costs more than it gains."""


class NormArgs(ctypes.Structure):
    """``NormArgs`` of ``data/blas.cu``."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("inc", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
    )


def half_norm(cublas: "Cublas", name: str, dtype: str, n: int, inc: int) -> "Run":
    """``run(x, out)``; the address of the first element in memory, and of a 0-d array of the same dtype.

    Args:
        cublas: Handle that enqueues the work and whose scratch memory is used.
        name: ``"nrm2"`` or ``"asum"``.
        dtype: ``"f16"`` or ``"bf16"``.
        n: Elements, at least 1.
        inc: Distance of the elements, > 0.
    """
    blocks = min(-(-n // (THREADS * PER_THREAD)), MAX_BLOCKS)
    args = NormArgs(n=n, inc=inc, blocks=blocks, sums=cublas.scratch(8 * MAX_BLOCKS))
    kernels = cublas.device.kernels
    add = kernel_launcher(cublas.driver, kernels.get("blas", f"{name}_{dtype}"), blocks, (THREADS, 1), args)
    end = kernel_launcher(cublas.driver, kernels.get("blas", f"{name}_{dtype}_end"), 1, (THREADS, 1), args)

    def run(x: int, out: int) -> None:
        args.x, args.out = x, out
        stream = cublas.stream.native
        add(stream)
        if blocks > 1:
            end(stream)

    return run
