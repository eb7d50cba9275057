"""A dense product, at the entries of a sparse matrix."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.checks import VALUES, check_scalars, checked, dense_of
from callboard.kernel.sparse.formats import BsrRef, CsrRef

__all__ = ["Sddmm"]


class Sddmm(Op[SparseActor, GpuRef], tag="sparse.sddmm"):
    """``out = alpha * (a @ b)[entries of c] + beta * c.values``: a product where ``c`` has entries (``SddmmRequest``).

    Args:
        a: ``[m, k]``, f16, bf16, f32, f64, c64 or c128; row- or column-major.
        b: ``[k, n]``, same dtype; row- or column-major.
        c: ``[m, n]``; its values are not read while ``beta`` is 0.
        out: The values of the result, in shape and order those of ``c`` (whole blocks, of a ``BsrRef``); a new array
            when None. May be ``c.values``.
        alpha, beta: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype).

    Sums of f16 and bf16 are kept in f32.
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c.values")})

    a: In
    b: In
    c: CsrRef | BsrRef
    out: Out | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0

    def infer(self) -> Outputs:
        shape, values = checked(self, "c", self.c), self.c.values
        dtype = values.dtype
        (m, k), (rows, n) = dense_of(self, "a", self.a, dtype), dense_of(self, "b", self.b, dtype)
        if k != rows or (m, n) != shape:
            raise refuse(self, f"a is {self.a.layout!r}, b is {self.b.layout!r} and c is {shape}; they do not fit")
        if self.out is not None and (self.out.shape != values.shape or not self.out.layout.contiguous):
            raise refuse(self, f"out is {self.out.layout!r}, expected {values.layout!r} without gaps")
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        return {"out": layout_of(dtype, values.shape)}
