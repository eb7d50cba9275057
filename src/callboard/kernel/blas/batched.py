"""Many matrix products in one message: at one distance, anywhere in memory, or of different shapes."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Operand, Out, Scalar, differs
from callboard.core.ref import GpuRef
from callboard.kernel.blas.actor import BlasActor
from callboard.kernel.blas.checks import (
    GEMM_RESULT,
    check_addend,
    check_addend_given,
    check_conj,
    check_gemm_numbers,
    check_scalars,
    check_tf32,
    dtype_of,
    matrix,
)
from callboard.kernel.blas.strides import Matrix
from callboard.kernel.checks import AnyOp, refuse

__all__ = ["GemmBatched", "GemmGrouped", "GemmStridedBatched"]


def _slice_form(op: AnyOp, name: str, operand: Operand, *, batch_step: int = 0) -> Matrix:
    """One matrix of a stack."""
    layout = operand.layout
    if layout.ndim != 3:
        raise refuse(op, f"{name} is {layout!r}; it must have 3 axes (one matrix for all: {name}[None])")
    if layout.shape[0] > 1 and layout.strides[0] < batch_step:
        raise refuse(op, f"{name} is {layout!r}: its matrices run backwards; copy it first (dev.copy)")
    if layout.size == 0:
        return Matrix(layout.shape[1], layout.shape[2], max(layout.shape[2], 1), False)
    return matrix(op, name, layout_of(layout.dtype, layout.shape[1:], layout.strides[1:]))


def _product_shape(op: AnyOp, what: str, a: Matrix, b: Matrix, transpose_a: bool, transpose_b: bool) -> tuple[int, int]:
    m, k = (a.cols, a.rows) if transpose_a else (a.rows, a.cols)
    k_b, n = (b.cols, b.rows) if transpose_b else (b.rows, b.cols)
    if k != k_b:
        raise refuse(
            op,
            f"{what}op(a) is [{m}, {k}] and op(b) is [{k_b}, {n}]; their inner extents must be equal "
            f"(see transpose_a, transpose_b)",
        )
    return m, n


class GemmStridedBatched(Op[BlasActor, GpuRef], tag="blas.gemm_strided_batched"):
    """``out[i] = alpha * op(a[i]) @ op(b[i]) + beta * c[i]`` for stacks of matrices (``GemmStridedBatchedRequest``).

    Args:
        a: ``[batch, m, k]`` (``[batch, k, m]`` when ``transpose_a``); dtypes of
            :class:`Gemm <callboard.kernel.blas.level3.Gemm>`; each matrix row- or column-major. With a first extent
            of 1 the one matrix serves all (``a[None]``).
        b: ``[batch, k, n]`` (``[batch, n, k]`` when ``transpose_b``), same dtype; the rest as ``a``.
        out: ``[batch, m, n]``, same dtype (i32 for i8); a new row-major array when None. May be ``c``.
        c: ``[batch, m, n]``, dtype of ``out``; not read while ``beta`` is 0.
        alpha, beta, transpose_a, transpose_b, conj_a, conj_b, tf32: As for a single product
            (:class:`Gemm <callboard.kernel.blas.level3.Gemm>`).
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
        form_a, form_b = _slice_form(self, "a", self.a), _slice_form(self, "b", self.b)
        m, n = _product_shape(self, "", form_a, form_b, self.transpose_a, self.transpose_b)
        of_a, of_b = self.a.shape[0], self.b.shape[0]
        if of_a != of_b and 1 not in (of_a, of_b):
            raise refuse(
                self,
                f"a is {self.a.layout!r} and b is {self.b.layout!r}: {of_a} and {of_b} matrices; "
                f"the first extents must be equal, or one of them 1",
            )
        result = layout_of(GEMM_RESULT[dtype], (of_b if of_a == 1 else of_a, m, n))
        check_addend(self, "c", self.c, result)
        if self.c is not None:
            _slice_form(self, "c", self.c)
        out = None if self.out is None else _slice_form(self, "out", self.out, batch_step=1)
        if dtype.is_complex:
            check_conj(self, "a", form_a, self.transpose_a, self.conj_a, out)
            check_conj(self, "b", form_b, self.transpose_b, self.conj_b, out)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        check_tf32(self, self.tf32, dtype)
        return {"out": result}


def _check_count(op: AnyOp, a: tuple[Operand, ...], others: dict[str, tuple[Operand, ...]]) -> None:
    if not a:
        raise refuse(op, "a is empty; pass at least one matrix")
    for name, operands in others.items():
        if len(operands) != len(a):
            raise refuse(op, f"a holds {len(a)} matrices and {name} {len(operands)}; pass as many")


