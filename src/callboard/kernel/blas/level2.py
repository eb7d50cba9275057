"""BLAS level 2: a matrix and vectors.

Matrices are row-major or column-major (a transposed view), rows or columns without gaps; vectors have one axis and
any increment but 0.
"""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas.actor import BlasActor
from callboard.kernel.blas.checks import (
    ALL_FLOATS,
    BLAS_FLOATS,
    COMPLEXES,
    REALS,
    check_addend,
    check_addend_given,
    check_packed,
    check_scalars,
    check_square,
    dtype_of,
    extent,
    matrix,
    vector,
)
from callboard.kernel.checks import refuse

__all__ = ["Gemv", "Ger", "Gerc", "Geru", "Spr", "Syr"]


class Gemv(Op[BlasActor, GpuRef], tag="blas.gemv"):
    """``out = alpha * op(a) @ x + beta * y`` (``GemvRequest``).

    Args:
        a: ``[m, n]`` (``[n, m]`` when ``transpose``); f16, bf16, f32, f64, c64 or c128; row- or column-major.
        x: ``[n]``, same dtype.
        out: ``[m]``, same dtype; a new array when None. May be ``y``.
        y: ``[m]``, same dtype; not read while ``beta`` is 0.
        alpha, beta: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype).
        transpose: Use ``a.T``.
        conj: Use the conjugate of ``a``; with ``transpose``, the conjugate transpose. No effect on real arrays.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "y")})

    a: In
    x: In
    out: Out | None = None
    y: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    transpose: bool = False
    conj: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_addend_given(self, "y", self.y, self.beta)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, ALL_FLOATS, a=self.a, x=self.x)
        form = matrix(self, "a", self.a.layout)
        m, n = (form.cols, form.rows) if self.transpose else (form.rows, form.cols)
        if extent(self, "x", self.x) != n:
            raise refuse(self, f"x is {self.x.layout!r} and op(a) is [{m}, {n}]; x must have {n} elements")
        result = layout_of(dtype, (m,))
        check_addend(self, "y", self.y, result)
        if self.y is not None:
            vector(self, "y", self.y.layout)
        if self.out is not None:
            extent(self, "out", self.out)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        return {"out": result}


class Rank1(Op[BlasActor, GpuRef]):
    """A matrix and the outer product of two vectors, added in place; answers ``a``.

    Args:
        x: ``[m]``, one of ``dtypes``.
        y: ``[n]``, same dtype.
        a: ``[m, n]``, same dtype; row- or column-major.
        alpha: Number or 0-d array of the arrays' dtype; real for real arrays.
    """

    dtypes: ClassVar[tuple[DType, ...]]
    returns: ClassVar[tuple[str, ...]] = ("a",)

    x: In
    y: In
    a: InOut
    alpha: Scalar = 1.0

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, a=self.a, x=self.x, y=self.y)
        form = matrix(self, "a", self.a.layout)
        m, n = extent(self, "x", self.x), extent(self, "y", self.y)
        if (m, n) != (form.rows, form.cols):
            raise refuse(self, f"a is {self.a.layout!r}; with x of {m} and y of {n} elements it must be [{m}, {n}]")
        check_scalars(self, dtype, alpha=self.alpha)
        return {}


class Ger(Rank1, tag="blas.ger"):
    """``a += alpha * outer(x, y)`` of real arrays (``GerRequest``); answers ``a``.

    The arrays are f32 or f64.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REALS


class Geru(Rank1, tag="blas.geru"):
    """``a += alpha * outer(x, y)`` of complex arrays; answers ``a``.

    The arrays are c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES


class Gerc(Rank1, tag="blas.gerc"):
    """``a += alpha * outer(x, conj(y))``; answers ``a``.

    The arrays are c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES


class SymmetricRank1(Op[BlasActor, GpuRef]):
    """A symmetric matrix and the outer product of a vector with itself, added in place; answers ``a``.

    Args:
        x: ``[n]``, one of ``dtypes``; not conjugated.
        a: ``[n, n]``, same dtype; row- or column-major. Only the triangle that ``lower`` names is read and written.
            Packed: ``[n * (n + 1) / 2]`` without gaps, the rows of that triangle one after the other.
        alpha: Number or 0-d array of the arrays' dtype; real for real arrays.
        lower: The lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]]
    returns: ClassVar[tuple[str, ...]] = ("a",)
    packed: ClassVar[bool] = False

    x: In
    a: InOut
    alpha: Scalar = 1.0
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, x=self.x, a=self.a)
        n = extent(self, "x", self.x)
        if self.packed:
            check_packed(self, "a", self.a, n)
        else:
            check_square(self, "a", self.a.layout, n)
        check_scalars(self, dtype, alpha=self.alpha)
        return {}


class Syr(SymmetricRank1, tag="blas.syr"):
    """One triangle of ``a += alpha * outer(x, x)``; answers ``a``.

    The arrays are f32, f64, c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS


class Spr(SymmetricRank1, tag="blas.spr"):
    """One triangle, packed, of ``a += alpha * outer(x, x)``; answers ``a``.

    The arrays are f32 or f64.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REALS
    packed: ClassVar[bool] = True
