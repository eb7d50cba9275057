"""``SolverFace``: what stands behind ``dev.solver``.

One method per message, named after it, with the message's fields as parameters; the message's docstring says what they
mean. Everything raises at the call ``TypeError`` (not a ref), ``ShapeError``, ``DeviceMismatch``, ``GpuRefStale`` and
``MailboxFull``, and sends nothing then; numerical failures come with the reply.
"""

from typing import Literal

from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.face import Face
from callboard.kernel.solver.batched import (
    GelsBatched,
    GeqrfBatched,
    GesvdjBatched,
    GesvdjValuesBatched,
    GetrfBatched,
    GetrsBatched,
    PotrfBatched,
    PotrsBatched,
    SyevBatched,
)
from callboard.kernel.solver.cholesky import Cholesky, CholeskyInverse, CholeskySolve
from callboard.kernel.solver.eigen import (
    EigRangeResult,
    EigResult,
    Geev,
    GeevValues,
    Syevd,
    SyevdValues,
    SyevdxIndex,
    SyevdxRange,
    Sygvd,
    SygvdValues,
)
from callboard.kernel.solver.lu import Determinant, Inverse, Lu, LuResult, LuSolve, Solve, Transpose
from callboard.kernel.solver.qr import Geqrf, HouseholderResult, LeastSquares, Orgqr, Ormqr, Qr, QrResult
from callboard.kernel.solver.sparse import SparseCholesky, SparseLu, SparseQr
from callboard.kernel.solver.svd import Svd, SvdMethod, SvdResult, SvdValues
from callboard.kernel.sparse.formats import CsrRef

__all__ = ["SolverFace"]


