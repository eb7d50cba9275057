"""Solves with sparse triangular matrices."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.checks import REAL_AND_COMPLEX, check_scalars, checked, dense_of, vector_of
from callboard.kernel.sparse.formats import CooRef, CscRef, CsrRef

__all__ = ["SpSm", "SpSv"]


class SpSv(Op[SparseActor, GpuRef], tag="sparse.sp_sv"):
    """``out`` with ``op(a) @ out = alpha * x``, ``a`` triangular (``SpSvRequest``).

    A 0 on the diagonal, stored or not, fails the op with ``NumericalError``.

    Args:
        a: ``[n, n]``, values in f32, f64, c64 or c128; only the triangle that ``lower`` names is read. Blocks
            have to be converted (``Convert``).
        x: ``[n]``, same dtype, without gaps.
        out: ``[n]``, same dtype, without gaps; a new array when None.
        alpha: Number or 0-d array.
        lower: The lower triangle, else the upper.
        unit: The diagonal is 1, whatever is stored.
        transpose: Use ``a.T``; ``lower`` refers to the stored matrix.
        conj: Use the conjugate of ``a``: with ``transpose`` only. On CUDA not of a complex ``CscRef``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REAL_AND_COMPLEX

    a: CsrRef | CscRef | CooRef
    x: In
    out: Out | None = None
    alpha: Scalar = 1.0
    lower: bool = True
    unit: bool = False
    transpose: bool = False
    conj: bool = False

    def infer(self) -> Outputs:
        n, dtype = _order(self, self.a, self.transpose, self.conj)
        for name, ref in (("x", self.x), ("out", self.out)):
            if ref is not None:
                vector_of(self, name, ref, n, dtype)
        check_scalars(self, dtype, alpha=self.alpha)
        return {"out": layout_of(dtype, (n,))}


class SpSm(Op[SparseActor, GpuRef], tag="sparse.sp_sm"):
    """``out`` with ``op(a) @ out = alpha * b`` for several right-hand sides, ``a`` triangular.

    A 0 on the diagonal, stored or not, fails the op with ``NumericalError``.

    Args:
        a: ``[n, n]``, values in f32, f64, c64 or c128; only the triangle that ``lower`` names is read. Blocks
            have to be converted (``Convert``).
        b: ``[n, m]``, same dtype; row- or column-major.
        out: ``[n, m]``, same dtype, row- or column-major; a new row-major array when None.
        alpha: Number or 0-d array.
        lower: The lower triangle, else the upper.
        unit: The diagonal is 1, whatever is stored.
        transpose: Use ``a.T``; ``lower`` refers to the stored matrix.
        conj: Use the conjugate of ``a``: with ``transpose`` only. On CUDA not of a complex ``CscRef``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REAL_AND_COMPLEX

    a: CsrRef | CscRef | CooRef
    b: In
    out: Out | None = None
    alpha: Scalar = 1.0
    lower: bool = True
    unit: bool = False
    transpose: bool = False
    conj: bool = False

    def infer(self) -> Outputs:
        n, dtype = _order(self, self.a, self.transpose, self.conj)
        rows, m = dense_of(self, "b", self.b, dtype)
        if rows != n:
            raise refuse(self, f"b is {self.b.layout!r} and a is {self.a.shape}; b must have {n} rows")
        if self.out is not None:
            dense_of(self, "out", self.out, dtype)
        check_scalars(self, dtype, alpha=self.alpha)
        return {"out": layout_of(dtype, (n, m))}


def _order(op: SpSv | SpSm, a: CsrRef | CscRef | CooRef, transpose: bool, conj: bool) -> tuple[int, DType]:
    rows, cols = checked(op, "a", a)
    dtype = a.values.dtype
    if rows != cols:
        raise refuse(op, f"a is {a.shape}; it must be square")
    if dtype not in REAL_AND_COMPLEX:
        names = ", ".join(d.name for d in REAL_AND_COMPLEX)
        raise refuse(op, f"a.values is {a.values.layout!r}; its dtype must be one of {names}")
    if conj and not transpose:
        raise refuse(op, "conj without transpose is not an operation of sparse libraries; conjugate the values instead")
    return rows, dtype
