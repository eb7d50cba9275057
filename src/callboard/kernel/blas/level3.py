"""BLAS level 3: matrices.

Matrices are row-major or column-major (a transposed view), rows or columns without gaps. Strides that BLAS does not
support raise a ``ShapeError`` that names the copy to make; nothing is copied implicitly.
"""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Operand, Out, Scalar, differs
from callboard.core.ref import GpuRef
from callboard.kernel.blas.actor import BlasActor
from callboard.kernel.blas.checks import (
    BLAS_FLOATS,
    COMPLEXES,
    GEMM_RESULT,
    check_addend,
    check_addend_given,
    check_conj,
    check_gemm_numbers,
    check_scalars,
    check_square,
    check_tf32,
    dtype_of,
    matrix,
    same_memory,
)
from callboard.kernel.blas.strides import Matrix
from callboard.kernel.checks import refuse

__all__ = ["Geam", "Gemm", "Hemm", "Her2k", "Herk", "Symm", "Syr2k", "Syrk", "Trmm", "Trsm"]


class Gemm(Op[BlasActor, GpuRef], tag="blas.gemm"):
    """``out = alpha * op(a) @ op(b) + beta * c``, row-major like NumPy (``GemmRequest``).

    Args:
        a: ``[m, k]`` (``[k, m]`` when ``transpose_a``); f16, bf16, f32, f64, c64, c128 or i8; row- or column-major.
        b: ``[k, n]`` (``[n, k]`` when ``transpose_b``), same dtype; row- or column-major.
        out: ``[m, n]``, same dtype (i32 for i8); a new row-major array when None. May be ``c``.
        c: ``[m, n]``, dtype of ``out``; row- or column-major; not read while ``beta`` is 0.
        alpha, beta: Number or 0-d array (f32 for f16 and bf16, i32 for i8, else the arrays' dtype). For i8:
            integers.
        transpose_a, transpose_b: Use ``a.T``, ``b.T``.
        conj_a, conj_b: Use the conjugate; with the transpose flag, the conjugate transpose. No effect on real arrays.
            BLAS conjugates only together with a transposition in memory: a row-major operand with its flag, a
            transposed view without it.
        tf32: True if f32 and c64 factors may be rounded to TF32 (10 bits of mantissa); None: as the library is set
            (cuBLAS: no).

    f16 and bf16 are multiplied and summed in f32 and rounded once; i8 is summed in i32, which wraps around.
    """

    dtypes: ClassVar[tuple[DType, ...]] = tuple(GEMM_RESULT)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    a: In
    b: In
    out: Out | None = None
    c: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    transpose_a: bool = False
    transpose_b: bool = False
    conj_a: bool = False
    conj_b: bool = False
    tf32: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if differs(self.beta, 0.0) or differs(self.alpha, 1.0):
            check_addend_given(self, "c", self.c, self.beta)
            check_gemm_numbers(self, self.a.dtype, alpha=self.alpha, beta=self.beta)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, GEMM_RESULT, a=self.a, b=self.b)
        form_a, form_b = matrix(self, "a", self.a.layout), matrix(self, "b", self.b.layout)
        m, k = (form_a.cols, form_a.rows) if self.transpose_a else (form_a.rows, form_a.cols)
        k_b, n = (form_b.cols, form_b.rows) if self.transpose_b else (form_b.rows, form_b.cols)
        if k != k_b:
            raise refuse(
                self,
                f"a is {self.a.layout!r} and b is {self.b.layout!r}: op(a) is [{m}, {k}] and op(b) [{k_b}, {n}]; "
                f"their inner extents must be equal (see transpose_a, transpose_b)",
            )
        result = layout_of(GEMM_RESULT[dtype], (m, n))
        check_addend(self, "c", self.c, result)
        if self.c is not None:
            matrix(self, "c", self.c.layout)
        out = None if self.out is None else matrix(self, "out", self.out.layout)
        if dtype.is_complex:
            check_conj(self, "a", form_a, self.transpose_a, self.conj_a, out)
            check_conj(self, "b", form_b, self.transpose_b, self.conj_b, out)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        check_tf32(self, self.tf32, dtype)
        return {"out": result}


