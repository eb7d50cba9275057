"""Sorting of entries, and treatment of duplicates."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse.checking import sound
from callboard.backends.cpu.sparse.found import Found
from callboard.backends.cpu.sparse.matrices import coordinates, pointers, work_dtype
from callboard.core.library import plans
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import twice

__all__ = ["sort"]

Array = np.ndarray[Any, Any]


@plans(sparse.Sort, sizes=True)
def sort(op: "sparse.Sort") -> Found:
    """``entries(a)``: the parts of the matrix in order; raises ``ShapeError`` for duplicates that are refused."""
    arrays, a, duplicates = sound(op, "a"), op.a, op.duplicates
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

    return Found(op, entries)