class GemmBatched(Op[BlasActor, GpuRef], tag="blas.gemm_batched"):
    """``out[i] = alpha * op(a[i]) @ op(b[i]) + beta * c[i]`` for separate matrices of one shape.

    Args:
        a: Matrices ``[m, k]`` (``[k, m]`` when ``transpose_a``), all of one layout; dtypes of
            :class:`Gemm <callboard.kernel.blas.level3.Gemm>`; row- or column-major. One matrix may occur several times.
        b: The same number of matrices ``[k, n]`` (``[n, k]`` when ``transpose_b``), all of one layout, same dtype.
        out: ``[batch, m, n]``, same dtype (i32 for i8); a new row-major array when None. May be ``c``.
        c: ``[batch, m, n]``, dtype of ``out``; not read while ``beta`` is 0.
        alpha, beta, transpose_a, transpose_b, conj_a, conj_b, tf32: As for a single product
            (:class:`Gemm <callboard.kernel.blas.level3.Gemm>`).

    BLAS libraries call this pointer batched. For separate results see :class:`GemmGrouped`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = tuple(GEMM_RESULT)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    a: tuple[In, ...]
    b: tuple[In, ...]
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
        _check_count(self, self.a, {"b": self.b})
        if differs(self.beta, 0.0) or differs(self.alpha, 1.0):
            check_addend_given(self, "c", self.c, self.beta)
            check_gemm_numbers(self, self.a[0].dtype, alpha=self.alpha, beta=self.beta)

    def infer(self) -> Outputs:
        a, b = self.a[0], self.b[0]
        for name, operands in (("a", self.a), ("b", self.b)):
            for i, operand in enumerate(operands):
                if operand.layout != operands[0].layout:
                    raise refuse(
                        self,
                        f"{name}[{i}] is {operand.layout!r} and {name}[0] {operands[0].layout!r}; "
                        f"all must have one layout (gemm_grouped takes different ones)",
                    )
        dtype = dtype_of(self, GEMM_RESULT, a=a, b=b)
        form_a, form_b = matrix(self, "a[0]", a.layout), matrix(self, "b[0]", b.layout)
        m, n = _product_shape(self, "", form_a, form_b, self.transpose_a, self.transpose_b)
        result = layout_of(GEMM_RESULT[dtype], (len(self.a), m, n))
        check_addend(self, "c", self.c, result)
        if self.c is not None:
            _slice_form(self, "c", self.c)
        out = None if self.out is None else _slice_form(self, "out", self.out, batch_step=1)
        if dtype.is_complex:
            check_conj(self, "a", form_a, self.transpose_a, self.conj_a, out)
            check_conj(self, "b", form_b, self.transpose_b, self.conj_b, out)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        check_tf32(self, self.tf32, dtype)
        return {"out": result}


class GemmGrouped(Op[BlasActor, tuple[GpuRef, ...]], tag="blas.gemm_grouped"):
    """``c[i] = alpha * op(a[i]) @ op(b[i]) + beta * c[i]``, each of its own shape; answers the tuple ``c``.

    Args:
        a: Matrices ``[m_i, k_i]`` (``[k_i, m_i]`` when ``transpose_a``), all of one dtype of
            :class:`Gemm <callboard.kernel.blas.level3.Gemm>`; each row- or column-major.
        b: The same number of matrices ``[k_i, n_i]`` (``[n_i, k_i]`` when ``transpose_b``), same dtype.
        c: The same number of matrices ``[m_i, n_i]``, same dtype (i32 for i8); none may overlap another. Not read
            while ``beta`` is 0.
        alpha, beta, transpose_a, transpose_b, conj_a, conj_b, tf32: As for a single product
            (:class:`Gemm <callboard.kernel.blas.level3.Gemm>`); the same for all products. A transposed view among the
            operands transposes only that operand.
    """

    dtypes: ClassVar[tuple[DType, ...]] = tuple(GEMM_RESULT)
    returns: ClassVar[tuple[str, ...]] = ("c",)

    a: tuple[In, ...]
    b: tuple[In, ...]
    c: tuple[InOut, ...]
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    transpose_a: bool = False
    transpose_b: bool = False
    conj_a: bool = False
    conj_b: bool = False
    tf32: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count(self, self.a, {"b": self.b, "c": self.c})
        if differs(self.beta, 0.0) or differs(self.alpha, 1.0):
            check_gemm_numbers(self, self.a[0].dtype, alpha=self.alpha, beta=self.beta)

    def infer(self) -> Outputs:
        everything = {f"{name}[{i}]": x for name in ("a", "b") for i, x in enumerate(getattr(self, name))}
        dtype = dtype_of(self, GEMM_RESULT, **everything)
        for i, (a, b, c) in enumerate(zip(self.a, self.b, self.c, strict=True)):
            form_a, form_b = matrix(self, f"a[{i}]", a.layout), matrix(self, f"b[{i}]", b.layout)
            shape = _product_shape(self, f"product {i}: ", form_a, form_b, self.transpose_a, self.transpose_b)
            check_addend(self, f"c[{i}]", c, layout_of(GEMM_RESULT[dtype], shape))
            form_c = matrix(self, f"c[{i}]", c.layout)
            if dtype.is_complex:
                check_conj(self, f"a[{i}]", form_a, self.transpose_a, self.conj_a, form_c)
                check_conj(self, f"b[{i}]", form_b, self.transpose_b, self.conj_b, form_c)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        check_tf32(self, self.tf32, dtype)
        return {}
