"""Rows of a table looked up by their numbers, and the gradient of the table."""

from typing import Any, ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import FLOATS, INDICES, check_floats

__all__ = ["Embedding", "EmbeddingBackward", "wrong_rows"]


def check_indices(op: Op[Any, Any], indices: Operand) -> None:
    if indices.dtype not in INDICES:
        raise refuse(op, f"indices is {indices.layout!r}; they must be i32 or i64 (dev.array.cast)")


class Embedding(Op[CudnnActor, GpuRef], tag="dnn.embedding"):
    """``out[i…] = table[indices[i…]]``.

    Args:
        table: ``[rows, width]``, f16, bf16, f32 or f64, any strides.
        indices: Any shape and strides, i32 or i64, from 0 to rows - 1. Others fail the op with ``ShapeError`` when it
            is executed.
        out: ``[*indices.shape, width]``, dtype of the table, any strides; a new row-major array when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS

    table: In
    indices: In
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_floats(self, "table", self.table)
        check_indices(self, self.indices)
        if self.table.ndim != 2:
            raise refuse(self, f"table is {self.table.layout!r}; it must be [rows, width]")
        if not self.table.shape[0] and self.indices.size:
            raise refuse(self, f"table is {self.table.layout!r}: a table without rows cannot be looked up")
        return {"out": layout_of(dtype, (*self.indices.shape, self.table.shape[1]))}


class EmbeddingBackward(Op[CudnnActor, GpuRef], tag="dnn.embedding_backward"):
    """The gradient of the table: ``dtable[indices[i…]] += dy[i…]``, 0 in all other rows.

    Equal indices are added up in f32 (f64 for f64), in an order that follows from the indices alone: equal calls give
    equal bits.

    Args:
        dy: ``[*indices.shape, width]``, f16, bf16, f32 or f64, any strides.
        indices: The same as forward.
        rows: Number of rows of the table.
        padding: The row that has no gradient; None: every row has one.
        by_frequency: Divide the gradient of each row by the number of its occurrences in ``indices``.
        dtable: ``[rows, width]``, dtype of ``dy``, any strides; a new row-major array when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dtable",)

    dy: In
    indices: In
    rows: int
    padding: int | None = None
    by_frequency: bool = False
    dtable: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_floats(self, "dy", self.dy)
        check_indices(self, self.indices)
        if self.dy.ndim != self.indices.ndim + 1 or self.dy.shape[:-1] != self.indices.shape:
            raise refuse(
                self,
                f"dy is {self.dy.layout!r} and indices {self.indices.layout!r}: dy must be [*indices.shape, width]",
            )
        if not 0 <= self.rows < 1 << 31:
            raise refuse(self, f"rows is {self.rows}; a table has from 0 to 2**31 - 1 rows")
        if not self.rows and self.indices.size:
            raise refuse(self, f"rows is 0, and indices is {self.indices.layout!r}")
        if self.indices.size >= 1 << 31:
            raise refuse(self, f"indices is {self.indices.layout!r}; there may be 2**31 - 1 of them (take parts)")
        if self.padding is not None and not 0 <= self.padding < self.rows:
            raise refuse(self, f"padding is {self.padding}; it must be one of the {self.rows} rows")
        return {"dtable": layout_of(dtype, (self.rows, self.dy.shape[-1]))}


def wrong_rows(tag: str, name: str, value: int, wrong: int, count: int, rows: int) -> str:
    """The error text for indices out of range."""
    return f"{tag}: {name} holds {value}; there are rows 0 to {rows - 1} ({wrong} of {count} are out of range)"
