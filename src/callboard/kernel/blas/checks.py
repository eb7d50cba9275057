"""Operand checks of the BLAS messages. Every error names op, operand, value and cure."""

from collections.abc import Collection, Mapping
from typing import Any

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout
from callboard.core.operand import Operand, differs
from callboard.core.ref import GpuRef
from callboard.kernel.blas.strides import Matrix, Vector, band_of, matrix_of, vector_of
from callboard.kernel.checks import AnyOp, refuse

__all__ = [
    "ALL_FLOATS",
    "BLAS_FLOATS",
    "COMPLEXES",
    "GEMM_RESULT",
    "REALS",
    "REAL_FLOATS",
    "check_addend",
    "check_addend_given",
    "check_conj",
    "check_gemm_numbers",
    "check_packed",
    "check_runs_forwards",
    "check_scalars",
    "check_square",
    "check_tf32",
    "dtype_of",
    "extent",
    "matrix",
    "order_of_band",
    "same_memory",
    "scale_dtype",
    "vector",
]


_HALVES = (DTYPES["f16"], DTYPES["bf16"])
REALS = (DTYPES["f32"], DTYPES["f64"])
"""The real types that classic BLAS has."""
COMPLEXES = (DTYPES["c64"], DTYPES["c128"])
REAL_FLOATS = (*_HALVES, *REALS)
"""Real types, the halves included."""
BLAS_FLOATS = (*REALS, *COMPLEXES)
"""The four types of classic BLAS."""
ALL_FLOATS = (*_HALVES, *BLAS_FLOATS)

GEMM_RESULT: Mapping[DType, DType] = {**{d: d for d in ALL_FLOATS}, DTYPES["i8"]: DTYPES["i32"]}
"""The dtype of a matrix product by the dtype of its factors."""

_COPY = "copy it first (dev.copy)"


def scale_dtype(dtype: DType) -> DType:
    """The dtype of ``alpha`` and ``beta`` as 0-d arrays: f32 for f16 and bf16, i32 for i8, else the operands' own."""
    if dtype in _HALVES:
        return DTYPES["f32"]
    return DTYPES["i32"] if dtype is DTYPES["i8"] else dtype


def dtype_of(op: AnyOp, accepted: Collection[DType], **operands: Operand) -> DType:
    """The one dtype of the operands, which must be among ``accepted``."""
    (first, reference), *rest = operands.items()
    if reference.dtype not in accepted:
        names = ", ".join(d.name for d in accepted)
        raise refuse(op, f"{first} is {reference.layout!r}; its dtype must be one of {names}")
    for name, operand in rest:
        if operand.dtype is not reference.dtype:
            raise refuse(
                op,
                f"{name} is {operand.layout!r} and {first} is {reference.layout!r}: both must have one dtype "
                "(x.astype converts)",
            )
    return reference.dtype


def matrix(op: AnyOp, name: str, layout: Layout) -> Matrix:
    """The layout as a BLAS matrix."""
    if layout.ndim != 2:
        raise refuse(op, f"{name} is {layout!r}; it must have 2 axes (reshape it or index it with None)")
    found = matrix_of(layout)
    if found is None:
        raise refuse(
            op, f"{name} is {layout!r}: BLAS needs rows or columns without gaps, and steps of whole rows; {_COPY}"
        )
    return found


def vector(op: AnyOp, name: str, layout: Layout) -> Vector:
    """The layout as a BLAS vector, whatever its axes."""
    found = vector_of(layout)
    if found is None:
        raise refuse(op, f"{name} is {layout!r}: BLAS needs evenly spaced, distinct elements; {_COPY}")
    return found


def extent(op: AnyOp, name: str, operand: Operand) -> int:
    """The number of elements of a vector with one axis."""
    if operand.ndim != 1:
        raise refuse(op, f"{name} is {operand.layout!r}; it must have 1 axis (index or reshape it)")
    return vector(op, name, operand.layout).n


def check_packed(op: AnyOp, name: str, operand: Operand, n: int) -> None:
    """A packed triangle of order ``n``."""
    size = n * (n + 1) // 2
    if operand.shape != (size,) or not operand.layout.contiguous:
        layout = operand.layout
        raise refuse(op, f"{name} is {layout!r}; packed for x of {n} elements it must be [{size}], no gaps")


