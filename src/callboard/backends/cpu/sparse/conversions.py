"""Conversions, and the look at what the arrays hold."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse.matrices import arrays_of
from callboard.backends.cpu.views import viewer
from callboard.core.errors import ShapeError
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import faults_text

__all__ = ["check", "convert", "from_dense", "to_dense"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]
Parts = Callable[[Sequence[int]], "list[Array]"]


def to_dense(op: "sparse.ToDense") -> Plan:
    """``run(a, out)``."""
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


def check(op: "sparse.Check") -> Plan:
    """``run(a)``; raises ``ShapeError``."""
    arrays, a, ordered = arrays_of(op.a), op.a, op.ordered
    rows, cols = a.shape

    def run(addresses: Sequence[int]) -> None:
        values, first, second = arrays(addresses)
        if isinstance(a, sparse.CooRef):
            step = np.diff(first)
            unordered = ((step == 0) & (np.diff(second) <= 0)).sum() if ordered else 0
            counts = [0, _outside(second, cols), _outside(first, rows), (step < 0).sum(), unordered]
        else:
            wrong = (np.diff(second) < 0).sum() + int(second[0] != 0)
            wrong += int(second[-1] != values.size and (second.size == 1 or second[-1] >= second[-2]))
            unordered = 0
            if ordered and not wrong:
                begins = np.zeros(values.size + 1, bool)
                begins[second] = True
                unordered = ((np.diff(first) <= 0) & ~begins[1 : values.size]).sum()
            counts = [wrong, _outside(first, rows if isinstance(a, sparse.CscRef) else cols), 0, 0, unordered]
        text = faults_text(a, [int(n) for n in counts])
        if text:
            raise ShapeError(f"sparse.check: a: {text}")

    return run


def coordinates(a: sparse.SparseRef, arrays: "list[Array]") -> "tuple[Array, Array, Array]":
    """Values, rows and columns of each entry."""
    values, first, second = arrays
    if isinstance(a, sparse.CooRef):
        return values, first, second
    major = np.repeat(np.arange(second.size - 1, dtype=first.dtype), np.diff(second))
    return (values, major, first) if isinstance(a, sparse.CsrRef) else (values, first, major)


def pointers(major: Array, extent: int, index: "np.dtype[Any]") -> Array:
    """Where each row (or column) begins among sorted ones."""
    found = np.zeros(extent + 1, index)
    np.cumsum(np.bincount(major, minlength=extent), out=found[1:])
    return found


def _outside(indices: Array, extent: int) -> int:
    return int(((indices < 0) | (indices >= extent)).sum())