class Geam(Op[BlasActor, GpuRef], tag="blas.geam"):
    """``out = alpha * op(a) + beta * op(b)`` (``GeamRequest``).

    Args:
        a: ``[m, n]`` (``[n, m]`` when ``transpose_a``); f32, f64, c64 or c128; row- or column-major.
        b: ``[m, n]`` (``[n, m]`` when ``transpose_b``), same dtype; row- or column-major.
        out: ``[m, n]``, same dtype; a new row-major array when None. May be ``a`` or ``b`` if that one is not
            transposed.
        alpha, beta: Number or 0-d array of the arrays' dtype. An operand whose factor is 0 is not read.
        transpose_a, transpose_b: Use ``a.T``, ``b.T``.
        conj_a, conj_b: Use the conjugate, as in :class:`Gemm`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "a"), ("out", "b")})

    a: In
    b: In
    out: Out | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 1.0
    transpose_a: bool = False
    transpose_b: bool = False
    conj_a: bool = False
    conj_b: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is not None:
            for name, operand, transpose in (("a", self.a, self.transpose_a), ("b", self.b, self.transpose_b)):
                if transpose and same_memory(self.out, operand):
                    raise refuse(self, f"out is {name}, which is transposed; give another out")

    def infer(self) -> Outputs:
        dtype = dtype_of(self, BLAS_FLOATS, a=self.a, b=self.b)
        form_a, form_b = matrix(self, "a", self.a.layout), matrix(self, "b", self.b.layout)
        shape = (form_a.cols, form_a.rows) if self.transpose_a else (form_a.rows, form_a.cols)
        shape_b = (form_b.cols, form_b.rows) if self.transpose_b else (form_b.rows, form_b.cols)
        if shape != shape_b:
            raise refuse(
                self,
                f"a is {self.a.layout!r} and b is {self.b.layout!r}: op(a) is {list(shape)} and op(b) {list(shape_b)}; "
                f"their shapes must be equal (see transpose_a, transpose_b)",
            )
        out = None if self.out is None else matrix(self, "out", self.out.layout)
        if dtype.is_complex:
            check_conj(self, "a", form_a, self.transpose_a, self.conj_a, out)
            check_conj(self, "b", form_b, self.transpose_b, self.conj_b, out)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        return {"out": layout_of(dtype, shape)}


class RankK(Op[BlasActor, GpuRef]):
    """One triangle of a matrix and the product of another with its transpose; answers ``c``.

    Args:
        a: ``[n, k]`` (``[k, n]`` when ``transpose``), one of ``dtypes``; row- or column-major, of a Hermitian product
            as ``c`` is.
        c: ``[n, n]``, same dtype. Only the triangle that ``lower`` names is written, and read unless ``beta`` is 0; the
            imaginary parts of a Hermitian diagonal are taken as 0 and set to 0.
        alpha, beta: Number or 0-d array of the arrays' dtype; of a Hermitian product real.
        transpose: Use ``a.T``; in a Hermitian product its conjugate.
        lower: The lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]]
    returns: ClassVar[tuple[str, ...]] = ("c",)
    hermitian: ClassVar[bool] = False

    a: In
    c: InOut
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    transpose: bool = False
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, a=self.a, c=self.c)
        form = matrix(self, "a", self.a.layout)
        result = check_square(self, "c", self.c.layout, form.cols if self.transpose else form.rows)
        if self.hermitian:
            _check_one_order(self, form, "c", result, self.c)
        check_scalars(self, dtype.real if self.hermitian else dtype, alpha=self.alpha, beta=self.beta)
        return {}


class Syrk(RankK, tag="blas.syrk"):
    """One triangle of ``c = alpha * op(a) @ op(a).T + beta * c`` (``SyrkRequest``); answers ``c``.

    The arrays are f32, f64, c64 or c128. With ``transpose`` it is ``c = alpha * a.T @ a + beta * c``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS


class Herk(RankK, tag="blas.herk"):
    """One triangle of ``c = alpha * op(a) @ conj(op(a)).T + beta * c``, Hermitian; answers ``c``.

    The arrays are c64 or c128. With ``transpose`` it is ``c = alpha * conj(a).T @ a + beta * c``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    hermitian: ClassVar[bool] = True


