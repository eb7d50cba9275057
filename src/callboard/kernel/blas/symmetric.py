"""BLAS level 2 of symmetric and Hermitian matrices: products with a vector, and sums with products of vectors.

One triangle of the matrix is stored: in a square array, packed, or as its diagonals (a band).
"""

from typing import ClassVar, Literal

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas.actor import BlasActor
from callboard.kernel.blas.checks import (
    BLAS_FLOATS,
    COMPLEXES,
    REALS,
    check_addend,
    check_addend_given,
    check_packed,
    check_runs_forwards,
    check_scalars,
    check_square,
    dtype_of,
    extent,
    order_of_band,
)
from callboard.kernel.checks import refuse

__all__ = ["Hbmv", "Hemv", "Her", "Her2", "Hpmv", "Hpr", "Hpr2", "Sbmv", "Spmv", "Spr2", "Symv", "Syr2"]


class SymmetricProduct(Op[BlasActor, GpuRef]):
    """A symmetric or Hermitian matrix, stored as one triangle, and a vector.

    Args:
        a: One of ``dtypes``. Square: ``[n, n]``, row- or column-major. Packed: ``[n * (n + 1) / 2]`` without gaps, the
            rows of a symmetric triangle one after the other, the columns of a Hermitian one. Banded: ``[k + 1, n]``,
            column-major, with ``a[i - j, j]`` for the element ``i, j`` of the lower triangle, ``a[k + i - j, j]`` for
            that of the upper one (the forms of ``scipy.linalg.solveh_banded``). Nothing else is read, nor the imaginary
            parts of a Hermitian diagonal.
        x: ``[n]``, same dtype.
        out: ``[n]``, same dtype; a new array when None. May be ``y``. Beside a Hermitian row-major square, neither
            ``x`` nor ``out`` runs backwards.
        y: ``[n]``, same dtype; not read while ``beta`` is 0.
        alpha, beta: Number or 0-d array of the arrays' dtype.
        lower: The lower triangle is stored; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]]
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "y")})
    storage: ClassVar[Literal["square", "packed", "banded"]] = "square"
    hermitian: ClassVar[bool] = False

    a: In
    x: In
    out: Out | None = None
    y: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    lower: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_addend_given(self, "y", self.y, self.beta)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, a=self.a, x=self.x)
        n = extent(self, "x", self.x)
        if self.storage == "packed":
            check_packed(self, "a", self.a, n)
        elif self.storage == "banded":
            order_of_band(self, "a", self.a, n)
        elif not check_square(self, "a", self.a.layout, n).transposed and self.hermitian:
            check_runs_forwards(self, x=self.x, out=self.out)
        result = layout_of(dtype, (n,))
        check_addend(self, "y", self.y, result)
        for name, operand in (("y", self.y), ("out", self.out)):
            if operand is not None:
                extent(self, name, operand)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        return {"out": result}


class Symv(SymmetricProduct, tag="blas.symv"):
    """``out = alpha * a @ x + beta * y`` with a symmetric ``a``.

    The arrays are f32, f64, c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS


class Hemv(SymmetricProduct, tag="blas.hemv"):
    """``out = alpha * a @ x + beta * y`` with a Hermitian ``a``.

    The arrays are c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    hermitian: ClassVar[bool] = True


class Spmv(SymmetricProduct, tag="blas.spmv"):
    """``out = alpha * a @ x + beta * y`` with a symmetric ``a`` that is packed.

    The arrays are f32 or f64.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REALS
    storage: ClassVar[Literal["square", "packed", "banded"]] = "packed"


class Hpmv(SymmetricProduct, tag="blas.hpmv"):
    """``out = alpha * a @ x + beta * y`` with a Hermitian ``a`` that is packed.

    The arrays are c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    storage: ClassVar[Literal["square", "packed", "banded"]] = "packed"
    hermitian: ClassVar[bool] = True


class Sbmv(SymmetricProduct, tag="blas.sbmv"):
    """``out = alpha * a @ x + beta * y`` with a symmetric ``a`` that is banded.

    The arrays are f32 or f64.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REALS
    storage: ClassVar[Literal["square", "packed", "banded"]] = "banded"


