"""A matrix and a vector: what ``dev.blas`` has of BLAS level 2."""

from callboard.core.mode import Mode
from callboard.core.operand import Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas.level2 import Gemv, Ger, Gerc, Geru
from callboard.kernel.face import Face

__all__ = ["Level2Face"]


class Level2Face(Face[Mode]):
    """A matrix and a vector on a device."""

    __slots__ = ()

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
