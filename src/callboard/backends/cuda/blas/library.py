"""``CudaBlas``: BLAS on a GPU through cuBLAS."""

from typing import TYPE_CHECKING

from callboard.backends.cuda.blas import level3
from callboard.backends.cuda.blas.cublas import Cublas, Run
from callboard.backends.cuda.repeats import Repeats
from callboard.backends.cuda.stream import CudaStream
from callboard.core.dtype import DTYPES
from callboard.core.library import AnyOp, Library, modules_of, plans
from callboard.core.op import info_of
from callboard.kernel.blas import Gemm

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaBlas"]


class CudaBlas(Library):
    """Serves :mod:`callboard.kernel.blas`: one handle with a workspace of its own.

    A plan is the finished call, ``plan(stream, *dynamic)``. Making one costs microseconds, so plans are made inline,
    except those that need a custom kernel. Products (``Gemm``) that are repeated with the same arguments are enqueued
    as graphs: their kernels have no state but their arguments, whatever context they are recorded in.
    """

    name = "blas"
    modules = modules_of(__name__)

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cublas = Cublas(device, stream)
        self.repeats = Repeats(device)

    def prepare(self, op: AnyOp) -> Run:
        return self.cublas.guarded(self.makers[type(op)](self.cublas, op), info_of(type(op)).tag.partition(".")[2])

    @plans(Gemm, inline=True)
    def gemm(self, op: Gemm) -> Run:
        return self.repeats.of(level3.gemm(self.cublas, op))

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
