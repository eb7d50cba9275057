"""Eigenvalues and eigenvectors.

Operands of any strides; inputs are only read. NaN and infinities in them are a ``NumericalError``, and so is an
iteration that does not converge. Symmetric and Hermitian matrices: eigenvalues are real and ascend, eigenvectors are
orthonormal columns, one triangle of ``a`` counts and a complex diagonal is taken as real.
"""

import math
from typing import Any, ClassVar, Generic, Literal, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import BoundedExtent, layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.solver.actor import SolverActor
from callboard.kernel.solver.checks import FLOATS, dtype_of, square

__all__ = [
    "EigRangeResult",
    "EigResult",
    "Geev",
    "GeevValues",
    "Syevd",
    "SyevdValues",
    "SyevdxIndex",
    "SyevdxRange",
    "Sygvd",
    "SygvdValues",
]


class EigResult(NamedTuple, Generic[Mode]):
    """``a @ v = v * w``.

    Attributes:
        w: Eigenvalues.
        v: Eigenvectors, in columns.
    """

    w: GpuRef[Mode]
    v: GpuRef[Mode]


class EigRangeResult(NamedTuple, Generic[Mode]):
    """The eigenvalues in a range.

    Attributes:
        w: Eigenvalues, ascending; in a given array, NaN after the first ``found``.
        v: Eigenvectors, in columns; in a given array, NaN after the first ``found``.
        found: 0-d, i64: how many there are.
    """

    w: GpuRef[Mode]
    v: GpuRef[Mode]
    found: GpuRef[Mode]


def _pencil(op: "Sygvd | SygvdValues") -> tuple[DType, int]:
    """The one dtype and order of ``a`` and ``b``."""
    dtype = dtype_of(op, a=op.a, b=op.b)
    _, n = square(op, "a", op.a)
    _, order = square(op, "b", op.b)
    if order != n:
        raise refuse(op, f"b is {op.b.layout!r} and a is {op.a.layout!r}; they must be of one shape")
    return dtype, n


def _complex_of(dtype: DType) -> DType:
    return {"f32": DTYPES["c64"], "f64": DTYPES["c128"]}.get(dtype.name, dtype)


class Syevd(Op[SolverActor, EigResult], tag="solver.syevd"):
    """Eigenvalues and vectors of a symmetric or Hermitian matrix (``SyevdRequest``), as ``numpy.linalg.eigh``.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128; the triangle that ``lower`` names is read.
        w: ``[n]``, f32 for f32 and c64, f64 for f64 and c128.
        v: ``[n, n]``, dtype of ``a``; may be ``a``.
        lower: Use the lower triangle; else the upper one.
        method: ``"syevd"``: divide and conquer; ``"syevj"``: Jacobi rotations, on the CPU ``syevd``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w", "v")
    results: ClassVar[type[Any] | None] = EigResult
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("v", "a")})

    a: In
    w: Out | None = None
    v: Out | None = None
    lower: bool = True
    method: Literal["syevd", "syevj"] = "syevd"

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, n = square(self, "a", self.a)
        return {"w": layout_of(dtype.real, (n,)), "v": layout_of(dtype, (n, n))}


class SyevdValues(Op[SolverActor, GpuRef], tag="solver.syevd_values"):
    """The eigenvalues of a symmetric or Hermitian matrix, without vectors.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128; the triangle that ``lower`` names is read.
        w: ``[n]``, f32 for f32 and c64, f64 for f64 and c128.
        lower: Use the lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w",)

    a: In
    w: Out | None = None
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, n = square(self, "a", self.a)
        return {"w": layout_of(dtype.real, (n,))}


class SyevdxIndex(Op[SolverActor, EigResult], tag="solver.syevdx_index"):
    """Some eigenvalues of a symmetric or Hermitian matrix by their positions, and their vectors.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128; the triangle that ``lower`` names is read.
        w: ``[stop - start]``, f32 for f32 and c64, f64 for f64 and c128.
        v: ``[n, stop - start]``, dtype of ``a``.
        start: The first one, counted from the smallest.
        stop: The one after the last; ``n`` when None.
        lower: Use the lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w", "v")
    results: ClassVar[type[Any] | None] = EigResult

    a: In
    w: Out | None = None
    v: Out | None = None
    start: int = 0
    stop: int | None = None
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, n = square(self, "a", self.a)
        stop = n if self.stop is None else self.stop
        if not 0 <= self.start <= stop <= n:
            raise refuse(self, f"start is {self.start} and stop is {stop}; they must be in order and within 0 and {n}")
        count = stop - self.start
        return {"w": layout_of(dtype.real, (count,)), "v": layout_of(dtype, (n, count))}


class SyevdxRange(Op[SolverActor, EigRangeResult], tag="solver.syevdx_range"):
    """The eigenvalues of a symmetric or Hermitian matrix with ``low < w <= high``, and their vectors.

    The number of eigenvalues depends on the data. New outputs have the extents needed, known when they are awaited. A
    given ``w`` or ``v`` has a capacity, and ``found`` is the part of it that is used; more eigenvalues than the
    capacity raise ``NumericalError``.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128; the triangle that ``lower`` names is read.
        low: Lower end of the range, excluded; may be ``-inf``.
        high: Upper end of the range, included; may be ``inf``.
        w: ``[capacity]``, f32 for f32 and c64, f64 for f64 and c128.
        v: ``[n, capacity]``, dtype of ``a``.
        found: 0-d, i64: how many there are.
        lower: Use the lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w", "v", "found")
    results: ClassVar[type[Any] | None] = EigRangeResult

    a: In
    low: float
    high: float
    w: Out | None = None
    v: Out | None = None
    found: Out | None = None
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, n = square(self, "a", self.a)
        if math.isnan(self.low) or math.isnan(self.high) or self.low > self.high:
            raise refuse(self, f"low is {self.low} and high is {self.high}; they must be numbers in order")
        capacity: int | BoundedExtent = BoundedExtent(n)
        if self.w is not None and self.w.ndim == 1:
            capacity = self.w.shape[0]
        elif self.v is not None and self.v.ndim == 2:
            capacity = self.v.shape[1]
        return {
            "w": layout_of(dtype.real, (capacity,)),
            "v": layout_of(dtype, (n, capacity)),
            "found": layout_of(DTYPES["i64"], ()),
        }


