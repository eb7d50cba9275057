"""The look at what the arrays of a sparse matrix hold."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse.matrices import arrays_of
from callboard.core.errors import ShapeError
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import faults_text

__all__ = ["check"]

Array = np.ndarray[Any, Any]
Counts = tuple[int, int, int, int, int]
"""What :func:`callboard.kernel.sparse.checks.faults_text` takes."""


def check(op: "sparse.Check") -> Callable[[Sequence[int]], None]:
    """``run(a)``; raises ``ShapeError``."""
    arrays, a, duplicates = arrays_of(op.a), op.a, op.duplicates
    least = None if not op.ordered else 0 if duplicates == "keep" else 1
    rows, cols = a.shape
    if isinstance(a, sparse.BsrRef | sparse.BlockedEllRef):
        down, across = a.block if isinstance(a, sparse.BsrRef) else (a.block, a.block)
        rows, cols = rows // down, cols // across

    def run(addresses: Sequence[int]) -> None:
        values, first, *second = arrays(addresses)
        if isinstance(a, sparse.BlockedEllRef):
            counts = _of_padded(first, cols, -1 if a.padded else 0, least)
        elif isinstance(a, sparse.CooRef):
            counts = _of_coordinates(first, second[0], (rows, cols), least)
        else:
            extent = rows if isinstance(a, sparse.CscRef) else cols
            counts = _of_pointers(values.shape[0], first, second[0], extent, least)
        text = faults_text(a, counts, duplicates)
        if text:
            raise ShapeError(f"sparse.check: a: {text}")

    return run


def _of_coordinates(rows: Array, cols: Array, shape: tuple[int, int], least: int | None) -> Counts:
    step = np.diff(rows)
    unordered = 0 if least is None else int(((step == 0) & (np.diff(cols) < least)).sum())
    return 0, _outside(cols, 0, shape[1]), _outside(rows, 0, shape[0]), int((step < 0).sum()), unordered


def _of_pointers(entries: int, indices: Array, indptr: Array, extent: int, least: int | None) -> Counts:
    wrong = int((np.diff(indptr) < 0).sum()) + int(indptr[0] != 0)
    wrong += int(indptr[-1] != entries and (indptr.size == 1 or indptr[-1] >= indptr[-2]))
    unordered = 0
    if least is not None and not wrong:
        begins = np.zeros(entries + 1, bool)
        begins[indptr] = True
        unordered = int(((np.diff(indices) < least) & ~begins[1:entries]).sum())
    return wrong, _outside(indices, 0, extent), 0, 0, unordered


def _of_padded(indices: Array, extent: int, lowest: int, least: int | None) -> Counts:
    last = np.iinfo(indices.dtype).max
    ranked = np.where(indices < 0, last, indices)  # padding comes last
    unordered = 0 if least is None else int(((np.diff(ranked) < least) & (ranked[:, 1:] < last)).sum())
    return 0, _outside(indices, lowest, extent), 0, 0, unordered


def _outside(indices: Array, lowest: int, extent: int) -> int:
    return int(((indices < lowest) | (indices >= extent)).sum())
