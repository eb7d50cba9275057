"""Many products at once: the batched calls of ``dev.blas``."""

from collections.abc import Sequence

from callboard.core.mode import Mode
from callboard.core.operand import Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas.batched import GemmBatched, GemmGrouped, GemmStridedBatched
from callboard.kernel.face import Face

__all__ = ["BatchedFace"]


class BatchedFace(Face[Mode]):
    """Many products on a device."""

    __slots__ = ()

    def gemm_strided_batched(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        transpose_a: bool = False,
        transpose_b: bool = False,
        conj_a: bool = False,
        conj_b: bool = False,
        tf32: bool | None = None,
    ) -> GpuRef[Mode]:
        """``out[i] = alpha * op(a[i]) @ op(b[i]) + beta * c[i]`` for stacks of matrices."""
        answer: GpuRef[Mode] = self._submit(
            GemmStridedBatched(
                a=a,
                b=b,
                out=out,
                c=c,
                alpha=alpha,
                beta=beta,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                conj_a=conj_a,
                conj_b=conj_b,
                tf32=tf32,
            )
        )
        return answer

    def gemm_batched(
        self,
        a: Sequence[GpuRef[Mode]],
        b: Sequence[GpuRef[Mode]],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        transpose_a: bool = False,
        transpose_b: bool = False,
        conj_a: bool = False,
        conj_b: bool = False,
        tf32: bool | None = None,
    ) -> GpuRef[Mode]:
        """``out[i] = alpha * op(a[i]) @ op(b[i]) + beta * c[i]`` for matrices of one shape that lie anywhere."""
        answer: GpuRef[Mode] = self._submit(
            GemmBatched(
                a=tuple(a),
                b=tuple(b),
                out=out,
                c=c,
                alpha=alpha,
                beta=beta,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                conj_a=conj_a,
                conj_b=conj_b,
                tf32=tf32,
            )
        )
        return answer

    def gemm_grouped(
        self,
        a: Sequence[GpuRef[Mode]],
        b: Sequence[GpuRef[Mode]],
        c: Sequence[GpuRef[Mode]],
        *,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        transpose_a: bool = False,
        transpose_b: bool = False,
        conj_a: bool = False,
        conj_b: bool = False,
        tf32: bool | None = None,
    ) -> tuple[GpuRef[Mode], ...]:
        """``c[i] = alpha * op(a[i]) @ op(b[i]) + beta * c[i]``, each of its own shape; answers the tuple ``c``."""
        answer: tuple[GpuRef[Mode], ...] = self._submit(
            GemmGrouped(
                a=tuple(a),
                b=tuple(b),
                c=tuple(c),
                alpha=alpha,
                beta=beta,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                conj_a=conj_a,
                conj_b=conj_b,
                tf32=tf32,
            )
        )
        return answer
