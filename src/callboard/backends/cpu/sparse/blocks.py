"""Matrices of dense blocks: what is converted to them and from them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse.matrices import arrays_of, blocks_of, pointers
from callboard.backends.cpu.views import viewer
from callboard.kernel import sparse

__all__ = ["from_bsr", "from_dense", "to_bsr", "to_dense", "transpose"]

Array = np.ndarray[Any, Any]
Parts = Callable[[Sequence[int]], "list[Array]"]


def to_dense(op: "sparse.ToDense") -> Callable[..., None]:
    """``run(a, out)`` for a matrix of blocks."""
    arrays, a = arrays_of(op.a), op.a
    target = viewer(op.infer()["out"] if op.out is None else op.out.layout)

    def run(addresses: Sequence[int], out: int) -> None:
        blocks, rows, cols = blocks_of(a, arrays(addresses))
        dense = target(out)
        dense[...] = 0
        _, down, across = blocks.shape
        for block, row, col in zip(blocks, rows * down, cols * across, strict=True):
            dense[row : row + down, col : col + across] = block

    return run


def from_dense(op: "sparse.FromDense") -> Callable[[int], "list[Array]"]:
    """``entries(dense)``: the parts of a matrix of blocks."""
    assert op.block is not None
    view, index, (down, across) = viewer(op.dense.layout), _index(op.index), op.block

    def entries(dense: int) -> "list[Array]":
        array = view(dense)
        height, width = array.shape[0] // down, array.shape[1] // across
        blocks = array.reshape(height, down, width, across).swapaxes(1, 2)
        rows, cols = np.nonzero((blocks != 0).any((2, 3)))
        if op.format == "bsr":
            return [blocks[rows, cols], cols.astype(index), pointers(rows, height, index)]
        begins = pointers(rows, height, index)
        most = int(np.diff(begins).max(initial=0))
        values, indices = np.zeros((height, down, most, across), array.dtype), np.full((height, most), -1, index)
        at = np.arange(rows.size) - begins[rows]
        indices[rows, at] = cols
        values[rows, :, at] = blocks[rows, cols]
        return [values.reshape(array.shape[0], most * across), indices]

    return entries


def to_bsr(op: "sparse.Convert") -> Parts:
    """``entries(a)``: the parts of a ``BsrRef`` from those of a ``CsrRef``."""
    assert op.block is not None
    arrays, (rows, cols), (down, across) = arrays_of(op.a), op.a.shape, op.block
    width = cols // across

    def entries(addresses: Sequence[int]) -> "list[Array]":
        values, indices, indptr = arrays(addresses)
        lines = np.repeat(np.arange(rows), np.diff(indptr))
        places, at = np.unique(lines // down * width + indices // across, return_inverse=True)
        blocks = np.zeros((places.size, down, across), values.dtype)
        blocks[at, lines % down, indices % across] = values
        at_rows, at_cols = places // max(width, 1), places % max(width, 1)
        return [blocks, at_cols.astype(indices.dtype), pointers(at_rows, rows // down, indices.dtype)]

    return entries


def from_bsr(op: "sparse.Convert") -> Parts:
    """``entries(a)``: the parts of a ``CsrRef`` from those of a ``BsrRef``."""
    arrays, a = arrays_of(op.a), op.a

    def entries(addresses: Sequence[int]) -> "list[Array]":
        blocks, rows, cols = blocks_of(a, arrays(addresses))
        _, down, across = blocks.shape
        within, along = np.mgrid[:down, :across]
        lines = (rows[:, None, None] * down + within).ravel()
        columns = (cols[:, None, None] * across + along).ravel()
        order = np.argsort(lines, kind="stable")
        return [blocks.ravel()[order], columns[order].astype(cols.dtype), pointers(lines, a.shape[0], cols.dtype)]

    return entries


def transpose(op: "sparse.Transpose") -> Parts:
    """``entries(a)``: the parts of the transpose."""
    arrays, a = arrays_of(op.a), op.a

    def entries(addresses: Sequence[int]) -> "list[Array]":
        blocks, rows, cols = blocks_of(a, arrays(addresses))
        order = np.argsort(cols, kind="stable")
        found = pointers(cols, a.shape[1] // blocks.shape[2], cols.dtype)
        return [blocks[order].swapaxes(1, 2), rows[order].astype(cols.dtype), found]

    return entries


def _index(name: str) -> "np.dtype[Any]":
    return np.dtype(np.int32 if name == "i32" else np.int64)
