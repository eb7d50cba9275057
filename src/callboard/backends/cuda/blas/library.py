"""``CudaBlas``: BLAS on a GPU through cuBLAS."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.blas import banded, batched, level1, level2, level3, symmetric, triangular
from callboard.backends.cuda.blas.cublas import Cublas, Run
from callboard.backends.cuda.repeats import Repeats
from callboard.backends.cuda.stream import CudaStream
from callboard.core.dtype import DTYPES
from callboard.core.library import Entry, Library, entries
from callboard.core.op import Op
from callboard.kernel import blas

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaBlas"]

Maker = Callable[[Cublas, Any], Run]


def guarded(plan: Maker, call: str | None = None) -> Callable[["CudaBlas", Op[Any, Any]], Run]:
    """Return a function that makes the plan ``run(*dynamic)`` of a message, as the table of plans takes it.

    Args:
        plan: Makes the plan, given the handle and the message.
        call: The name of the call in errors; None: the name of the message.
    """
    return lambda library, op: library.cublas.guarded(plan(library.cublas, op), call or type(op).__name__.lower())


INLINE: dict[type[Op[Any, Any]], Maker] = {
    blas.Axpy: level1.axpy,
    blas.Copy: level1.copy,
    blas.Dot: level1.dot,
    blas.Dotc: level1.dot,
    blas.Dotu: level1.dot,
    blas.Gbmv: banded.gbmv,
    blas.Geam: level3.geam,
    blas.Gemv: level2.gemv,
    blas.Ger: level2.ger,
    blas.Gerc: level2.ger,
    blas.Geru: level2.ger,
    blas.Hbmv: symmetric.product,
    blas.Hemm: level3.two_sided,
    blas.Hemv: symmetric.product,
    blas.Her: symmetric.rank_1,
    blas.Her2: symmetric.rank_2,
    blas.Her2k: level3.rank_2k,
    blas.Herk: level3.rank_k,
    blas.Hpmv: symmetric.product,
    blas.Hpr: symmetric.rank_1,
    blas.Hpr2: symmetric.rank_2,
    blas.Rot: level1.rot,
    blas.Sbmv: symmetric.product,
    blas.Scal: level1.scal,
    blas.Spmv: symmetric.product,
    blas.Spr: level2.symmetric_rank_1,
    blas.Spr2: symmetric.rank_2,
    blas.Swap: level1.swap,
    blas.Symm: level3.two_sided,
    blas.Symv: symmetric.product,
    blas.Syr: level2.symmetric_rank_1,
    blas.Syr2: symmetric.rank_2,
    blas.Syr2k: level3.rank_2k,
    blas.Syrk: level3.rank_k,
    blas.Tbmv: triangular.vector,
    blas.Tbsv: triangular.vector,
    blas.Tpmv: triangular.vector,
    blas.Tpsv: triangular.vector,
    blas.Trmm: level3.triangular,
    blas.Trmv: triangular.vector,
    blas.Trsm: level3.triangular,
    blas.Trsv: triangular.vector,
}
"""Ops whose plans cost microseconds."""
KERNELS: dict[type[Op[Any, Any]], Maker] = {
    blas.Asum: level1.norm,
    blas.Iamax: level1.index,
    blas.Iamin: level1.index,
    blas.Nrm2: level1.norm,
}
"""Ops whose plans may compile a custom kernel."""


class CudaBlas(Library):
    """Serves :mod:`callboard.kernel.blas`: one handle with a workspace of its own.

    A plan is the finished call, ``plan(stream, *dynamic)``. Making one costs microseconds, so plans are made inline,
    except those that need a custom kernel. Products (``Gemm``) that are repeated with the same arguments are enqueued
    as graphs: their kernels have no state but their arguments, whatever context they are recorded in.
    """

    name = "blas"
    table: ClassVar = {
        **entries({op: guarded(plan) for op, plan in INLINE.items()}, inline=True),
        **entries({op: guarded(plan) for op, plan in KERNELS.items()}),
        blas.Gemm: Entry(lambda library, op: library.repeats.of(level3.gemm(library.cublas, op)), inline=True),
        blas.GemmStridedBatched: Entry(guarded(batched.strided_batched, "gemm_strided_batched_ex"), inline=True),
        blas.GemmBatched: Entry(guarded(batched.pointer_batched, "gemm_batched_ex")),
        blas.GemmGrouped: Entry(guarded(batched.grouped, "gemm_grouped_batched_ex")),
    }

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cublas = Cublas(device, stream)
        self.repeats = Repeats(device)

    def warm_up(self) -> None:
        """Load our kernels and multiply once, which loads cuBLAS's."""
        device, cublas = self.cublas.device, self.cublas
        device.kernels.get("blas", "decrement")
        device.kernels.get("memory", "copy_4")
        matrices = cublas.allocate(3 * 4 * 64 * 64)
        cublas.point(1)
        one, zero = cublas.one(DTYPES["f32"]), cublas.zero()
        sides = (matrices, 64, matrices + 4 * 64 * 64, 64)
        run = cublas.guarded(cublas.library.sgemm, "cublasSgemm")
        run(self.stream, cublas.handle, 0, 0, 64, 64, 64, one, *sides, zero, matrices + 8 * 64 * 64, 64)

    def close(self) -> None:
        try:
            self.repeats.close()
        finally:
            self.cublas.close()
