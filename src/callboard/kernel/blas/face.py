"""``BlasFace``: what stands behind ``dev.blas``.

One method per message, named after it, with the message's fields as parameters; the message's docstring says what
they mean. A method makes the message and submits it, nothing else: it is on the path of every small product.
Everything raises at the call ``TypeError`` (not a ref, not a number), ``ShapeError``, ``DeviceMismatch``,
``GpuRefStale`` and ``MailboxFull``, and sends nothing then.
"""

from collections.abc import Sequence
from typing import overload

from callboard.core.mode import Mode
from callboard.core.operand import Scalar
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
from callboard.kernel.blas.batched import GemmBatched, GemmGrouped, GemmStridedBatched
from callboard.kernel.blas.level1 import (
    Asum,
    Axpy,
    Copy,
    Dot,
    Dotc,
    Dotu,
    Iamax,
    Iamin,
    Nrm2,
    Rot,
    Scal,
    Swap,
    VectorPair,
)
from callboard.kernel.blas.level2 import Gemv, Ger, Gerc, Geru
from callboard.kernel.blas.level3 import Geam, Gemm, Hemm, Herk, Symm, Syrk, Trmm, Trsm
from callboard.kernel.face import Face

__all__ = ["BlasFace"]


class BlasFace(Face[Mode]):
    """BLAS on a device."""

    __slots__ = ()

    # -- matrices ------------------------------------------------------------------------------------------------------

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

    # -- a matrix and vectors ------------------------------------------------------------------------------------------

    def gemv(
        self,
        a: GpuRef[Mode],
        x: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        y: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        transpose: bool = False,
        conj: bool = False,
    ) -> GpuRef[Mode]:
        """``out = alpha * op(a) @ x + beta * y``."""
        answer: GpuRef[Mode] = self._submit(
            Gemv(a=a, x=x, out=out, y=y, alpha=alpha, beta=beta, transpose=transpose, conj=conj)
        )
        return answer

    def ger(self, x: GpuRef[Mode], y: GpuRef[Mode], a: GpuRef[Mode], *, alpha: Scalar = 1.0) -> GpuRef[Mode]:
        """``a += alpha * outer(x, y)`` of real arrays; answers ``a``."""
        answer: GpuRef[Mode] = self._submit(Ger(x=x, y=y, a=a, alpha=alpha))
        return answer

    def geru(self, x: GpuRef[Mode], y: GpuRef[Mode], a: GpuRef[Mode], *, alpha: Scalar = 1.0) -> GpuRef[Mode]:
        """``a += alpha * outer(x, y)`` of complex arrays; answers ``a``."""
        answer: GpuRef[Mode] = self._submit(Geru(x=x, y=y, a=a, alpha=alpha))
        return answer

    def gerc(self, x: GpuRef[Mode], y: GpuRef[Mode], a: GpuRef[Mode], *, alpha: Scalar = 1.0) -> GpuRef[Mode]:
        """``a += alpha * outer(x, conj(y))``; answers ``a``."""
        answer: GpuRef[Mode] = self._submit(Gerc(x=x, y=y, a=a, alpha=alpha))
        return answer

    # -- vectors -------------------------------------------------------------------------------------------------------

    def axpy(self, x: GpuRef[Mode], y: GpuRef[Mode], *, alpha: Scalar = 1.0) -> GpuRef[Mode]:
        """``y += alpha * x``; answers ``y``."""
        answer: GpuRef[Mode] = self._submit(Axpy(x=x, y=y, alpha=alpha))
        return answer

    def scal(self, x: GpuRef[Mode], alpha: Scalar) -> GpuRef[Mode]:
        """``x *= alpha``; answers ``x``."""
        answer: GpuRef[Mode] = self._submit(Scal(x=x, alpha=alpha))
        return answer

    def copy(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``out = x``. For strides that BLAS does not know, and for other dtypes, there is ``dev.copy``."""
        answer: GpuRef[Mode] = self._submit(Copy(x=x, out=out))
        return answer

    def swap(self, x: GpuRef[Mode], y: GpuRef[Mode]) -> VectorPair[Mode]:
        """Exchange the elements of ``x`` and ``y``; answers both."""
        answer: VectorPair[Mode] = self._submit(Swap(x=x, y=y))
        return answer

    def rot(self, x: GpuRef[Mode], y: GpuRef[Mode], c: Scalar, s: Scalar) -> VectorPair[Mode]:
        """Plane rotation ``x, y = c * x + s * y, c * y - conj(s) * x``; answers both."""
        answer: VectorPair[Mode] = self._submit(Rot(x=x, y=y, c=c, s=s))
        return answer

    @overload
    def dot(self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: None = None) -> Reply[float]: ...
    @overload
    def dot(self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: GpuRef[Mode]) -> GpuRef[Mode]: ...
    def dot(self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> Reply[float] | GpuRef[Mode]:
        """``sum(x * y)`` of real vectors; 0 for empty ones. Answers the number, or ``out``."""
        answer: Reply[float] | GpuRef[Mode] = self._submit(Dot(x=x, y=y, out=out))
        return answer

    @overload
    def dotu(self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: None = None) -> Reply[complex]: ...
    @overload
    def dotu(self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: GpuRef[Mode]) -> GpuRef[Mode]: ...
    def dotu(
        self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: GpuRef[Mode] | None = None
    ) -> Reply[complex] | GpuRef[Mode]:
        """``sum(x * y)`` of complex vectors; 0 for empty ones. Answers the number, or ``out``."""
        answer: Reply[complex] | GpuRef[Mode] = self._submit(Dotu(x=x, y=y, out=out))
        return answer

    @overload
    def dotc(self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: None = None) -> Reply[complex]: ...
    @overload
    def dotc(self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: GpuRef[Mode]) -> GpuRef[Mode]: ...
    def dotc(
        self, x: GpuRef[Mode], y: GpuRef[Mode], *, out: GpuRef[Mode] | None = None
    ) -> Reply[complex] | GpuRef[Mode]:
        """``sum(conj(x) * y)`` of complex vectors; 0 for empty ones. Answers the number, or ``out``."""
        answer: Reply[complex] | GpuRef[Mode] = self._submit(Dotc(x=x, y=y, out=out))
        return answer

    @overload
    def nrm2(self, x: GpuRef[Mode], *, out: None = None) -> Reply[float]: ...
    @overload
    def nrm2(self, x: GpuRef[Mode], *, out: GpuRef[Mode]) -> GpuRef[Mode]: ...
    def nrm2(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> Reply[float] | GpuRef[Mode]:
        """Euclidean length ``sqrt(sum(abs(x) ** 2))``. Answers the number, or ``out``."""
        answer: Reply[float] | GpuRef[Mode] = self._submit(Nrm2(x=x, out=out))
        return answer

    @overload
    def asum(self, x: GpuRef[Mode], *, out: None = None) -> Reply[float]: ...
    @overload
    def asum(self, x: GpuRef[Mode], *, out: GpuRef[Mode]) -> GpuRef[Mode]: ...
    def asum(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> Reply[float] | GpuRef[Mode]:
        """``sum(abs(x))``, of complex vectors ``sum(abs(re) + abs(im))``. Answers the number, or ``out``."""
        answer: Reply[float] | GpuRef[Mode] = self._submit(Asum(x=x, out=out))
        return answer

    @overload
    def iamax(self, x: GpuRef[Mode], *, out: None = None) -> Reply[int]: ...
    @overload
    def iamax(self, x: GpuRef[Mode], *, out: GpuRef[Mode]) -> GpuRef[Mode]: ...
    def iamax(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> Reply[int] | GpuRef[Mode]:
        """Position of the first element of the largest magnitude. Answers the number, or ``out``."""
        answer: Reply[int] | GpuRef[Mode] = self._submit(Iamax(x=x, out=out))
        return answer

    @overload
    def iamin(self, x: GpuRef[Mode], *, out: None = None) -> Reply[int]: ...
    @overload
    def iamin(self, x: GpuRef[Mode], *, out: GpuRef[Mode]) -> GpuRef[Mode]: ...
    def iamin(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> Reply[int] | GpuRef[Mode]:
        """Position of the first element of the smallest magnitude. Answers the number, or ``out``."""
        answer: Reply[int] | GpuRef[Mode] = self._submit(Iamin(x=x, out=out))
        return answer