class Sygvd(Op[SolverActor, EigResult], tag="solver.sygvd"):
    """The generalised problem with symmetric or Hermitian ``a`` and positive definite ``b``.

    Real arrays are LAPACK's ``sygvd`` (``SygvdRequest``), complex ones ``hegvd`` (``HegvdRequest``). Vectors are scaled
    as LAPACK does: ``v.conj().T @ b @ v = 1`` for ``itype`` 1 and 2, ``v.conj().T @ inv(b) @ v = 1`` for 3. Fails with
    ``NumericalError`` if a leading minor of ``b`` is not positive.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128; the triangle that ``lower`` names is read.
        b: Same shape and dtype; the same triangle is read.
        w: ``[n]``, f32 for f32 and c64, f64 for f64 and c128.
        v: ``[n, n]``, dtype of ``a``; may be ``a``.
        itype: 1: ``a @ x = w * b @ x``; 2: ``a @ b @ x = w * x``; 3: ``b @ a @ x = w * x``.
        lower: Use the lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w", "v")
    results: ClassVar[type[Any] | None] = EigResult
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("v", "a")})

    a: In
    b: In
    w: Out | None = None
    v: Out | None = None
    itype: Literal[1, 2, 3] = 1
    lower: bool = True

    def infer(self) -> Outputs:
        dtype, n = _pencil(self)
        return {"w": layout_of(dtype.real, (n,)), "v": layout_of(dtype, (n, n))}


class SygvdValues(Op[SolverActor, GpuRef], tag="solver.sygvd_values"):
    """The eigenvalues of the generalised problem with symmetric or Hermitian ``a`` and positive definite ``b``.

    Without vectors; ascending. Fails with ``NumericalError`` if a leading minor of ``b`` is not positive.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128; the triangle that ``lower`` names is read.
        b: Same shape and dtype; the same triangle is read.
        w: ``[n]``, f32 for f32 and c64, f64 for f64 and c128.
        itype: 1: ``a @ x = w * b @ x``; 2: ``a @ b @ x = w * x``; 3: ``b @ a @ x = w * x``.
        lower: Use the lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w",)

    a: In
    b: In
    w: Out | None = None
    itype: Literal[1, 2, 3] = 1
    lower: bool = True

    def infer(self) -> Outputs:
        dtype, n = _pencil(self)
        return {"w": layout_of(dtype.real, (n,))}


class Geev(Op[SolverActor, EigResult], tag="solver.geev"):
    """Eigenvalues and right eigenvectors of any square matrix, as ``scipy.linalg.eig``.

    The results are always complex, in no particular order, except that the two of a conjugate pair of a real matrix are
    adjacent, the one with the positive imaginary part first. Vectors have length 1.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128.
        w: ``[n]``, c64 for f32 and c64, c128 for f64 and c128.
        v: ``[n, n]``, dtype of ``w``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w", "v")
    results: ClassVar[type[Any] | None] = EigResult

    a: In
    w: Out | None = None
    v: Out | None = None

    def infer(self) -> Outputs:
        dtype = _complex_of(dtype_of(self, a=self.a))
        _, n = square(self, "a", self.a)
        return {"w": layout_of(dtype, (n,)), "v": layout_of(dtype, (n, n))}


class GeevValues(Op[SolverActor, GpuRef], tag="solver.geev_values"):
    """The eigenvalues of any square matrix, without vectors; always complex, ordered as by :class:`Geev`.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128.
        w: ``[n]``, c64 for f32 and c64, c128 for f64 and c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w",)

    a: In
    w: Out | None = None

    def infer(self) -> Outputs:
        dtype = _complex_of(dtype_of(self, a=self.a))
        _, n = square(self, "a", self.a)
        return {"w": layout_of(dtype, (n,))}
