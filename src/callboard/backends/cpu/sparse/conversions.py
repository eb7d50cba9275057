"""Conversions between dense and sparse and between formats."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse import blocks
from callboard.backends.cpu.sparse.checking import sound
from callboard.backends.cpu.sparse.found import Found
from callboard.backends.cpu.sparse.matrices import blocks_of, coordinates, pointers, scatter
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel import sparse
from callboard.kernel.sparse.results import stored_block

__all__ = ["convert", "from_dense", "to_dense"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]
Parts = Callable[[Sequence[int]], "list[Array]"]


@plans(sparse.ToDense)
def to_dense(op: "sparse.ToDense") -> Plan:
    """``run(a, out)``."""
    if isinstance(op.a, sparse.BsrRef | sparse.BlockedEllRef):
        return blocks.to_dense(op)
    arrays, a = sound(op, "a"), op.a
    target = viewer(op.infer()["out"] if op.out is None else op.out.layout)

    def run(addresses: Sequence[int], out: int) -> None:
        values, rows, cols = coordinates(a, arrays(addresses))
        dense = target(out)
        dense[...] = 0
        scatter(dense, (rows, cols), values)

    return run


@plans(sparse.FromDense, sizes=True)
def from_dense(op: "sparse.FromDense") -> Found:
    """``entries(dense)``: the parts of the matrix."""
    if op.block is not None:
        return Found(op, blocks.from_dense(op))
    view, form = viewer(op.dense.layout), op.format
    index = np.dtype(np.int32 if op.index == "i32" else np.int64)

    def entries(dense: int) -> "list[Array]":
        array = view(dense)
        if form == "csc":
            cols, rows = np.nonzero(array.T)
        else:
            rows, cols = np.nonzero(array)
        values = array[rows, cols]
        if form == "coo":
            return [values, rows.astype(index), cols.astype(index)]
        major, minor = (rows, cols) if form == "csr" else (cols, rows)
        return [values, minor.astype(index), pointers(major, array.shape[form == "csc"], index)]

    return Found(op, entries)


@plans(sparse.Convert, sizes=True)
def convert(op: "sparse.Convert") -> Found:
    """``entries(a)``: the parts of the matrix in the other format."""
    arrays, a, form = sound(op, "a"), op.a, op.format
    rows_of, cols_of = a.shape
    block = op.block or stored_block(a) or (1, 1)
    height, width = rows_of // block[0], cols_of // block[1]

    def entries(addresses: Sequence[int]) -> "list[Array]":
        if isinstance(a, sparse.BsrRef | sparse.BlockedEllRef):
            found = blocks_of(a, arrays(addresses))
            if form in ("bsr", "blocked_ell"):
                return blocks.laid(form, *found, height)
            values, rows, cols = blocks.unpacked(*found)
        else:
            values, rows, cols = coordinates(a, arrays(addresses))
            if form in ("bsr", "blocked_ell"):
                return blocks.laid(form, *blocks.packed(values, rows, cols, width, block), height)
        index = rows.dtype
        major = cols if form == "csc" else rows
        order = np.argsort(major, kind="stable")  # entries of a row or column keep their order
        values, rows, cols = values[order], rows[order], cols[order]
        if form == "coo":
            return [values, rows, cols]
        if form == "csr":
            return [values, cols, pointers(rows, rows_of, index)]
        return [values, rows, pointers(cols, cols_of, index)]

    return Found(op, entries)