class SolverFace(Face[Mode]):
    """Linear algebra on a device."""

    __slots__ = ()

    # -- LU ------------------------------------------------------------------------------------------------------------

    def lu(
        self, a: GpuRef[Mode], *, lu: GpuRef[Mode] | None = None, pivots: GpuRef[Mode] | None = None
    ) -> LuResult[Mode]:
        """LU factorisation with partial pivoting."""
        answer: LuResult[Mode] = self._submit(Lu(a=a, lu=lu, pivots=pivots))
        return answer

    def lu_solve(
        self,
        lu: GpuRef[Mode],
        pivots: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        x: GpuRef[Mode] | None = None,
        transpose: Transpose = "n",
    ) -> GpuRef[Mode]:
        """Solve ``op(a) @ x = b`` with the factors of ``a``."""
        answer: GpuRef[Mode] = self._submit(LuSolve(lu=lu, pivots=pivots, b=b, x=x, transpose=transpose))
        return answer

    def solve(self, a: GpuRef[Mode], b: GpuRef[Mode], *, x: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """Solve ``a @ x = b`` (``getrf`` and ``getrs``), as ``numpy.linalg.solve``."""
        answer: GpuRef[Mode] = self._submit(Solve(a=a, b=b, x=x))
        return answer

    def inverse(self, a: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """The inverse of ``a``, by LU. To solve equations, ``Solve`` is faster and more accurate."""
        answer: GpuRef[Mode] = self._submit(Inverse(a=a, out=out))
        return answer

    def determinant(self, a: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """The determinant of ``a``, by LU, as a 0-d array; 0 where a pivot is exactly 0, 1 for an empty matrix."""
        answer: GpuRef[Mode] = self._submit(Determinant(a=a, out=out))
        return answer

    # -- Cholesky ------------------------------------------------------------------------------------------------------

    def cholesky(self, a: GpuRef[Mode], *, out: GpuRef[Mode] | None = None, lower: bool = True) -> GpuRef[Mode]:
        """Cholesky factor of a positive definite matrix, as ``scipy.linalg.cholesky``."""
        answer: GpuRef[Mode] = self._submit(Cholesky(a=a, out=out, lower=lower))
        return answer

    def cholesky_solve(
        self, factor: GpuRef[Mode], b: GpuRef[Mode], *, x: GpuRef[Mode] | None = None, lower: bool = True
    ) -> GpuRef[Mode]:
        """Solve ``a @ x = b`` with the Cholesky factor of ``a`` (``potrs``)."""
        answer: GpuRef[Mode] = self._submit(CholeskySolve(factor=factor, b=b, x=x, lower=lower))
        return answer

    def cholesky_inverse(
        self, factor: GpuRef[Mode], *, out: GpuRef[Mode] | None = None, lower: bool = True
    ) -> GpuRef[Mode]:
        """The inverse of ``a``, whole, from its Cholesky factor."""
        answer: GpuRef[Mode] = self._submit(CholeskyInverse(factor=factor, out=out, lower=lower))
        return answer

    # -- QR ------------------------------------------------------------------------------------------------------------

    def qr(
        self,
        a: GpuRef[Mode],
        *,
        q: GpuRef[Mode] | None = None,
        r: GpuRef[Mode] | None = None,
        mode: Literal["reduced", "complete"] = "reduced",
    ) -> QrResult[Mode]:
        """QR factorisation ``a = q @ r``, as ``numpy.linalg.qr`` (``geqrf``, ``orgqr`` or ``ungqr``)."""
        answer: QrResult[Mode] = self._submit(Qr(a=a, q=q, r=r, mode=mode))
        return answer

    def geqrf(
        self, a: GpuRef[Mode], *, h: GpuRef[Mode] | None = None, tau: GpuRef[Mode] | None = None
    ) -> HouseholderResult[Mode]:
        """QR factorisation in Householder form, for ``Orgqr`` and ``Ormqr``."""
        answer: HouseholderResult[Mode] = self._submit(Geqrf(a=a, h=h, tau=tau))
        return answer

    def orgqr(
        self, h: GpuRef[Mode], tau: GpuRef[Mode], *, q: GpuRef[Mode] | None = None, columns: int | None = None
    ) -> GpuRef[Mode]:
        """The first columns of Q from its Householder form (``orgqr``, of complex arrays ``ungqr``)."""
        answer: GpuRef[Mode] = self._submit(Orgqr(h=h, tau=tau, q=q, columns=columns))
        return answer

    def ormqr(
        self,
        h: GpuRef[Mode],
        tau: GpuRef[Mode],
        c: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        side: Literal["left", "right"] = "left",
        transpose: bool = False,
    ) -> GpuRef[Mode]:
        """Multiply by Q in its Householder form, without forming it (``ormqr``, of complex arrays ``unmqr``)."""
        answer: GpuRef[Mode] = self._submit(Ormqr(h=h, tau=tau, c=c, out=out, side=side, transpose=transpose))
        return answer

    def least_squares(self, a: GpuRef[Mode], b: GpuRef[Mode], *, x: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``x`` with the least ``norm(a @ x - b)``; the shortest of them where ``m < n``. By QR, as ``gels``."""
        answer: GpuRef[Mode] = self._submit(LeastSquares(a=a, b=b, x=x))
        return answer

    # -- singular values -----------------------------------------------------------------------------------------------

    def svd(
        self,
        a: GpuRef[Mode],
        *,
        u: GpuRef[Mode] | None = None,
        s: GpuRef[Mode] | None = None,
        vt: GpuRef[Mode] | None = None,
        full_matrices: bool = False,
        method: SvdMethod = "auto",
    ) -> SvdResult[Mode]:
        """Singular value decomposition ``a = u * s @ vt``, as ``numpy.linalg.svd``."""
        answer: SvdResult[Mode] = self._submit(Svd(a=a, u=u, s=s, vt=vt, full_matrices=full_matrices, method=method))
        return answer

    def svd_values(self, a: GpuRef[Mode], *, s: GpuRef[Mode] | None = None, method: SvdMethod = "auto") -> GpuRef[Mode]:
        """The singular values of ``a``, without vectors."""
        answer: GpuRef[Mode] = self._submit(SvdValues(a=a, s=s, method=method))
        return answer

    # -- eigenvalues ---------------------------------------------------------------------------------------------------

    def syevd(
        self,
        a: GpuRef[Mode],
        *,
        w: GpuRef[Mode] | None = None,
        v: GpuRef[Mode] | None = None,
        lower: bool = True,
        method: Literal["syevd", "syevj"] = "syevd",
    ) -> EigResult[Mode]:
        """Eigenvalues and vectors of a symmetric or Hermitian matrix, as ``numpy.linalg.eigh``."""
        answer: EigResult[Mode] = self._submit(Syevd(a=a, w=w, v=v, lower=lower, method=method))
        return answer

    def syevd_values(self, a: GpuRef[Mode], *, w: GpuRef[Mode] | None = None, lower: bool = True) -> GpuRef[Mode]:
        """The eigenvalues of a symmetric or Hermitian matrix, without vectors."""
        answer: GpuRef[Mode] = self._submit(SyevdValues(a=a, w=w, lower=lower))
        return answer

    def syevdx_index(
        self,
        a: GpuRef[Mode],
        *,
        w: GpuRef[Mode] | None = None,
        v: GpuRef[Mode] | None = None,
        start: int = 0,
        stop: int | None = None,
        lower: bool = True,
    ) -> EigResult[Mode]:
        """Some eigenvalues of a symmetric or Hermitian matrix by their positions, and their vectors."""
        answer: EigResult[Mode] = self._submit(SyevdxIndex(a=a, w=w, v=v, start=start, stop=stop, lower=lower))
        return answer

    def syevdx_range(
        self,
        a: GpuRef[Mode],
        low: float,
        high: float,
        *,
        w: GpuRef[Mode] | None = None,
        v: GpuRef[Mode] | None = None,
        found: GpuRef[Mode] | None = None,
        lower: bool = True,
    ) -> EigRangeResult[Mode]:
        """The eigenvalues of a symmetric or Hermitian matrix with ``low < w <= high``, and their vectors."""
        answer: EigRangeResult[Mode] = self._submit(
            SyevdxRange(a=a, low=low, high=high, w=w, v=v, found=found, lower=lower)
        )
        return answer

    def sygvd(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        w: GpuRef[Mode] | None = None,
        v: GpuRef[Mode] | None = None,
        itype: Literal[1, 2, 3] = 1,
        lower: bool = True,
    ) -> EigResult[Mode]:
        """The generalised problem with symmetric or Hermitian ``a`` and positive definite ``b``."""
        answer: EigResult[Mode] = self._submit(Sygvd(a=a, b=b, w=w, v=v, itype=itype, lower=lower))
        return answer

    def sygvd_values(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        w: GpuRef[Mode] | None = None,
        itype: Literal[1, 2, 3] = 1,
        lower: bool = True,
    ) -> GpuRef[Mode]:
        """The eigenvalues of the generalised problem with symmetric or Hermitian ``a`` and positive definite ``b``."""
        answer: GpuRef[Mode] = self._submit(SygvdValues(a=a, b=b, w=w, itype=itype, lower=lower))
        return answer

    def geev(self, a: GpuRef[Mode], *, w: GpuRef[Mode] | None = None, v: GpuRef[Mode] | None = None) -> EigResult[Mode]:
        """Eigenvalues and right eigenvectors of any square matrix, as ``scipy.linalg.eig``."""
        answer: EigResult[Mode] = self._submit(Geev(a=a, w=w, v=v))
        return answer

    def geev_values(self, a: GpuRef[Mode], *, w: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """The eigenvalues of any square matrix, without vectors; always complex, ordered as by ``Geev``."""
        answer: GpuRef[Mode] = self._submit(GeevValues(a=a, w=w))
        return answer

    # -- batches -------------------------------------------------------------------------------------------------------

    def getrf_batched(
        self, a: GpuRef[Mode], *, lu: GpuRef[Mode] | None = None, pivots: GpuRef[Mode] | None = None
    ) -> LuResult[Mode]:
        """LU factorisations with partial pivoting."""
        answer: LuResult[Mode] = self._submit(GetrfBatched(a=a, lu=lu, pivots=pivots))
        return answer

    def getrs_batched(
        self,
        lu: GpuRef[Mode],
        pivots: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        x: GpuRef[Mode] | None = None,
        transpose: Transpose = "n",
    ) -> GpuRef[Mode]:
        """Solve ``op(a[i]) @ x[i] = b[i]`` with the factors of ``GetrfBatched``."""
        answer: GpuRef[Mode] = self._submit(GetrsBatched(lu=lu, pivots=pivots, b=b, x=x, transpose=transpose))
        return answer

    def potrf_batched(self, a: GpuRef[Mode], *, out: GpuRef[Mode] | None = None, lower: bool = True) -> GpuRef[Mode]:
        """Cholesky factors."""
        answer: GpuRef[Mode] = self._submit(PotrfBatched(a=a, out=out, lower=lower))
        return answer

    def potrs_batched(
        self, factor: GpuRef[Mode], b: GpuRef[Mode], *, x: GpuRef[Mode] | None = None, lower: bool = True
    ) -> GpuRef[Mode]:
        """Solve ``a[i] @ x[i] = b[i]`` with the factors of ``PotrfBatched``."""
        answer: GpuRef[Mode] = self._submit(PotrsBatched(factor=factor, b=b, x=x, lower=lower))
        return answer

    def geqrf_batched(
        self, a: GpuRef[Mode], *, h: GpuRef[Mode] | None = None, tau: GpuRef[Mode] | None = None
    ) -> HouseholderResult[Mode]:
        """QR factorisations in Householder form."""
        answer: HouseholderResult[Mode] = self._submit(GeqrfBatched(a=a, h=h, tau=tau))
        return answer

    def gels_batched(self, a: GpuRef[Mode], b: GpuRef[Mode], *, x: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``x[i]`` with the least ``norm(a[i] @ x[i] - b[i])`` for tall or square matrices of full rank, by QR."""
        answer: GpuRef[Mode] = self._submit(GelsBatched(a=a, b=b, x=x))
        return answer

    def gesvdj_batched(
        self,
        a: GpuRef[Mode],
        *,
        u: GpuRef[Mode] | None = None,
        s: GpuRef[Mode] | None = None,
        vt: GpuRef[Mode] | None = None,
    ) -> SvdResult[Mode]:
        """Reduced singular value decompositions; on CUDA by Jacobi rotations."""
        answer: SvdResult[Mode] = self._submit(GesvdjBatched(a=a, u=u, s=s, vt=vt))
        return answer

    def gesvdj_values_batched(self, a: GpuRef[Mode], *, s: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """The singular values of several matrices, without vectors; on CUDA by Jacobi rotations."""
        answer: GpuRef[Mode] = self._submit(GesvdjValuesBatched(a=a, s=s))
        return answer

    def syev_batched(
        self, a: GpuRef[Mode], *, w: GpuRef[Mode] | None = None, v: GpuRef[Mode] | None = None, lower: bool = True
    ) -> EigResult[Mode]:
        """Eigenvalues and vectors of symmetric or Hermitian matrices."""
        answer: EigResult[Mode] = self._submit(SyevBatched(a=a, w=w, v=v, lower=lower))
        return answer

    # -- sparse matrices -----------------------------------------------------------------------------------------------

    def sparse_lu(
        self,
        a: CsrRef,
        b: GpuRef[Mode],
        *,
        x: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Solve ``a @ x = b`` for a sparse square ``a`` by LU; on CUDA by cuDSS, which must be installed."""
        answer: GpuRef[Mode] = self._submit(SparseLu(a=a, b=b, x=x))
        return answer

    def sparse_qr(
        self,
        a: CsrRef,
        b: GpuRef[Mode],
        *,
        x: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Solve ``a @ x = b`` for a sparse square ``a`` by QR; on the CPU by LU."""
        answer: GpuRef[Mode] = self._submit(SparseQr(a=a, b=b, x=x))
        return answer

    def sparse_cholesky(
        self,
        a: CsrRef,
        b: GpuRef[Mode],
        *,
        x: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Solve ``a @ x = b`` for a sparse positive definite ``a`` by Cholesky."""
        answer: GpuRef[Mode] = self._submit(SparseCholesky(a=a, b=b, x=x))
        return answer
