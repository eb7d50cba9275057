"""``SparseFace``: what stands behind ``dev.sparse``.

One method per message, named after it, with the message's fields as parameters, and the ways from and to
:mod:`scipy.sparse`. Everything raises at the call ``TypeError`` (not a ref, not a number), ``ShapeError``,
``DeviceMismatch``, ``GpuRefStale`` and ``MailboxFull``, and sends nothing then.

What the arrays of a matrix hold is seen by no call. Where it is no matrix (an index out of range, pointers that fall),
an op on the CPU fails with ``ShapeError`` when it is awaited. On CUDA only :meth:`SparseFace.check` looks: any other op
has undefined results then, and may poison the context, which is replaced. Check arrays of unknown origin first.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from callboard.core.mode import Mode
from callboard.core.operand import Scalar, operands_of
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
from callboard.kernel.face import Face, Submit
from callboard.kernel.sparse.conversions import Check, Convert, FromDense, ToDense, Transpose
from callboard.kernel.sparse.formats import BlockedEllRef, BsrRef, CooRef, CscRef, CsrRef, Index
from callboard.kernel.sparse.host import FORMS, Duplicates, host_parts, scipy_matrix
from callboard.kernel.sparse.ordering import Sort
from callboard.kernel.sparse.products import SpGemm, SpMm, SpMv
from callboard.kernel.sparse.sampled import Sddmm
from callboard.kernel.sparse.triangular import SpSm, SpSv

__all__ = ["SparseFace"]


class SparseFace(Face[Mode]):
    """Sparse matrices on a device.

    Indices out of range are refused by every op on the CPU. On CUDA :meth:`check` alone sees them: elsewhere they are
    undefined behaviour, and may poison the context.
    """

    __slots__ = ("_put",)

    def __init__(self, submit: Submit, put: Callable[[Any], Any]) -> None:
        super().__init__(submit)
        self._put = put

    # -- products ------------------------------------------------------------------------------------------------------

    def sp_mv(
        self,
        a: CsrRef | CscRef | CooRef | BsrRef,
        x: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        y: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        transpose: bool = False,
        conj: bool = False,
        deterministic: bool = False,
    ) -> GpuRef[Mode]:
        """``out = alpha * op(a) @ x + beta * y``."""
        answer: GpuRef[Mode] = self._submit(
            SpMv(
                a=a,
                x=x,
                out=out,
                y=y,
                alpha=alpha,
                beta=beta,
                transpose=transpose,
                conj=conj,
                deterministic=deterministic,
            )
        )
        return answer

    def sp_mm(
        self,
        a: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef,
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        transpose: bool = False,
        conj: bool = False,
        deterministic: bool = False,
    ) -> GpuRef[Mode]:
        """``out = alpha * op(a) @ b + beta * c`` with a dense ``b``."""
        answer: GpuRef[Mode] = self._submit(
            SpMm(
                a=a,
                b=b,
                out=out,
                c=c,
                alpha=alpha,
                beta=beta,
                transpose=transpose,
                conj=conj,
                deterministic=deterministic,
            )
        )
        return answer

    def sp_gemm(
        self,
        a: CsrRef,
        b: CsrRef,
        *,
        out: CsrRef | None = None,
        count: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        deterministic: bool = False,
    ) -> CsrRef:
        """``out = alpha * a @ b``, sparse; await it for its number of entries."""
        answer: CsrRef = self._submit(SpGemm(a=a, b=b, out=out, count=count, alpha=alpha, deterministic=deterministic))
        return answer

    def sddmm(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        c: CsrRef | BsrRef,
        *,
        out: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
    ) -> GpuRef[Mode]:
        """``out = alpha * (a @ b)[entries of c] + beta * c.values``: the values of the result."""
        answer: GpuRef[Mode] = self._submit(Sddmm(a=a, b=b, c=c, out=out, alpha=alpha, beta=beta))
        return answer

    # -- solves --------------------------------------------------------------------------------------------------------

    def sp_sv(
        self,
        a: CsrRef | CscRef | CooRef,
        x: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        lower: bool = True,
        unit: bool = False,
        transpose: bool = False,
        conj: bool = False,
    ) -> GpuRef[Mode]:
        """``out`` with ``op(a) @ out = alpha * x``, ``a`` triangular."""
        answer: GpuRef[Mode] = self._submit(
            SpSv(a=a, x=x, out=out, alpha=alpha, lower=lower, unit=unit, transpose=transpose, conj=conj)
        )
        return answer

    def sp_sm(
        self,
        a: CsrRef | CscRef | CooRef,
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        lower: bool = True,
        unit: bool = False,
        transpose: bool = False,
        conj: bool = False,
    ) -> GpuRef[Mode]:
        """``out`` with ``op(a) @ out = alpha * b``, ``a`` triangular."""
        answer: GpuRef[Mode] = self._submit(
            SpSm(a=a, b=b, out=out, alpha=alpha, lower=lower, unit=unit, transpose=transpose, conj=conj)
        )
        return answer

    # -- conversions ---------------------------------------------------------------------------------------------------

    def to_dense(
        self, a: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef, *, out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """The matrix with its zeros."""
        answer: GpuRef[Mode] = self._submit(ToDense(a=a, out=out))
        return answer

    def from_dense(
        self,
        dense: GpuRef[Mode],
        *,
        format: Literal["csr", "csc", "coo", "bsr", "blocked_ell"] = "csr",
        index: Index = "i32",
        block: tuple[int, int] | None = None,
        out: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef | None = None,
        count: GpuRef[Mode] | None = None,
    ) -> Any:
        """The entries that are not 0, or the blocks with some, as a matrix of ``format``; await it for their number."""
        return self._submit(FromDense(dense=dense, format=format, index=index, block=block, out=out, count=count))

    def convert(
        self,
        a: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef,
        format: Literal["csr", "csc", "coo", "bsr", "blocked_ell"],
        *,
        block: tuple[int, int] | None = None,
        out: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef | None = None,
        count: GpuRef[Mode] | None = None,
    ) -> Any:
        """The same matrix in another format; await it for its extents where they depend on the data."""
        return self._submit(Convert(a=a, format=format, block=block, out=out, count=count))

    def transpose(self, a: BsrRef, *, out: BsrRef | None = None) -> BsrRef:
        """The transpose of a matrix of blocks; that of a ``CsrRef`` or ``CscRef`` is ``a.T``."""
        answer: BsrRef = self._submit(Transpose(a=a, out=out))
        return answer

    def sort(
        self,
        a: CsrRef | CscRef | CooRef,
        *,
        duplicates: Duplicates = "keep",
        out: CsrRef | CscRef | CooRef | None = None,
        count: GpuRef[Mode] | None = None,
    ) -> Any:
        """The same matrix, of the same class, with its indices sorted and its duplicates kept, summed or refused."""
        return self._submit(Sort(a=a, duplicates=duplicates, out=out, count=count))

    def check(
        self,
        a: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef,
        *,
        ordered: bool = False,
        duplicates: Literal["refuse", "keep"] = "refuse",
    ) -> Reply[None]:
        """See that the arrays hold a matrix of their format; the reply fails with ``ShapeError`` otherwise.

        On CUDA no other op looks: ask this of arrays whose indices may be wrong before they are used.
        """
        answer: Reply[None] = self._submit(Check(a=a, ordered=ordered, duplicates=duplicates))
        return answer

    # -- SciPy ---------------------------------------------------------------------------------------------------------

    def from_scipy(self, matrix: Any, index: Index = "i32", duplicates: Duplicates = "sum") -> Any:
        """A :mod:`scipy.sparse` matrix on the device, as a ``CsrRef``, ``CscRef``, ``CooRef`` or ``BsrRef``.

        Args:
            matrix: In CSR, CSC, COO or BSR form; it is checked, and its indices are sorted.
            index: dtype of the indices, i32 or i64.
            duplicates: Entries (blocks, in BSR form) that occur more than once: ``"sum"`` them, ``"keep"`` all, or
                ``"refuse"``. Kept ones, which lie side by side, add up in products, in :meth:`to_dense` and in
                :meth:`convert` to blocks; solves take no matrix with such.

        Raises:
            TypeError: No such matrix.
            ShapeError: Indices out of range, or too large for ``index``; duplicates that are refused.
        """
        form, arrays, shape = host_parts(matrix, index, duplicates)
        return form(**{name: self._put(array) for name, array in arrays.items()}, shape=shape)

    def to_scipy(self, matrix: CsrRef | CscRef | CooRef | BsrRef) -> Any:
        """The matrix as a :mod:`scipy.sparse` array in the same format; halves become f32.

        Of a :mod:`callboard.sync` device the array itself, else something to await.

        Raises:
            TypeError: A ``BlockedEllRef``, which SciPy has no form for.
        """
        if type(matrix) not in FORMS.values():
            raise TypeError(
                f"to_scipy: SciPy has no form for a {type(matrix).__name__}; dev.sparse.convert it to 'bsr'"
            )
        gets = [ref.get() for ref in operands_of(matrix).values()]
        if isinstance(gets[0], Reply):
            return _fetched(matrix, gets)
        return scipy_matrix(matrix, gets)


async def _fetched(matrix: CsrRef | CscRef | CooRef | BsrRef, replies: list[Awaitable[Any]]) -> Any:
    return scipy_matrix(matrix, [await reply for reply in replies])