def order_of_band(op: AnyOp, name: str, operand: Operand, n: int | None = None) -> int:
    """Diagonals beside the first one of a band: a column-major array with a row for each diagonal, ``n`` columns."""
    layout = operand.layout
    if layout.ndim != 2 or not layout.shape[0] or (n is not None and layout.shape[1] != n):
        columns = "n" if n is None else n
        raise refuse(op, f"{name} is {layout!r}; a band is [diagonals, {columns}], with one diagonal or more")
    if band_of(layout) is None:
        raise refuse(op, f"{name} is {layout!r}: a band is column-major; pass the .T of a row-major [n, diagonals]")
    return layout.shape[0] - 1


def check_runs_forwards(op: AnyOp, **vectors: Operand | None) -> None:
    """Refuse reversed vectors beside a row-major Hermitian matrix.

    BLAS sees the conjugate of the matrix, so vectors are passed as matrices.
    """
    for name, operand in vectors.items():
        if operand is not None and vector(op, name, operand.layout).inc < 0:
            raise refuse(
                op, f"{name} is {operand.layout!r}, backwards, and a is row-major; copy {name} first (dev.copy)"
            )


def check_square(op: AnyOp, name: str, layout: Layout, n: int | None = None) -> Matrix:
    """A square matrix, of order ``n`` if given."""
    form = matrix(op, name, layout)
    order = form.rows if n is None else n
    if (form.rows, form.cols) != (order, order):
        raise refuse(op, f"{name} is {layout!r}; it must be {'square' if n is None else f'[{n}, {n}]'}")
    return form


def check_scalars(op: AnyOp, dtype: DType, **scalars: Any) -> None:
    """Numbers must be real if the arrays are; 0-d arrays must have the scale dtype.

    Checks the kinds of the numbers, not their values: the result is cached for all messages of one signature.
    """
    want = scale_dtype(dtype)
    for name, value in scalars.items():
        if isinstance(value, Operand):
            if value.dtype is not want:
                raise refuse(op, f"{name} is {value.layout!r}; with arrays of {dtype} a 0-d array must be {want}")
        elif isinstance(value, complex) and not dtype.is_complex:
            raise refuse(op, f"{name} is complex and the arrays are {dtype}; pass a real number")


def check_addend(op: AnyOp, name: str, addend: Operand | None, result: Layout) -> None:
    """``c`` must look like the result."""
    if addend is not None and (addend.dtype is not result.dtype or addend.shape != result.shape):
        raise refuse(op, f"{name} is {addend.layout!r}, expected {result!r}")


def check_addend_given(op: AnyOp, name: str, addend: Operand | None, beta: float | complex | Operand) -> None:
    """``beta`` needs something to scale."""
    if addend is None and differs(beta, 0.0):
        raise refuse(op, f"beta is {beta!r} and {name} is None; pass the {name} that beta scales, or leave beta out")


def check_gemm_numbers(op: AnyOp, dtype: DType, **numbers: float | complex | Operand) -> None:
    """Factors of an integer product are integers of 32 bits."""
    if dtype is DTYPES["i8"]:
        for name, value in numbers.items():
            if isinstance(value, float) and not (value.is_integer() and -(2**31) <= value < 2**31):
                raise refuse(op, f"{name} is {value!r}; with i8 arrays it must be an integer of 32 bits")


def check_tf32(op: AnyOp, tf32: bool | None, dtype: DType) -> None:
    """The switch means something for f32 and c64 only."""
    if tf32 is not None and dtype not in (DTYPES["f32"], DTYPES["c64"]):
        raise refuse(op, f"tf32 is {tf32} and the arrays are {dtype}; leave it out, it applies to f32 and c64 only")


def check_conj(op: AnyOp, name: str, form: Matrix, transpose: bool, conj: bool, out: Matrix | None) -> None:
    """Refuse a conjugation that BLAS cannot do, since it conjugates only together with a transposition.

    Whether it transposes depends on the layouts of operand and result.

    Args:
        op: The message.
        name: Name of the operand.
        form: Form of the operand, complex.
        transpose: True if its axes are exchanged.
        conj: True if its elements are conjugated.
        out: Form of the result; None: row-major.
    """
    if conj and (form.transposed ^ transpose ^ (out is not None and out.transposed)) is False:
        raise refuse(
            op,
            f"conj of {name} without a transposition in memory is not a BLAS operation; "
            f"pass dev.copy({name}{'' if form.transposed else '.T'})"
            f"{' in its place' if form.transposed else ' and the other value of its transpose flag'}",
        )


def same_memory(x: Operand | None, y: Operand | None) -> bool:
    """True if two refs name the same elements of one buffer (placeholders name none)."""
    return (
        isinstance(x, GpuRef)
        and isinstance(y, GpuRef)
        and (x is y or (x.allocation is y.allocation and x.offset == y.offset and x.layout == y.layout))
    )
