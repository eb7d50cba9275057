"""BLAS level 2 of general matrices that are stored as their diagonals."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas.actor import BlasActor
from callboard.kernel.blas.checks import (
    BLAS_FLOATS,
    check_addend,
    check_addend_given,
    check_conj,
    check_scalars,
    dtype_of,
    extent,
    order_of_band,
)
from callboard.kernel.blas.strides import Matrix
from callboard.kernel.checks import refuse

__all__ = ["Gbmv"]


class Gbmv(Op[BlasActor, GpuRef], tag="blas.gbmv"):
    """``out = alpha * op(b) @ x + beta * y`` with a band matrix ``b``.

    Args:
        a: ``[below + 1 + above, n]``, column-major; f32, f64, c64 or c128; ``a[above + i - j, j]`` is ``b[i, j]`` (the
            form of ``scipy.linalg.solve_banded``).
        x: ``[n]`` (``[rows]`` when ``transpose``), same dtype.
        out: ``[rows]`` (``[n]`` when ``transpose``), same dtype; a new array when None. May be ``y``.
        y: Shape and dtype of ``out``; not read while ``beta`` is 0.
        alpha, beta: Number or 0-d array of the arrays' dtype.
        below: The number of diagonals that are stored below the main one; the others are above it. Between 0 and
            ``len(a) - 1``.
        rows: Number of rows of ``b``; ``n`` when None.
        transpose: Use ``b.T``.
        conj: Use the conjugate transpose; with ``transpose`` only. No effect on real arrays.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "y")})

    a: In
    x: In
    out: Out | None = None
    y: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    below: int = 0
    rows: int | None = None
    transpose: bool = False
    conj: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_addend_given(self, "y", self.y, self.beta)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, a=self.a, x=self.x)
        order_of_band(self, "a", self.a)
        width, n = self.a.shape
        rows = n if self.rows is None else self.rows
        if not 0 <= self.below < width:
            raise refuse(self, f"below is {self.below} and a is {self.a.layout!r}: it must be from 0 to {width - 1}")
        if rows < 0 or (rows and not n):
            raise refuse(self, f"rows is {rows} and a is {self.a.layout!r}: pass at least one column")
        wanted, size = (rows, n) if self.transpose else (n, rows)
        if extent(self, "x", self.x) != wanted:
            raise refuse(self, f"x is {self.x.layout!r} and op(b) is [{size}, {wanted}]; x must have {wanted} elements")
        if dtype.is_complex:
            form = Matrix(rows, n, max(rows, 1), True)
            check_conj(self, "a", form, self.transpose, self.conj, form)
        result = layout_of(dtype, (size,))
        check_addend(self, "y", self.y, result)
        for name, operand in (("y", self.y), ("out", self.out)):
            if operand is not None:
                extent(self, name, operand)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        return {"out": result}
