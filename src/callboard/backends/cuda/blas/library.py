"""``CudaBlas``: BLAS on a GPU through cuBLAS."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas import batched, level1, level2, level3
from callboard.backends.cuda.blas.cublas import Cublas, Run
from callboard.backends.cuda.repeats import Repeats
from callboard.backends.cuda.stream import CudaStream
from callboard.core.dtype import DTYPES
from callboard.core.library import Library, launches, prepares
from callboard.core.op import Op
from callboard.kernel import blas

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaBlas"]


class CudaBlas(Library):
    """Serves :mod:`callboard.kernel.blas`: one handle with a workspace of its own.

    A plan is the finished call, ``plan(stream, *dynamic)``. Making one costs microseconds, so plans are made inline,
    but for those that need a kernel of ours. Products (``Gemm``) that come again with the same arguments are enqueued
    as graphs: their kernels have no state but their arguments, whatever context they are recorded in.
    """

    name = "blas"

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

    # -- level 1 -------------------------------------------------------------------------------------------------------

    @prepares(blas.Axpy, inline=True)
    def plan_axpy(self, op: blas.Axpy) -> Run:
        return self.cublas.guarded(level1.axpy(self.cublas, op), "axpy")

    @launches(blas.Axpy)
    def axpy(self, stream: CudaStream, plan: Run, x: int, y: int, alpha: Any) -> None:
        plan(stream, x, y, alpha)

    @prepares(blas.Scal, inline=True)
    def plan_scal(self, op: blas.Scal) -> Run:
        return self.cublas.guarded(level1.scal(self.cublas, op), "scal")

    @launches(blas.Scal)
    def scal(self, stream: CudaStream, plan: Run, x: int, alpha: Any) -> None:
        plan(stream, x, alpha)

    @prepares(blas.Copy, inline=True)
    def plan_copy(self, op: blas.Copy) -> Run:
        return self.cublas.guarded(level1.copy(self.cublas, op), "copy")

    @launches(blas.Copy)
    def copy(self, stream: CudaStream, plan: Run, x: int, out: int) -> None:
        plan(stream, x, out)

    @prepares(blas.Swap, inline=True)
    def plan_swap(self, op: blas.Swap) -> Run:
        return self.cublas.guarded(level1.swap(self.cublas, op), "swap")

    @launches(blas.Swap)
    def swap(self, stream: CudaStream, plan: Run, x: int, y: int) -> None:
        plan(stream, x, y)

    @prepares(blas.Rot, inline=True)
    def plan_rot(self, op: blas.Rot) -> Run:
        return self.cublas.guarded(level1.rot(self.cublas, op), "rot")

    @launches(blas.Rot)
    def rot(self, stream: CudaStream, plan: Run, x: int, y: int, c: Any, s: Any) -> None:
        plan(stream, x, y, c, s)

    @prepares(blas.Dot, blas.Dotu, blas.Dotc, inline=True)
    def plan_dot(self, op: blas.Dot | blas.Dotu | blas.Dotc) -> Run:
        return self.cublas.guarded(level1.dot(self.cublas, op), _name(op))

    @launches(blas.Dot, blas.Dotu, blas.Dotc)
    def dot(self, stream: CudaStream, plan: Run, x: int, y: int, out: int) -> None:
        plan(stream, x, y, out)

    @prepares(blas.Nrm2, blas.Asum)
    def plan_norm(self, op: blas.Nrm2 | blas.Asum) -> Run:
        return self.cublas.guarded(level1.norm(self.cublas, op), _name(op))

    @prepares(blas.Iamax, blas.Iamin)
    def plan_index(self, op: blas.Iamax | blas.Iamin) -> Run:
        return self.cublas.guarded(level1.index(self.cublas, op), _name(op))

    @launches(blas.Nrm2, blas.Asum, blas.Iamax, blas.Iamin)
    def reduction(self, stream: CudaStream, plan: Run, x: int, out: int) -> None:
        plan(stream, x, out)

    # -- level 2 -------------------------------------------------------------------------------------------------------

    @prepares(blas.Gemv, inline=True)
    def plan_gemv(self, op: blas.Gemv) -> Run:
        return self.cublas.guarded(level2.gemv(self.cublas, op), "gemv")

    @launches(blas.Gemv)
    def gemv(
        self, stream: CudaStream, plan: Run, a: int, x: int, out: int, y: int | None, alpha: Any, beta: Any
    ) -> None:
        plan(stream, a, x, out, y, alpha, beta)

    @prepares(blas.Ger, blas.Geru, blas.Gerc, inline=True)
    def plan_ger(self, op: blas.Ger | blas.Geru | blas.Gerc) -> Run:
        return self.cublas.guarded(level2.ger(self.cublas, op), _name(op))

    @launches(blas.Ger, blas.Geru, blas.Gerc)
    def ger(self, stream: CudaStream, plan: Run, x: int, y: int, a: int, alpha: Any) -> None:
        plan(stream, x, y, a, alpha)

    # -- level 3 -------------------------------------------------------------------------------------------------------

    @prepares(blas.Gemm, inline=True)
    def plan_gemm(self, op: blas.Gemm) -> Run:
        return self.repeats.of(level3.gemm(self.cublas, op))

    @launches(blas.Gemm)
    def gemm(
        self, stream: CudaStream, plan: Run, a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        plan(stream, a, b, out, c, alpha, beta)

    @prepares(blas.Geam, inline=True)
    def plan_geam(self, op: blas.Geam) -> Run:
        return self.cublas.guarded(level3.geam(self.cublas, op), "geam")

    @launches(blas.Geam)
    def geam(self, stream: CudaStream, plan: Run, a: int, b: int, out: int, alpha: Any, beta: Any) -> None:
        plan(stream, a, b, out, alpha, beta)

    @prepares(blas.Syrk, blas.Herk, inline=True)
    def plan_rank_k(self, op: blas.Syrk | blas.Herk) -> Run:
        return self.cublas.guarded(level3.rank_k(self.cublas, op), _name(op))

    @launches(blas.Syrk, blas.Herk)
    def rank_k(self, stream: CudaStream, plan: Run, a: int, c: int, alpha: Any, beta: Any) -> None:
        plan(stream, a, c, alpha, beta)

    @prepares(blas.Symm, blas.Hemm, inline=True)
    def plan_two_sided(self, op: blas.Symm | blas.Hemm) -> Run:
        return self.cublas.guarded(level3.two_sided(self.cublas, op), _name(op))

    @launches(blas.Symm, blas.Hemm)
    def two_sided(
        self, stream: CudaStream, plan: Run, a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        plan(stream, a, b, out, c, alpha, beta)

    @prepares(blas.Trsm, blas.Trmm, inline=True)
    def plan_triangular(self, op: blas.Trsm | blas.Trmm) -> Run:
        return self.cublas.guarded(level3.triangular(self.cublas, op), _name(op))

    @launches(blas.Trsm, blas.Trmm)
    def triangular(self, stream: CudaStream, plan: Run, a: int, b: int, alpha: Any) -> None:
        plan(stream, a, b, alpha)

    # -- batches -------------------------------------------------------------------------------------------------------

    @prepares(blas.GemmStridedBatched, inline=True)
    def plan_strided_batched(self, op: blas.GemmStridedBatched) -> Run:
        return self.cublas.guarded(batched.strided_batched(self.cublas, op), "gemm_strided_batched_ex")

    @launches(blas.GemmStridedBatched)
    def strided_batched(
        self, stream: CudaStream, plan: Run, a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        plan(stream, a, b, out, c, alpha, beta)

    @prepares(blas.GemmBatched)
    def plan_pointer_batched(self, op: blas.GemmBatched) -> Run:
        return self.cublas.guarded(batched.pointer_batched(self.cublas, op), "gemm_batched_ex")

    @launches(blas.GemmBatched)
    def pointer_batched(
        self, stream: CudaStream, plan: Run, a: list[int], b: list[int], out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        plan(stream, a, b, out, c, alpha, beta)

    @prepares(blas.GemmGrouped)
    def plan_grouped(self, op: blas.GemmGrouped) -> Run:
        return self.cublas.guarded(batched.grouped(self.cublas, op), "gemm_grouped_batched_ex")

    @launches(blas.GemmGrouped)
    def grouped(
        self, stream: CudaStream, plan: Run, a: list[int], b: list[int], c: list[int], alpha: Any, beta: Any
    ) -> None:
        plan(stream, a, b, c, alpha, beta)


def _name(op: Op[Any, Any]) -> str:
    """``"asum"``, for texts of errors where one method plans several ops."""
    return type(op).__name__.lower()
