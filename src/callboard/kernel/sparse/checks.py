"""Operand checks of the sparse messages. Every error names op, operand, value and cure."""

from collections.abc import Sequence
from typing import Any

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import NumericalError, ShapeError
from callboard.core.layout import Layout
from callboard.core.operand import Operand, differs, operands_of
from callboard.kernel.checks import AnyOp, refuse
from callboard.kernel.sparse.formats import INDEX_LIMIT, AnyRef, BlockedEllRef, BsrRef, CooRef, CscRef

__all__ = [
    "INDICES",
    "REAL_AND_COMPLEX",
    "VALUES",
    "check_addend",
    "check_scalars",
    "checked",
    "dense_of",
    "faults_text",
    "index_of",
    "leading",
    "no_room",
    "scale_dtype",
    "twice",
    "vector_of",
    "zero_pivot",
]

VALUES = tuple(DTYPES[name] for name in ("f16", "bf16", "f32", "f64", "c64", "c128"))
"""The dtypes of values."""
REAL_AND_COMPLEX = VALUES[2:]
INDICES = (DTYPES["i32"], DTYPES["i64"])


def index_of(a: AnyRef) -> DType:
    """The dtype of a matrix's indices."""
    return a.rows.dtype if isinstance(a, CooRef) else a.indices.dtype


def checked(op: AnyOp, name: str, a: AnyRef, dtype: DType | None = None) -> tuple[int, int]:
    """The shape of a sparse matrix whose arrays fit together, with values of ``dtype`` if given."""
    axes = {BsrRef: {"values": 3}, BlockedEllRef: {"values": 2, "indices": 2}}.get(type(a), {})
    for part, array in operands_of(a).items():
        n = axes.get(part, 1)
        if array.ndim != n or not array.layout.contiguous:
            what = "be a vector" if n == 1 else f"have {n} axes, row-major"
            raise refuse(op, f"{name}.{part} is {array.layout!r}; it must {what} without gaps (dev.copy closes gaps)")
    if a.values.dtype not in VALUES:
        names = ", ".join(d.name for d in VALUES)
        raise refuse(op, f"{name}.values is {a.values.layout!r}; its dtype must be one of {names}")
    if dtype is not None and a.values.dtype is not dtype:
        raise refuse(op, f"{name}.values is {a.values.layout!r}; it must be {dtype} as the other operands are")
    rows, cols = a.shape
    if min(rows, cols) < 0:
        raise refuse(op, f"{name}.shape is {a.shape}; extents are >= 0")
    index = index_of(a)
    for part, shape in _extents(op, name, a).items():
        ref: Operand = getattr(a, part)
        if ref.dtype not in INDICES or ref.dtype is not index:
            raise refuse(op, f"{name}.{part} is {ref.layout!r}; indices are all i32 or all i64")
        if ref.shape != shape:
            have = shape[0] if len(shape) == 1 else list(shape)
            stored = f"{a.values.size} values" if a.values.ndim == 1 else f"values {a.values.layout!r}"
            raise refuse(op, f"{name}.{part} is {ref.layout!r}; for {stored} and shape {a.shape} it must have {have}")
    if max(rows, cols, a.values.size) > INDEX_LIMIT[index.name]:
        raise refuse(op, f"{name} is {a.shape} with {a.values.size} values; {index} indices do not reach that far")
    return rows, cols


