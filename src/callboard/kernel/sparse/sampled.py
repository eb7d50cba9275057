"""A dense product, at the entries of a sparse matrix."""

from typing import ClassVar

from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.checks import REAL_AND_COMPLEX, check_scalars, checked, dense_of, refuse, vector_of
from callboard.kernel.sparse.formats import CsrRef

__all__ = ["Sddmm"]


class Sddmm(Op[SparseActor, GpuRef], tag="sparse.sddmm"):
    """``out = alpha * (a @ b)[entries of c] + beta * c.values``: a product where ``c`` has entries (``SddmmRequest``).

    Args:
        a: ``[m, k]``, f32, f64, c64 or c128; row- or column-major.
        b: ``[k, n]``, same dtype; row- or column-major.
        c: ``[m, n]``; its values are not read while ``beta`` is 0.
        out: ``[nnz]``, the values of the result, in the order of those of ``c``; a new array when None. May be
            ``c.values``.
        alpha, beta: Number or 0-d array.
    """

    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c.values")})

    a: In
    b: In
    c: CsrRef
    out: Out | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0

    def infer(self) -> Outputs:
        shape = checked(self, "c", self.c)
        dtype = self.c.values.dtype
        if dtype not in REAL_AND_COMPLEX:
            names = ", ".join(d.name for d in REAL_AND_COMPLEX)
            raise refuse(self, f"c.values is {self.c.values.layout!r}; its dtype must be one of {names}")
        (m, k), (rows, n) = dense_of(self, "a", self.a, dtype), dense_of(self, "b", self.b, dtype)
        if k != rows or (m, n) != shape:
            raise refuse(self, f"a is {self.a.layout!r}, b is {self.b.layout!r} and c is {shape}; they do not fit")
        if self.out is not None:
            vector_of(self, "out", self.out, self.c.values.size, dtype)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        return {"out": layout_of(dtype, (self.c.values.size,))}
