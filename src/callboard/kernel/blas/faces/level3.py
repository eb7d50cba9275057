"""Matrices: what ``dev.blas`` has of BLAS level 3."""

from callboard.core.mode import Mode
from callboard.core.operand import Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas.level3 import Geam, Gemm, Hemm, Herk, Symm, Syrk, Trmm, Trsm
from callboard.kernel.face import Face

__all__ = ["Level3Face"]


class Level3Face(Face[Mode]):
    """Matrices on a device."""

    __slots__ = ()

    def gemm(
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
        """``out = alpha * op(a) @ op(b) + beta * c``, row-major like NumPy."""
        answer: GpuRef[Mode] = self._submit(
            Gemm(
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

    def geam(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 1.0,
        transpose_a: bool = False,
        transpose_b: bool = False,
        conj_a: bool = False,
        conj_b: bool = False,
    ) -> GpuRef[Mode]:
        """``out = alpha * op(a) + beta * op(b)``."""
        answer: GpuRef[Mode] = self._submit(
            Geam(
                a=a,
                b=b,
                out=out,
                alpha=alpha,
                beta=beta,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                conj_a=conj_a,
                conj_b=conj_b,
            )
        )
        return answer

    def syrk(
        self,
        a: GpuRef[Mode],
        c: GpuRef[Mode],
        *,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        transpose: bool = False,
        lower: bool = True,
    ) -> GpuRef[Mode]:
        """One triangle of ``c = alpha * op(a) @ op(a).T + beta * c``; answers ``c``."""
        answer: GpuRef[Mode] = self._submit(Syrk(a=a, c=c, alpha=alpha, beta=beta, transpose=transpose, lower=lower))
        return answer

    def herk(
        self,
        a: GpuRef[Mode],
        c: GpuRef[Mode],
        *,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        transpose: bool = False,
        lower: bool = True,
    ) -> GpuRef[Mode]:
        """One triangle of ``c = alpha * op(a) @ conj(op(a)).T + beta * c``, Hermitian; answers ``c``."""
        answer: GpuRef[Mode] = self._submit(Herk(a=a, c=c, alpha=alpha, beta=beta, transpose=transpose, lower=lower))
        return answer

    def symm(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        left: bool = True,
        lower: bool = True,
    ) -> GpuRef[Mode]:
        """``out = alpha * a @ b + beta * c`` (``alpha * b @ a + beta * c`` unless ``left``) with a symmetric ``a``."""
        answer: GpuRef[Mode] = self._submit(
            Symm(a=a, b=b, out=out, c=c, alpha=alpha, beta=beta, left=left, lower=lower)
        )
        return answer

    def hemm(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        left: bool = True,
        lower: bool = True,
    ) -> GpuRef[Mode]:
        """``out = alpha * a @ b + beta * c`` (``alpha * b @ a + beta * c`` unless ``left``) with a Hermitian ``a``."""
        answer: GpuRef[Mode] = self._submit(
            Hemm(a=a, b=b, out=out, c=c, alpha=alpha, beta=beta, left=left, lower=lower)
        )
        return answer

    def trsm(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        alpha: Scalar = 1.0,
        left: bool = True,
        lower: bool = True,
        transpose: bool = False,
        conj: bool = False,
        unit_diagonal: bool = False,
    ) -> GpuRef[Mode]:
        """Solve ``op(a) @ x = alpha * b`` for a triangular ``a``; ``x`` takes the place of ``b``."""
        answer: GpuRef[Mode] = self._submit(
            Trsm(
                a=a,
                b=b,
                alpha=alpha,
                left=left,
                lower=lower,
                transpose=transpose,
                conj=conj,
                unit_diagonal=unit_diagonal,
            )
        )
        return answer

    def trmm(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        alpha: Scalar = 1.0,
        left: bool = True,
        lower: bool = True,
        transpose: bool = False,
        conj: bool = False,
        unit_diagonal: bool = False,
    ) -> GpuRef[Mode]:
        """``b = alpha * op(a) @ b`` with a triangular ``a``, in place; answers ``b``."""
        answer: GpuRef[Mode] = self._submit(
            Trmm(
                a=a,
                b=b,
                alpha=alpha,
                left=left,
                lower=lower,
                transpose=transpose,
                conj=conj,
                unit_diagonal=unit_diagonal,
            )
        )
        return answer
