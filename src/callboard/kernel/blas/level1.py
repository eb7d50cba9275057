"""BLAS level 1: vectors.

Operands of any number of axes are taken as one vector in row-major order, if their elements are evenly spaced; two
operands of an op have the same shape. Increments may be negative (``x[::-1]``) unless the docstring says otherwise. f16
and bf16 are computed in f32 and rounded once. A ``Scalar`` is a number or a 0-d array; the dtype of such an array is
the operands' own (f32 for f16 and bf16).
"""

from typing import Any, ClassVar, Generic, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Operand, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas.actor import BlasActor
from callboard.kernel.blas.checks import (
    ALL_FLOATS,
    BLAS_FLOATS,
    COMPLEXES,
    REAL_FLOATS,
    check_scalars,
    dtype_of,
    vector,
)
from callboard.kernel.checks import refuse

__all__ = ["Asum", "Axpy", "Copy", "Dot", "Dotc", "Dotu", "Iamax", "Iamin", "Nrm2", "Rot", "Scal", "Swap", "VectorPair"]


class VectorPair(NamedTuple, Generic[Mode]):
    """Two vectors that an op has changed."""

    x: GpuRef[Mode]
    y: GpuRef[Mode]


def _same_shape(op: Op[Any, Any], x: Operand, y: Operand, name: str = "y") -> None:
    if x.shape != y.shape:
        raise refuse(op, f"{name} is {y.layout!r} and x is {x.layout!r}; pass arrays of one shape")


class Axpy(Op[BlasActor, GpuRef], tag="blas.axpy"):
    """``y += alpha * x`` (``AxpyRequest``); answers ``y``.

    Args:
        x: f16, bf16, f32, f64, c64 or c128.
        y: Same shape and dtype; may be the same memory as ``x``, element for element.
        alpha: Number or 0-d array; complex for complex arrays only.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS
    returns: ClassVar[tuple[str, ...]] = ("y",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("y", "x")})

    x: In
    y: InOut
    alpha: Scalar = 1.0

    def infer(self) -> Outputs:
        dtype = dtype_of(self, ALL_FLOATS, x=self.x, y=self.y)
        _same_shape(self, self.x, self.y)
        vector(self, "x", self.x.layout)
        vector(self, "y", self.y.layout)
        check_scalars(self, dtype, alpha=self.alpha)
        return {}


class Scal(Op[BlasActor, GpuRef], tag="blas.scal"):
    """``x *= alpha`` (``ScalRequest``); answers ``x``.

    With ``alpha`` 0, NaN and infinities in ``x`` become 0 or NaN, as the library has it.

    Args:
        x: f16, bf16, f32, f64, c64 or c128.
        alpha: Number or 0-d array; complex for complex arrays only.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)

    x: InOut
    alpha: Scalar

    def infer(self) -> Outputs:
        dtype = dtype_of(self, ALL_FLOATS, x=self.x)
        vector(self, "x", self.x.layout)
        check_scalars(self, dtype, alpha=self.alpha)
        return {}


class Copy(Op[BlasActor, GpuRef], tag="blas.copy"):
    """``out = x`` (``CopyRequest``). For strides that BLAS does not support, and for other dtypes, use ``dev.copy``.

    Args:
        x: f16, bf16, f32, f64, c64 or c128.
        out: Same shape and dtype; a new row-major array when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS

    x: In
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, ALL_FLOATS, x=self.x)
        vector(self, "x", self.x.layout)
        if self.out is not None:
            vector(self, "out", self.out.layout)
        return {"out": layout_of(dtype, self.x.shape)}


class Swap(Op[BlasActor, VectorPair], tag="blas.swap"):
    """Exchange the elements of ``x`` and ``y`` (``SwapRequest``); answers both.

    Args:
        x: f16, bf16, f32, f64, c64 or c128.
        y: Same shape and dtype.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x", "y")
    results: ClassVar[type[Any] | None] = VectorPair

    x: InOut
    y: InOut

    def infer(self) -> Outputs:
        dtype_of(self, ALL_FLOATS, x=self.x, y=self.y)
        _same_shape(self, self.x, self.y)
        vector(self, "x", self.x.layout)
        vector(self, "y", self.y.layout)
        return {}