class Rank2K(Op[BlasActor, GpuRef]):
    """One triangle of a matrix and two products of two others; answers ``c``.

    Args:
        a: ``[n, k]`` (``[k, n]`` when ``transpose``), one of ``dtypes``; row- or column-major, of a Hermitian product
            as ``c`` is.
        b: Shape and dtype of ``a``, and stored the same way.
        c: ``[n, n]``, same dtype. Only the triangle that ``lower`` names is written, and read unless ``beta`` is 0; the
            imaginary parts of a Hermitian diagonal are taken as 0.
        alpha: Number or 0-d array of the arrays' dtype.
        beta: Number or 0-d array of the arrays' dtype; real for a Hermitian product.
        transpose: Use ``a.T`` and ``b.T``; in a Hermitian product their conjugates.
        lower: The lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]]
    returns: ClassVar[tuple[str, ...]] = ("c",)
    hermitian: ClassVar[bool] = False

    a: In
    b: In
    c: InOut
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    transpose: bool = False
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, a=self.a, b=self.b, c=self.c)
        form, second = matrix(self, "a", self.a.layout), matrix(self, "b", self.b.layout)
        if (form.rows, form.cols) != (second.rows, second.cols):
            raise refuse(self, f"b is {self.b.layout!r} and a is {self.a.layout!r}; pass matrices of one shape")
        _check_one_order(self, form, "b", second, self.b)
        result = check_square(self, "c", self.c.layout, form.cols if self.transpose else form.rows)
        if self.hermitian:
            _check_one_order(self, form, "c", result, self.c)
        check_scalars(self, dtype, alpha=self.alpha)
        check_scalars(self, dtype.real if self.hermitian else dtype, beta=self.beta)
        return {}


class Syr2k(Rank2K, tag="blas.syr2k"):
    """One triangle of ``c = alpha * (op(a) @ op(b).T + op(b) @ op(a).T) + beta * c``; answers ``c``.

    The arrays are f32, f64, c64 or c128. With ``transpose`` it is ``c = alpha * (a.T @ b + b.T @ a) + beta * c``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS


class Her2k(Rank2K, tag="blas.her2k"):
    """One triangle of ``c = alpha * op(a) @ conj(op(b)).T + conj(alpha) * op(b) @ conj(op(a)).T + beta * c``.

    The arrays are c64 or c128, and the result is Hermitian; answers ``c``. With ``transpose`` it is
    ``c = alpha * conj(a).T @ b + conj(alpha) * conj(b).T @ a + beta * c``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    hermitian: ClassVar[bool] = True


class TwoSided(Op[BlasActor, GpuRef]):
    """A product with a matrix that is stored as one triangle.

    Args:
        a: ``[m, m]`` (``[n, n]`` unless ``left``), one of ``dtypes``; only the triangle that ``lower`` names is read. A
            Hermitian one is row- or column-major as ``b`` is, and of its diagonal only the real parts are read.
        b: ``[m, n]``, same dtype; row-major, or column-major with a column-major ``out``.
        out: ``[m, n]``, same dtype; a new row-major array when None. May be ``c``.
        c: ``[m, n]``, same dtype; row- or column-major; not read while ``beta`` is 0.
        alpha, beta: Number or 0-d array of the arrays' dtype.
        left: ``a`` is the left factor; else the right one.
        lower: The lower triangle of ``a`` holds it; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]]
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})
    hermitian: ClassVar[bool] = False

    a: In
    b: In
    out: Out | None = None
    c: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    left: bool = True
    lower: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_addend_given(self, "c", self.c, self.beta)

    def infer(self) -> Outputs:
        b, out = self.b, self.out
        dtype = dtype_of(self, self.dtypes, a=self.a, b=b)
        form_b = matrix(self, "b", b.layout)
        form_a = check_square(self, "a", self.a.layout, form_b.rows if self.left else form_b.cols)
        result = layout_of(dtype, (form_b.rows, form_b.cols))
        check_addend(self, "c", self.c, result)
        if self.c is not None:
            matrix(self, "c", self.c.layout)
        if (out is not None and matrix(self, "out", out.layout).transposed) != form_b.transposed:
            order = "column-major" if form_b.transposed else "row-major"
            raise refuse(
                self,
                f"b is {b.layout!r}, {order}, and out is not; give an out that is {order}"
                + (", or copy b first (dev.copy)" if form_b.transposed else ""),
            )
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        if self.hermitian:
            _check_one_order(self, form_a, "b", form_b, b)
        return {"out": result}


