"""Matrices of dense blocks: conversions to and from them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse.checking import sound
from callboard.backends.cpu.sparse.found import Found
from callboard.backends.cpu.sparse.matrices import blocks_of, pointers, scatter
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel import sparse

__all__ = ["from_dense", "laid", "packed", "to_dense", "transpose", "unpacked"]

Array = np.ndarray[Any, Any]
Parts = Callable[[Sequence[int]], "list[Array]"]


def to_dense(op: "sparse.ToDense") -> Callable[..., None]:
    """``run(a, out)`` for a matrix of blocks."""
    arrays, a = sound(op, "a"), op.a
    target = viewer(op.infer()["out"] if op.out is None else op.out.layout)

    def run(addresses: Sequence[int], out: int) -> None:
        blocks, rows, cols = blocks_of(a, arrays(addresses))
        dense = target(out)
        dense[...] = 0
        _, down, across = blocks.shape
        within, along = np.mgrid[:down, :across]
        places = (rows[:, None, None] * down + within, cols[:, None, None] * across + along)
        scatter(dense, places, blocks)

    return run


def from_dense(op: "sparse.FromDense") -> Callable[[int], "list[Array]"]:
    """``entries(dense)``: the parts of a matrix of blocks."""
    assert op.block is not None
    view, index, (down, across) = viewer(op.dense.layout), _index(str(op.index)), op.block

    def entries(dense: int) -> "list[Array]":
        array = view(dense)
        height, width = array.shape[0] // down, array.shape[1] // across
        blocks = array.reshape(height, down, width, across).swapaxes(1, 2)
        rows, cols = np.nonzero((blocks != 0).any((2, 3)))
        return laid(op.format, blocks[rows, cols], rows, cols.astype(index), height)

    return entries


def laid(form: str, blocks: Array, rows: Array, cols: Array, height: int) -> "list[Array]":
    """Return the parts of a matrix of blocks, which are ordered by block row."""
    begins = pointers(rows, height, cols.dtype)
    if form == "bsr":
        return [blocks, cols, begins]
    most = int(np.diff(begins).max(initial=0))
    _, down, across = blocks.shape
    values, indices = np.zeros((height, down, most, across), blocks.dtype), np.full((height, most), -1, cols.dtype)
    at = np.arange(rows.size) - begins[rows]
    indices[rows, at] = cols
    values[rows, :, at] = blocks
    return [values.reshape(height * down, most * across), indices]


def packed(values: Array, rows: Array, cols: Array, width: int, block: tuple[int, int]) -> "tuple[Array, Array, Array]":
    """The blocks that have entries, in order, and the block row and block column of each.

    Args:
        values, rows, cols: The entries, in any order.
        width: Block columns of the matrix.
        block: Extent of a block.
    """
    down, across = block
    places, at = np.unique(rows.astype(np.int64) // down * width + cols // across, return_inverse=True)
    blocks = np.zeros((places.size, down, across), values.dtype)
    scatter(blocks, (at, rows % down, cols % across), values)
    return blocks, places // max(width, 1), (places % max(width, 1)).astype(cols.dtype)


def unpacked(blocks: Array, rows: Array, cols: Array) -> "tuple[Array, Array, Array]":
    """Values, rows and columns of all entries of blocks, row by row."""
    _, down, across = blocks.shape
    within, along = np.mgrid[:down, :across]
    lines = (rows[:, None, None] * down + within).ravel()
    columns = (cols[:, None, None] * across + along).ravel()
    order = np.argsort(lines, kind="stable")
    return blocks.ravel()[order], lines[order].astype(cols.dtype), columns[order].astype(cols.dtype)


@plans(sparse.Transpose)
def transpose(op: "sparse.Transpose") -> Found:
    """``entries(a)``: the parts of the transpose."""
    arrays, a = sound(op, "a"), op.a

    def entries(addresses: Sequence[int]) -> "list[Array]":
        blocks, rows, cols = blocks_of(a, arrays(addresses))
        order = np.argsort(cols, kind="stable")
        found = pointers(cols, a.shape[1] // blocks.shape[2], cols.dtype)
        return [blocks[order].swapaxes(1, 2), rows[order].astype(cols.dtype), found]

    return Found(op, entries)


def _index(name: str) -> "np.dtype[Any]":
    return np.dtype(np.int32 if name == "i32" else np.int64)