def _extents(op: AnyOp, name: str, a: AnyRef) -> dict[str, tuple[int, ...]]:
    """The shape that each array of indices must have."""
    rows, cols = a.shape
    if isinstance(a, CooRef):
        return {"rows": (a.nnz,), "cols": (a.nnz,)}
    if isinstance(a, BlockedEllRef):
        held, width = a.values.shape
        if a.block < 1 or rows % a.block or cols % a.block or width % a.block:
            raise refuse(
                op,
                f"{name}.block is {a.block}; it must divide the shape {a.shape} and the width of the values, {width}",
            )
        if held != rows:
            raise refuse(op, f"{name}.values is {a.values.layout!r}; for shape {a.shape} it must have {rows} rows")
        return {"indices": (rows // a.block, width // a.block)}
    stored, *block = a.values.shape
    if isinstance(a, BsrRef):
        down, across = block
        if min(block) < 1 or rows % down or cols % across:
            raise refuse(op, f"{name}.values is {a.values.layout!r}; blocks of {down} x {across} must divide {a.shape}")
        return {"indices": (stored,), "indptr": (rows // down + 1,)}
    return {"indices": (stored,), "indptr": ((cols if isinstance(a, CscRef) else rows) + 1,)}


def vector_of(op: AnyOp, name: str, ref: Operand, size: int, dtype: DType) -> None:
    """A vector without gaps."""
    if ref.dtype is not dtype or ref.shape != (size,):
        raise refuse(op, f"{name} is {ref.layout!r}, expected {dtype}[{size}]")
    if not ref.layout.contiguous:
        raise refuse(op, f"{name} is {ref.layout!r}; it must have no gaps (dev.copy makes such a vector)")


def dense_of(op: AnyOp, name: str, ref: Operand, dtype: DType) -> tuple[int, int]:
    """The shape of a dense matrix that is row- or column-major, rows or columns without gaps in themselves."""
    if ref.ndim != 2:
        raise refuse(op, f"{name} is {ref.layout!r}; it must have 2 axes")
    if ref.dtype is not dtype:
        raise refuse(op, f"{name} is {ref.layout!r}; it must be {dtype} as the other operands are")
    if leading(ref.layout) is None:
        raise refuse(op, f"{name} is {ref.layout!r}; rows or columns must have no gaps (dev.copy makes such a matrix)")
    rows, cols = ref.shape
    return rows, cols


def leading(layout: Layout) -> tuple[bool, int] | None:
    """Return ``(True, row stride)`` if row-major, ``(False, column stride)`` if column-major, else None."""
    (rows, cols), (down, across) = layout.shape, layout.strides
    if layout.size == 0:
        return True, max(cols, 1)
    if (across == 1 or cols == 1) and (down >= cols or rows == 1):
        return True, down if rows > 1 else max(cols, 1)
    if (down == 1 or rows == 1) and (across >= rows or cols == 1):
        return False, across if cols > 1 else max(rows, 1)
    return None


def scale_dtype(dtype: DType) -> DType:
    """The dtype of ``alpha`` and ``beta`` as 0-d arrays: f32 for f16 and bf16, else the operands' own."""
    return DTYPES["f32"] if dtype.itemsize == 2 else dtype


def check_scalars(op: AnyOp, dtype: DType, **scalars: Any) -> None:
    """Numbers must be real if the arrays are; 0-d arrays must have the scale dtype."""
    want = scale_dtype(dtype)
    for name, value in scalars.items():
        if isinstance(value, Operand):
            if value.dtype is not want:
                raise refuse(op, f"{name} is {value.layout!r}; with arrays of {dtype} a 0-d array must be {want}")
        elif isinstance(value, complex) and not dtype.is_complex:
            raise refuse(op, f"{name} is complex and the arrays are {dtype}; pass a real number")


def check_addend(op: AnyOp, name: str, addend: Operand | None, beta: Any) -> None:
    """``beta`` needs something to scale."""
    if addend is None and differs(beta, 0.0):
        raise refuse(op, f"beta is {beta!r} and {name} is None; pass the {name} that beta scales, or leave beta out")


def faults_text(a: AnyRef, counts: Sequence[int], duplicates: str = "refuse") -> str:
    """Describe the faults of a matrix; empty if there are none.

    Args:
        a: The matrix.
        counts: Five counts of faults: pointers that do not rise from 0 to the number of entries; indices (columns) out
            of range; rows out of range; rows that fall; indices that are not in order within a row or column.
        duplicates: ``"keep"`` if indices in order may be equal.
    """
    pointers, first, second, falls, order = counts
    rows, cols = a.shape
    wrong = "fall" if duplicates == "keep" else "do not rise"
    if isinstance(a, CooRef):
        found = [
            (second, f"rows out of range [0, {rows})"),
            (first, f"cols out of range [0, {cols})"),
            (falls, "rows fall"),
            (order, f"cols {wrong} within a row"),
        ]
    else:
        lowest, extent, line = 0, cols, "row"
        if isinstance(a, CscRef):
            extent, line = rows, "column"
        elif isinstance(a, BsrRef):
            extent, line = cols // a.block[1], "block row"
        elif isinstance(a, BlockedEllRef):
            lowest, extent = -1 if a.padded else 0, cols // a.block
            line = "block row with padding at its end"
        found = [
            (pointers, "indptr does not rise from 0 to the number of " + ("blocks" if "block" in line else "entries")),
            (first, f"indices out of range [{lowest}, {extent})"),
            (0 if pointers else order, f"indices {wrong} within a {line}"),
        ]
    return "; ".join(f"{what} ({number} times)" for number, what in found if number)


def no_room(op: AnyOp, found: int, room: int) -> ShapeError:
    """A result that the given arrays cannot hold."""
    tag, form = type(op).__struct_config__.tag, getattr(op, "out", None)
    what = "blocks in a row" if isinstance(form, BlockedEllRef) else "blocks" if isinstance(form, BsrRef) else "entries"
    return ShapeError(f"{tag}: {found} {what}, and out has room for {room}; give larger arrays")


def twice(tag: str, number: int) -> ShapeError:
    """Entries that are stored more than once, and refused."""
    return ShapeError(f"{tag}: {number} entries of a are stored more than once; pass duplicates='sum' or 'keep'")


def zero_pivot(tag: str, row: int) -> NumericalError:
    """A triangular matrix with a 0 on its diagonal."""
    return NumericalError(f"{tag}: a is singular: entry [{row}, {row}] of its diagonal is 0 or not stored", row + 1)
