"""Vectors: what ``dev.blas`` has of BLAS level 1."""

from typing import overload

from callboard.core.mode import Mode
from callboard.core.operand import Scalar
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
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
from callboard.kernel.face import Face

__all__ = ["Level1Face"]


class Level1Face(Face[Mode]):
    """Vectors on a device."""

    __slots__ = ()

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
