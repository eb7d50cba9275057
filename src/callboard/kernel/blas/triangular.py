"""BLAS level 2 of triangular matrices: a product with a vector, and a system with one right-hand side."""

from typing import ClassVar, Literal

from callboard.core.dtype import DType
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut
from callboard.core.ref import GpuRef
from callboard.kernel.blas.actor import BlasActor
from callboard.kernel.blas.checks import (
    BLAS_FLOATS,
    check_conj,
    check_packed,
    check_square,
    dtype_of,
    extent,
    order_of_band,
)
from callboard.kernel.blas.strides import Matrix

__all__ = ["Tbmv", "Tbsv", "Tpmv", "Tpsv", "Trmv", "Trsv"]


class TriangularVector(Op[BlasActor, GpuRef]):
    """A triangular matrix and a vector, in place of the vector; answers ``x``.

    Args:
        a: f32, f64, c64 or c128. Square: ``[n, n]``, row- or column-major; only the triangle that ``lower`` names is
            read. Packed: ``[n * (n + 1) / 2]`` without gaps, the rows of the triangle one after the other. Banded:
            ``[k + 1, n]``, column-major, with ``a[i - j, j]`` for the element ``i, j`` of a lower triangle,
            ``a[k + i - j, j]`` for that of an upper one.
        x: ``[n]``, same dtype.
        lower: ``a`` is lower triangular; else upper.
        transpose: Use ``a.T``.
        conj: Use the conjugate of ``a``: of a column-major square and of a band with ``transpose`` only, of a row-major
            square and a packed triangle without it only.
        unit_diagonal: Take the diagonal as ones, without reading it.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    storage: ClassVar[Literal["square", "packed", "banded"]] = "square"

    a: In
    x: InOut
    lower: bool = True
    transpose: bool = False
    conj: bool = False
    unit_diagonal: bool = False

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, a=self.a, x=self.x)
        n = extent(self, "x", self.x)
        form = Matrix(n, n, max(n, 1), self.storage == "banded")
        if self.storage == "packed":
            check_packed(self, "a", self.a, n)
        elif self.storage == "banded":
            order_of_band(self, "a", self.a, n)
        else:
            form = check_square(self, "a", self.a.layout, n)
        if dtype.is_complex:
            check_conj(self, "a", form, self.transpose, self.conj, Matrix(n, 1, max(n, 1), True))
        return {}


class Trmv(TriangularVector, tag="blas.trmv"):
    """``x = op(a) @ x`` with a triangular ``a``, in place; answers ``x``."""


class Trsv(TriangularVector, tag="blas.trsv"):
    """Solve ``op(a) @ z = x`` for a triangular ``a``; ``z`` takes the place of ``x``. Answers ``x``.

    A zero on the diagonal gives infinities and NaN, no error.
    """


class Tpmv(TriangularVector, tag="blas.tpmv"):
    """``x = op(a) @ x`` with a triangular ``a`` that is packed, in place; answers ``x``."""

    storage: ClassVar[Literal["square", "packed", "banded"]] = "packed"


class Tpsv(TriangularVector, tag="blas.tpsv"):
    """Solve ``op(a) @ z = x`` for a triangular ``a`` that is packed, as :class:`Trsv`."""

    storage: ClassVar[Literal["square", "packed", "banded"]] = "packed"


class Tbmv(TriangularVector, tag="blas.tbmv"):
    """``x = op(a) @ x`` with a triangular ``a`` that is banded, in place; answers ``x``."""

    storage: ClassVar[Literal["square", "packed", "banded"]] = "banded"


class Tbsv(TriangularVector, tag="blas.tbsv"):
    """Solve ``op(a) @ z = x`` for a triangular ``a`` that is banded, as :class:`Trsv`."""

    storage: ClassVar[Literal["square", "packed", "banded"]] = "banded"
