"""Operand checks of the solver's messages. Every error names op, operand, value and cure."""

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.op import info_of
from callboard.core.operand import Operand, StructOperand, operands_of
from callboard.kernel.checks import AnyOp, refuse

__all__ = [
    "FLOATS",
    "INDICES",
    "dtype_of",
    "matrix",
    "pivots_of",
    "right_hand_side",
    "shaped",
    "square",
    "too_large",
]


FLOATS = (DTYPES["f32"], DTYPES["f64"], DTYPES["c64"], DTYPES["c128"])
"""The types of LAPACK."""
INDICES = (DTYPES["i32"], DTYPES["i64"])
"""The types of pivots and of sparse indices."""
INT_MAX = 2**31 - 1


def dtype_of(op: AnyOp, **operands: Operand) -> DType:
    """The one dtype of the operands, which LAPACK must have."""
    (first, reference), *rest = operands.items()
    if reference.dtype not in FLOATS:
        names = ", ".join(d.name for d in FLOATS)
        raise refuse(op, f"{first} is {reference.layout!r}; its dtype must be one of {names}")
    for name, operand in rest:
        if operand.dtype is not reference.dtype:
            raise refuse(
                op,
                f"{name} is {operand.layout!r} and {first} is {reference.layout!r}: both must have one dtype "
                "(x.astype converts)",
            )
    return reference.dtype


def matrix(op: AnyOp, name: str, operand: Operand, *, batched: bool = False) -> tuple[int, int, int]:
    """Return batch (1 if there is none), rows and columns."""
    axes = 3 if batched else 2
    if operand.ndim != axes:
        cure = f"{name}[None] is a batch of one" if batched else "the batched ops take more"
        raise refuse(op, f"{name} is {operand.layout!r}; it must have {axes} axes ({cure})")
    batch, rows, cols = operand.shape if batched else (1, *operand.shape)
    return batch, rows, cols


def square(op: AnyOp, name: str, operand: Operand, *, batched: bool = False) -> tuple[int, int]:
    """Batch and order of a square matrix."""
    batch, rows, cols = matrix(op, name, operand, batched=batched)
    if rows != cols:
        raise refuse(op, f"{name} is {operand.layout!r}; it must be square")
    return batch, rows


def shaped(op: AnyOp, name: str, operand: Operand, shape: tuple[int, ...], why: str) -> None:
    """The operand has this shape."""
    if operand.shape != shape:
        raise refuse(op, f"{name} is {operand.layout!r}; {why} makes it {list(shape)}")


def right_hand_side(op: AnyOp, name: str, operand: Operand, rows: int) -> tuple[int, ...]:
    """The shape of ``b`` after its rows: ``()`` for a vector, ``(columns,)`` for a matrix."""
    if operand.ndim not in (1, 2) or operand.shape[0] != rows:
        raise refuse(op, f"{name} is {operand.layout!r}; it must be [{rows}] or [{rows}, columns]")
    return operand.shape[1:]


def pivots_of(op: AnyOp, given: Operand | None, shape: tuple[int, ...]) -> Layout:
    """The layout of pivots: i32, or that of the given output."""
    dtype = DTYPES["i32"] if given is None else given.dtype
    if dtype not in INDICES:
        raise refuse(op, f"pivots is {given!r}; its dtype must be i32 or i64")
    return layout_of(dtype, shape)


def too_large(op: AnyOp) -> str | None:
    """The error text if an extent exceeds a C int, the index type of LAPACK and most of cuSOLVER; else None."""
    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        for operand in operands_of(value).values() if isinstance(value, StructOperand) else (value,):
            layout = getattr(operand, "layout", None)
            if layout is not None and max(layout.shape, default=0) > INT_MAX:
                return f"{field.name} is {layout!r}; the routines count at most {INT_MAX} rows or columns"
    return None
