"""Conversions of matrices that store entries, their order, and the look at what the arrays hold."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse import blocks
from callboard.backends.cpu.sparse.matrices import arrays_of, coordinates, pointers, work_dtype
from callboard.backends.cpu.views import viewer
from callboard.core.errors import ShapeError
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import faults_text, twice

__all__ = ["check", "convert", "from_dense", "sort", "to_dense"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]
Parts = Callable[[Sequence[int]], "list[Array]"]


def to_dense(op: "sparse.ToDense") -> Plan:
    """``run(a, out)``."""
    if isinstance(op.a, sparse.BsrRef | sparse.BlockedEllRef):
        return blocks.to_dense(op)
    arrays, a = arrays_of(op.a), op.a
    target = viewer(op.infer()["out"] if op.out is None else op.out.layout)

    def run(addresses: Sequence[int], out: int) -> None:
        values, rows, cols = coordinates(a, arrays(addresses))
        dense = target(out)
        dense[...] = 0
        dense[rows, cols] = values

    return run


def from_dense(op: "sparse.FromDense") -> Callable[[int], "list[Array]"]:
    """``entries(dense)``: the parts of the matrix."""
    if op.block is not None:
        return blocks.from_dense(op)
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

    return entries


def convert(op: "sparse.Convert") -> Parts:
    """``entries(a)``: the parts of the matrix in the other format."""
    if isinstance(op.a, sparse.BsrRef):
        return blocks.from_bsr(op)
    if op.format == "bsr":
        return blocks.to_bsr(op)
    arrays, a, form = arrays_of(op.a), op.a, op.format
    rows_of, cols_of = a.shape

    def entries(addresses: Sequence[int]) -> "list[Array]":
        values, rows, cols = coordinates(a, arrays(addresses))
        index = rows.dtype
        major = cols if form == "csc" else rows
        order = np.argsort(major, kind="stable")  # entries of a row or column keep their order
        values, rows, cols = values[order], rows[order], cols[order]
        if form == "coo":
            return [values, rows, cols]
        if form == "csr":
            return [values, cols, pointers(rows, rows_of, index)]
        return [values, rows, pointers(cols, cols_of, index)]

    return entries


def sort(op: "sparse.Sort") -> Parts:
    """``entries(a)``: the parts of the matrix in order; raises ``ShapeError`` for duplicates that are refused."""
    arrays, a, duplicates = arrays_of(op.a), op.a, op.duplicates
    by_cols, work = isinstance(a, sparse.CscRef), work_dtype(a.values.dtype)

    def entries(addresses: Sequence[int]) -> "list[Array]":
        values, rows, cols = coordinates(a, arrays(addresses))
        major, minor = (cols, rows) if by_cols else (rows, cols)
        order = np.lexsort((minor, major))
        values, major, minor = values[order], major[order], minor[order]
        begins = np.ones(values.size, bool)
        begins[1:] = (np.diff(major) != 0) | (np.diff(minor) != 0)
        if duplicates == "refuse" and not begins.all():
            raise twice("sparse.sort", int((~begins).sum()))
        if duplicates == "sum" and values.size:
            sums = np.add.reduceat(values.astype(work, copy=False), np.flatnonzero(begins))
            values, major, minor = sums.astype(values.dtype), major[begins], minor[begins]
        if isinstance(a, sparse.CooRef):
            return [values, major, minor]
        return [values, minor, pointers(major, a.shape[1 if by_cols else 0], minor.dtype)]

    return entries


def check(op: "sparse.Check") -> Plan:
    """``run(a)``; raises ``ShapeError``."""
    arrays, a, op_ordered = arrays_of(op.a), op.a, op.ordered
    least = 0 if op.duplicates == "keep" else 1
    rows, cols = a.shape
    if isinstance(a, sparse.BsrRef | sparse.BlockedEllRef):
        down, across = a.block if isinstance(a, sparse.BsrRef) else (a.block, a.block)
        rows, cols = rows // down, cols // across

    def run(addresses: Sequence[int]) -> None:
        if isinstance(a, sparse.BlockedEllRef):
            (indices,) = arrays(addresses)[1:]
            ranked = np.where(indices < 0, cols, indices)  # padding comes last
            falls = (np.diff(ranked) < least) & (ranked[:, 1:] < cols) | (ranked[:, :-1] == cols) & (
                ranked[:, 1:] < cols
            )
            counts = [
                0,
                int(((indices < (-1 if a.padded else 0)) | (indices >= cols)).sum()),
                0,
                0,
                falls.sum() if op_ordered else 0,
            ]
        else:
            values, first, second = arrays(addresses)
            counts = (
                _of_coordinates(first, second)
                if isinstance(a, sparse.CooRef)
                else _of_pointers(values.shape[0], first, second, rows if isinstance(a, sparse.CscRef) else cols)
            )
        text = faults_text(a, [int(n) for n in counts], op.duplicates)
        if text:
            raise ShapeError(f"sparse.check: a: {text}")

    def _of_coordinates(first: Array, second: Array) -> "list[Any]":
        step = np.diff(first)
        unordered = ((step == 0) & (np.diff(second) < least)).sum() if op_ordered else 0
        return [0, _outside(second, cols), _outside(first, rows), (step < 0).sum(), unordered]

    def _of_pointers(entries: int, indices: Array, indptr: Array, extent: int) -> "list[Any]":
        wrong = (np.diff(indptr) < 0).sum() + int(indptr[0] != 0)
        wrong += int(indptr[-1] != entries and (indptr.size == 1 or indptr[-1] >= indptr[-2]))
        unordered = 0
        if op_ordered and not wrong:
            begins = np.zeros(entries + 1, bool)
            begins[indptr] = True
            unordered = ((np.diff(indices) < least) & ~begins[1:entries]).sum()
        return [wrong, _outside(indices, extent), 0, 0, unordered]

    return run


def _outside(indices: Array, extent: int) -> int:
    return int(((indices < 0) | (indices >= extent)).sum())