class Hbmv(SymmetricProduct, tag="blas.hbmv"):
    """``out = alpha * a @ x + beta * y`` with a Hermitian ``a`` that is banded.

    The arrays are c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    storage: ClassVar[Literal["square", "packed", "banded"]] = "banded"
    hermitian: ClassVar[bool] = True


class HermitianRank1(Op[BlasActor, GpuRef]):
    """A Hermitian matrix and a product of a vector with itself, added in place; answers ``a``.

    Args:
        x: ``[n]``, c64 or c128; beside a row-major ``a`` it does not run backwards.
        a: ``[n, n]``, same dtype; row- or column-major. Only the triangle that ``lower`` names is read and written; the
            imaginary parts of its diagonal are taken as 0, and set to 0 (with an ``alpha`` of 0 they may stay as they
            are). Packed: ``[n * (n + 1) / 2]`` without gaps, the columns of that triangle one after the other.
        alpha: Real number, or 0-d array of the real dtype.
        lower: The lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    returns: ClassVar[tuple[str, ...]] = ("a",)
    packed: ClassVar[bool] = False

    x: In
    a: InOut
    alpha: Scalar = 1.0
    lower: bool = True

    def infer(self) -> Outputs:
        dtype, n = dtype_of(self, self.dtypes, x=self.x, a=self.a), extent(self, "x", self.x)
        if self.packed:
            check_packed(self, "a", self.a, n)
        elif not check_square(self, "a", self.a.layout, n).transposed:
            check_runs_forwards(self, x=self.x)
        check_scalars(self, dtype.real, alpha=self.alpha)
        return {}


class Her(HermitianRank1, tag="blas.her"):
    """One triangle of ``a += alpha * outer(x, conj(x))``, Hermitian; answers ``a``."""


class Hpr(HermitianRank1, tag="blas.hpr"):
    """One triangle, packed, of ``a += alpha * outer(x, conj(x))``, Hermitian; answers ``a``."""

    packed: ClassVar[bool] = True


class SymmetricRank2(Op[BlasActor, GpuRef]):
    """A symmetric or Hermitian matrix and two products of two vectors, added in place; answers ``a``.

    Args:
        x: ``[n]``, one of ``dtypes``.
        y: ``[n]``, same dtype. Beside a Hermitian row-major or a complex symmetric ``a``, neither of them runs
            backwards.
        a: ``[n, n]``, same dtype; row- or column-major. Only the triangle that ``lower`` names is read and written; of
            a Hermitian diagonal the imaginary parts are taken as 0, and set to 0 (with an ``alpha`` of 0 they may stay
            as they are). Packed: ``[n * (n + 1) / 2]`` without gaps, the rows of that triangle one after the other,
            the columns of a Hermitian one.
        alpha: Number or 0-d array of the arrays' dtype.
        lower: The lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]]
    returns: ClassVar[tuple[str, ...]] = ("a",)
    packed: ClassVar[bool] = False
    hermitian: ClassVar[bool] = False

    x: In
    y: In
    a: InOut
    alpha: Scalar = 1.0
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, x=self.x, y=self.y, a=self.a)
        n = extent(self, "x", self.x)
        if extent(self, "y", self.y) != n:
            raise refuse(self, f"y is {self.y.layout!r} and x is {self.x.layout!r}; pass vectors of one length")
        if self.packed:
            check_packed(self, "a", self.a, n)
        else:
            by_columns = check_square(self, "a", self.a.layout, n).transposed
            if dtype.is_complex and not (by_columns and self.hermitian):
                check_runs_forwards(self, x=self.x, y=self.y)
        check_scalars(self, dtype, alpha=self.alpha)
        return {}


class Syr2(SymmetricRank2, tag="blas.syr2"):
    """One triangle of ``a += alpha * (outer(x, y) + outer(y, x))``; answers ``a``.

    The arrays are f32, f64, c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS


class Spr2(SymmetricRank2, tag="blas.spr2"):
    """One triangle, packed, of ``a += alpha * (outer(x, y) + outer(y, x))``; answers ``a``.

    The arrays are f32 or f64.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REALS
    packed: ClassVar[bool] = True


class Her2(SymmetricRank2, tag="blas.her2"):
    """One triangle of ``a += alpha * outer(x, conj(y)) + conj(alpha) * outer(y, conj(x))``; answers ``a``.

    The arrays are c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    hermitian: ClassVar[bool] = True


class Hpr2(SymmetricRank2, tag="blas.hpr2"):
    """A packed triangle of ``a += alpha * outer(x, conj(y)) + conj(alpha) * outer(y, conj(x))``; answers ``a``.

    The arrays are c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    packed: ClassVar[bool] = True
    hermitian: ClassVar[bool] = True