class Rot(Op[BlasActor, VectorPair], tag="blas.rot"):
    """Plane rotation ``x, y = c * x + s * y, c * y - conj(s) * x`` (``RotRequest``); answers both.

    Args:
        x: f32, f64, c64 or c128.
        y: Same shape and dtype.
        c: Cosine: real number or 0-d array of the real dtype.
        s: Sine: number or 0-d array of the arrays' dtype; complex for complex arrays only.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x", "y")
    results: ClassVar[type[Any] | None] = VectorPair

    x: InOut
    y: InOut
    c: Scalar
    s: Scalar

    def infer(self) -> Outputs:
        dtype = dtype_of(self, BLAS_FLOATS, x=self.x, y=self.y)
        _same_shape(self, self.x, self.y)
        vector(self, "x", self.x.layout)
        vector(self, "y", self.y.layout)
        check_scalars(self, dtype.real, c=self.c)
        check_scalars(self, dtype, s=self.s)
        return {}


def _product(op: Op[Any, Any], accepted: tuple[DType, ...], x: Operand, y: Operand) -> Outputs:
    dtype = dtype_of(op, accepted, x=x, y=y)
    _same_shape(op, x, y)
    vector(op, "x", x.layout)
    vector(op, "y", y.layout)
    return {"out": layout_of(dtype, ())}


class Dot(Op[BlasActor, float], tag="blas.dot"):
    """``sum(x * y)`` of real vectors (``DotRequest``); 0 for empty ones. Answers the number, or ``out``.

    Args:
        x: f16, bf16, f32 or f64.
        y: Same shape and dtype.
        out: 0-d, same dtype: the result stays on the device.
    """

    dtypes: ClassVar[tuple[DType, ...]] = REAL_FLOATS
    value: ClassVar[bool] = True

    x: In
    y: In
    out: Out | None = None

    def infer(self) -> Outputs:
        return _product(self, REAL_FLOATS, self.x, self.y)


class Dotu(Op[BlasActor, complex], tag="blas.dotu"):
    """``sum(x * y)`` of complex vectors; 0 for empty ones. Answers the number, or ``out``.

    Args:
        x: c64 or c128.
        y: Same shape and dtype.
        out: 0-d, same dtype: the result stays on the device.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    value: ClassVar[bool] = True

    x: In
    y: In
    out: Out | None = None

    def infer(self) -> Outputs:
        return _product(self, COMPLEXES, self.x, self.y)


class Dotc(Op[BlasActor, complex], tag="blas.dotc"):
    """``sum(conj(x) * y)`` of complex vectors; 0 for empty ones. Answers the number, or ``out``.

    Args:
        x: c64 or c128; conjugated.
        y: Same shape and dtype.
        out: 0-d, same dtype: the result stays on the device.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    value: ClassVar[bool] = True

    x: In
    y: In
    out: Out | None = None

    def infer(self) -> Outputs:
        return _product(self, COMPLEXES, self.x, self.y)


class Nrm2(Op[BlasActor, float], tag="blas.nrm2"):
    """Euclidean length ``sqrt(sum(abs(x) ** 2))`` (``Nrm2Request``). Answers the number, or ``out``.

    For a matrix this is the Frobenius norm; for an empty ``x`` it is 0. The squares neither overflow nor underflow. NaN
    in ``x`` gives NaN, and an infinity gives infinity; with both, the result is one of the two (NumPy and reference
    BLAS: NaN; cuBLAS: infinity).

    Args:
        x: f16, bf16, f32, f64, c64 or c128.
        out: 0-d, the real dtype of ``x``: the result stays on the device.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS
    value: ClassVar[bool] = True

    x: In
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, ALL_FLOATS, x=self.x)
        vector(self, "x", self.x.layout)
        return {"out": layout_of(dtype.real, ())}


class Asum(Op[BlasActor, float], tag="blas.asum"):
    """``sum(abs(x))``, of complex vectors ``sum(abs(re) + abs(im))`` (``AsumRequest``). Answers the number, or ``out``.

    The result for an empty ``x`` is 0.

    Args:
        x: f16, bf16, f32, f64, c64 or c128.
        out: 0-d, the real dtype of ``x``: the result stays on the device.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS
    value: ClassVar[bool] = True

    x: In
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, ALL_FLOATS, x=self.x)
        vector(self, "x", self.x.layout)
        return {"out": layout_of(dtype.real, ())}


def _index(op: Op[Any, Any], x: Operand) -> Outputs:
    dtype_of(op, ALL_FLOATS, x=x)
    if x.size == 0:
        raise refuse(op, f"x is {x.layout!r}, which has no element; ask only where there is one")
    if vector(op, "x", x.layout).inc < 0:
        raise refuse(op, f"x is {x.layout!r}: it runs backwards; copy it first (dev.copy)")
    return {"out": layout_of(DTYPES["i64"], ())}


class Iamax(Op[BlasActor, int], tag="blas.iamax"):
    """Position of the first element of the largest magnitude (``IamaxRequest``). Answers the number, or ``out``.

    Counted from 0, in row-major order. The magnitude of a complex number is ``abs(re) + abs(im)``. With NaN in ``x`` it
    is some valid position.

    Args:
        x: Array of at least one element; f16, bf16, f32, f64, c64 or c128; increment > 0.
        out: 0-d, i64: the result stays on the device.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS
    value: ClassVar[bool] = True

    x: In
    out: Out | None = None

    def infer(self) -> Outputs:
        return _index(self, self.x)


class Iamin(Op[BlasActor, int], tag="blas.iamin"):
    """Position of the first element of the smallest magnitude (``IaminRequest``). Answers the number, or ``out``.

    The rest as :class:`Iamax`.

    Args:
        x: Array of at least one element; f16, bf16, f32, f64, c64 or c128; increment > 0.
        out: 0-d, i64: the result stays on the device.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ALL_FLOATS
    value: ClassVar[bool] = True

    x: In
    out: Out | None = None

    def infer(self) -> Outputs:
        return _index(self, self.x)
