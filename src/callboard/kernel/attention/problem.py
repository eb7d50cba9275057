"""The problem size of an attention call: extents and strides by meaning, independent of the operands' layout."""

from typing import Literal, NamedTuple

from callboard.core.dtype import DTYPES, DType, dtypes_of
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Operand
from callboard.kernel.checks import AnyOp, refuse

__all__ = ["FLOATS", "SeqLayout", "Strides", "Tensor", "lse_dtype", "tensor_of", "vector"]

SeqLayout = Literal["bshd", "bhsd"]
"""Axes of operands with four: batch, sequence, heads, head dim, or batch, heads, sequence, head dim."""

FLOATS = dtypes_of("f16 bf16 f32 f64")
SHAPES = {"bshd": "[batch, seq, heads, head_dim]", "bhsd": "[batch, heads, seq, head_dim]"}


class Strides(NamedTuple):
    """Elements from one item of an axis to the next; those of the last axis are adjacent."""

    batch: int
    head: int
    row: int


class Tensor(NamedTuple):
    """An operand by the meaning of its axes.

    Attributes:
        batch: Sequences; 1 if the operand has three axes.
        heads: Number of heads, of queries or of keys and values.
        rows: Positions of a sequence; all tokens of all sequences if they are ragged.
        dim: The head dim.
        strides: Distance in elements along each axis.
    """

    batch: int
    heads: int
    rows: int
    dim: int
    strides: Strides


def tensor_of(op: AnyOp, name: str, layout: Layout, order: SeqLayout) -> Tensor:
    """The operand's axes.

    Three axes are ``[tokens, heads, head_dim]``: one sequence, or several packed one after the other.

    Raises:
        ShapeError: It has another number of axes, no heads or no head dim, or a last axis with gaps.
    """
    if layout.ndim not in (3, 4):
        raise refuse(
            op, f"{name} is {layout!r}; it must be {SHAPES[order]}, or [tokens, heads, head_dim] of packed sequences"
        )
    if 0 in layout.shape[-1:] or (layout.ndim == 3 and layout.shape[1] == 0):
        raise refuse(op, f"{name} is {layout!r}; it must have a head and a head dim")
    if layout.shape[-1] > 1 and layout.strides[-1] != 1 and layout.size:
        raise refuse(op, f"{name} is {layout!r}; its last axis must have no gaps: copy it first (dev.copy)")
    if layout.ndim == 3:
        rows, heads, dim = layout.shape
        return Tensor(1, heads, rows, dim, Strides(0, layout.strides[1], layout.strides[0]))
    (batch, rows, heads, dim), (by_batch, by_row, by_head, _) = layout.shape, layout.strides
    if order == "bhsd":
        heads, rows, by_head, by_row = rows, heads, by_row, by_head
    if heads == 0:
        raise refuse(op, f"{name} is {layout!r}; it must have a head")
    return Tensor(batch, heads, rows, dim, Strides(by_batch, by_head, by_row))


def lse_dtype(dtype: DType) -> DType:
    """The dtype of log-sum-exps for operands of this dtype: f64 for f64, else f32."""
    return dtype if dtype.name == "f64" else DTYPES["f32"]


def vector(op: AnyOp, name: str, x: Operand, dtype: DType, extent: int, what: str) -> None:
    """A required vector without gaps.

    Raises:
        ShapeError: It is not that.
    """
    want = layout_of(dtype, (extent,))
    if x.layout != want:
        raise refuse(op, f"{name} is {x.layout!r}, expected {want!r} without gaps: {what}")
