"""Products with sparse matrices."""

from typing import Annotated, ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import BoundedExtent, layout_of
from callboard.core.op import Op, Outputs, StructOutputs
from callboard.core.operand import In, Out, Role, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.checks import VALUES, check_addend, check_scalars, checked, dense_of, index_of, vector_of
from callboard.kernel.sparse.formats import INDEX_LIMIT, BlockedEllRef, BsrRef, CooRef, CscRef, CsrRef
from callboard.kernel.sparse.results import result_of

__all__ = ["SpGemm", "SpMm", "SpMv"]


class SpMv(Op[SparseActor, GpuRef], tag="sparse.sp_mv"):
    """``out = alpha * op(a) @ x + beta * y`` (``SpMvRequest``, ``SparseMsg.SpMv``).

    Args:
        a: ``[m, n]`` (``[n, m]`` when ``transpose``); values in f16, bf16, f32, f64, c64 or c128.
        x: ``[n]``, same dtype, without gaps.
        out: ``[m]``, same dtype, without gaps; a new array when None. May be ``y``.
        y: ``[m]``, same dtype, without gaps; not read while ``beta`` is 0.
        alpha, beta: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype).
        transpose: Use ``a.T``. On CUDA not supported for a matrix of blocks: see
            :class:`callboard.kernel.sparse.Transpose`.
        conj: Use the conjugate of ``a``: with ``transpose`` only.
        deterministic: Take no algorithm whose partial sums arrive in any order: the same call gives the same bits.

    Sums of f16 and bf16 are kept in f32 on the CPU; on CUDA in f32 or, where rows are added up in no order, in the type
    itself. For the same reason results on CUDA may differ in the last bits from call to call, if not ``deterministic``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "y")})

    a: CsrRef | CscRef | CooRef | BsrRef
    x: In
    out: Out | None = None
    y: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    transpose: bool = False
    conj: bool = False
    deterministic: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_addend(self, "y", self.y, self.beta)

    def infer(self) -> Outputs:
        shape = checked(self, "a", self.a)
        dtype = self.a.values.dtype
        m, n = shape[::-1] if self.transpose else shape
        _check_conj(self, self.transpose, self.conj)
        vector_of(self, "x", self.x, n, dtype)
        for name, ref in (("y", self.y), ("out", self.out)):
            if ref is not None:
                vector_of(self, name, ref, m, dtype)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        return {"out": layout_of(dtype, (m,))}


class SpMm(Op[SparseActor, GpuRef], tag="sparse.sp_mm"):
    """``out = alpha * op(a) @ b + beta * c`` with a dense ``b`` (``SpMmRequest``).

    Args:
        a: ``[m, k]`` (``[k, m]`` when ``transpose``); values in f16, bf16, f32, f64, c64 or c128.
        b: ``[k, n]``, same dtype; row- or column-major (a transposed view).
        out: ``[m, n]``, same dtype, row- or column-major; a new row-major array when None. May be ``c``.
        c: ``[m, n]``, same dtype, row- or column-major; not read while ``beta`` is 0.
        alpha, beta: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype).
        transpose: Use ``a.T``; as for :class:`SpMv`.
        conj: Use the conjugate of ``a``: with ``transpose`` only.
        deterministic: See :class:`SpMv`.

    Sums are kept as those of :class:`SpMv`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    a: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef
    b: In
    out: Out | None = None
    c: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    transpose: bool = False
    conj: bool = False
    deterministic: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_addend(self, "c", self.c, self.beta)

    def infer(self) -> Outputs:
        shape = checked(self, "a", self.a)
        dtype = self.a.values.dtype
        m, k = shape[::-1] if self.transpose else shape
        _check_conj(self, self.transpose, self.conj)
        rows, n = dense_of(self, "b", self.b, dtype)
        if rows != k:
            raise refuse(self, f"b is {self.b.layout!r} and op(a) is [{m}, {k}]; b must have {k} rows")
        for name, ref in (("c", self.c), ("out", self.out)):
            if ref is not None and dense_of(self, name, ref, dtype) != (m, n):
                raise refuse(self, f"{name} is {ref.layout!r}, expected {dtype}[{m}, {n}]")
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        return {"out": layout_of(dtype, (m, n))}


class SpGemm(Op[SparseActor, CsrRef], tag="sparse.sp_gemm"):
    """``out = alpha * a @ b`` with a sparse result; await it for its number of entries (``SpGemmRequest``).

    The number of entries depends on the data: without ``out`` it is known when the result is awaited. Entries that
    cancel to 0 are stored.

    Args:
        a: ``[m, k]``, values in f16, bf16, f32, f64, c64 or c128. On CUDA sums of f16 and bf16 are kept in the type
            itself. ``a.T`` is a ``CscRef``: :class:`Convert <callboard.kernel.sparse.Convert>` it to ``"csr"``.
        b: ``[k, n]``, same dtype and index dtype.
        out: Matrix ``[m, n]`` whose ``indices`` and ``values`` have room for the entries, given together with
            ``count``. The part after the last entry is unchanged. If there are more entries, the op fails and the
            error names the number needed.
        count: 0-d i64: the number of entries.
        alpha: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype).
        deterministic: See :class:`SpMv`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES

    a: CsrRef
    b: CsrRef
    out: Annotated[CsrRef, Role.OUT] | None = None
    count: Out | None = None
    alpha: Scalar = 1.0
    deterministic: bool = False

    def infer(self) -> StructOutputs:
        m, k = checked(self, "a", self.a)
        dtype, index = self.a.values.dtype, index_of(self.a)
        rows, n = checked(self, "b", self.b, dtype)
        if rows != k:
            raise refuse(self, f"a is {self.a.shape} and b is {self.b.shape}; b must have {k} rows")
        if index_of(self.b) is not index:
            raise refuse(self, f"a has {index} indices and b has {index_of(self.b)}; both must have the same")
        check_scalars(self, dtype, alpha=self.alpha)
        most = min(m * n, self.a.values.size * min(n, max(self.b.values.size, 1)), INDEX_LIMIT[index.name])
        return result_of(self, CsrRef, self.out, self.count, BoundedExtent(most), (m, n), (dtype.name, index.name))


def _check_conj(op: SpMv | SpMm, transpose: bool, conj: bool) -> None:
    if conj and not transpose:
        raise refuse(op, "conj without transpose is not an operation of sparse libraries; conjugate the values instead")