class Symm(TwoSided, tag="blas.symm"):
    """``out = alpha * a @ b + beta * c`` (``alpha * b @ a + beta * c`` unless ``left``) with a symmetric ``a``.

    The arrays are f32, f64, c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS


class Hemm(TwoSided, tag="blas.hemm"):
    """``out = alpha * a @ b + beta * c`` (``alpha * b @ a + beta * c`` unless ``left``) with a Hermitian ``a``.

    The arrays are c64 or c128.
    """

    dtypes: ClassVar[tuple[DType, ...]] = COMPLEXES
    hermitian: ClassVar[bool] = True


def _check_one_order(op: "RankK | Rank2K | TwoSided", form: Matrix, name: str, other: Matrix, operand: Operand) -> None:
    """BLAS conjugates nothing that is Hermitian: both matrices are stored one way."""
    if form.transposed != other.transposed:
        raise refuse(
            op,
            f"a is {op.a.layout!r} and {name} is {operand.layout!r}: both must be row-major or both column-major; "
            f"copy a first (dev.copy)",
        )


class Triangular(Op[BlasActor, GpuRef]):
    """A triangular matrix and another, in place of the other; answers ``b``.

    Args:
        a: ``[m, m]`` (``[n, n]`` unless ``left``); f32, f64, c64 or c128; only the triangle that ``lower`` names is
            read.
        b: ``[m, n]``, same dtype; row- or column-major.
        alpha: Number or 0-d array of the arrays' dtype.
        left: ``a`` is the left factor; else the right one.
        lower: ``a`` is lower triangular; else upper.
        transpose: Use ``a.T``.
        conj: Use the conjugate of ``a``; with ``transpose``, the conjugate transpose (strides as in :class:`Gemm`,
            with ``b`` for ``out``).
        unit_diagonal: Take the diagonal as ones, without reading it.
    """

    dtypes: ClassVar[tuple[DType, ...]] = BLAS_FLOATS
    returns: ClassVar[tuple[str, ...]] = ("b",)

    a: In
    b: InOut
    alpha: Scalar = 1.0
    left: bool = True
    lower: bool = True
    transpose: bool = False
    conj: bool = False
    unit_diagonal: bool = False

    def infer(self) -> Outputs:
        dtype = dtype_of(self, self.dtypes, a=self.a, b=self.b)
        form_b = matrix(self, "b", self.b.layout)
        form_a = check_square(self, "a", self.a.layout, form_b.rows if self.left else form_b.cols)
        if dtype.is_complex:
            check_conj(self, "a", form_a, self.transpose, self.conj, form_b)
        check_scalars(self, dtype, alpha=self.alpha)
        return {}


class Trsm(Triangular, tag="blas.trsm"):
    """Solve ``op(a) @ x = alpha * b`` for a triangular ``a``; ``x`` takes the place of ``b`` (``TrsmRequest``).

    Unless ``left``, solve ``x @ op(a) = alpha * b``. Answers ``b``. A zero on the diagonal gives infinities and NaN, no
    error.
    """


class Trmm(Triangular, tag="blas.trmm"):
    """``b = alpha * op(a) @ b`` with a triangular ``a``, in place; answers ``b``.

    Unless ``left``, ``b = alpha * b @ op(a)``.
    """
