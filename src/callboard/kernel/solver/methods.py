"""The methods of ``dev.solver`` under NumPy's names."""

from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.api import Api
from callboard.kernel.solver.eigen import EigResult, Geev, Syevd
from callboard.kernel.solver.factor import Method, SparseFactor
from callboard.kernel.solver.lu import Determinant, Inverse
from callboard.kernel.solver.qr import LeastSquares
from callboard.kernel.sparse.formats import CooRef, CscRef, CsrRef

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Methods named as in NumPy and SciPy, for one matrix; ``dev.xp.linalg`` takes stacks of any dtypes."""

    __slots__ = ()

    def eigh(self, a: GpuRef[Mode]) -> EigResult[Mode]:
        """Eigenvalues and eigenvectors of a symmetric or Hermitian matrix: :class:`Syevd`."""
        answer: EigResult[Mode] = self._submit(Syevd(a=a))
        return answer

    def eig(self, a: GpuRef[Mode]) -> EigResult[Mode]:
        """Eigenvalues and right eigenvectors of any square matrix: :class:`Geev`."""
        answer: EigResult[Mode] = self._submit(Geev(a=a))
        return answer

    def inv(self, a: GpuRef[Mode]) -> GpuRef[Mode]:
        """The inverse of a square matrix: :class:`Inverse`."""
        answer: GpuRef[Mode] = self._submit(Inverse(a=a))
        return answer

    def det(self, a: GpuRef[Mode]) -> GpuRef[Mode]:
        """The determinant of a square matrix, 0-d: :class:`Determinant`."""
        answer: GpuRef[Mode] = self._submit(Determinant(a=a))
        return answer

    def lstsq(self, a: GpuRef[Mode], b: GpuRef[Mode]) -> GpuRef[Mode]:
        """The least-squares solution of a matrix of full rank: :class:`LeastSquares`.

        ``dev.xp.linalg.lstsq`` takes any rank, and also returns residuals, rank and singular values.
        """
        answer: GpuRef[Mode] = self._submit(LeastSquares(a=a, b=b))
        return answer

    def sparse_factor(self, a: CsrRef | CscRef | CooRef, *, method: Method = "lu") -> SparseFactor[Mode]:
        """A sparse matrix to solve systems with again and again, as ``scipy.sparse.linalg.splu``.

        Args:
            a: ``[n, n]`` in f32, f64, c64 or c128; its entries in any order, each at most once.
            method: ``"lu"``, ``"cholesky"`` of a positive definite matrix, or ``"qr"``.
        """
        return SparseFactor(self._submit, a, method)
