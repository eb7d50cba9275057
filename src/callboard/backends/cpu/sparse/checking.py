"""Checks of the contents of a sparse matrix: for ``Check``, and before any other op reads them.

NumPy and SciPy's routines below its constructors read and write memory of others where an index points out of a matrix.
The look before an op reads each index once, and counts only when it has seen that something is wrong. A product by
rows has its threads look at the indices of the rows that they multiply.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse.matrices import Arrays, arrays_of
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.core.op import Op
from callboard.kernel import sparse
from callboard.kernel.sparse import AnyRef
from callboard.kernel.sparse.checks import faults_text
from callboard.kernel.sparse.results import stored_block

__all__ = ["check", "sound", "sound_by_parts"]

Array = np.ndarray[Any, Any]
Counts = tuple[int, int, int, int, int]
"""The fault counts that :func:`callboard.kernel.sparse.checks.faults_text` takes."""


@plans(sparse.Check)
def check(op: "sparse.Check") -> Callable[[Sequence[int]], None]:
    """``run(a)``; raises ``ShapeError``."""
    arrays, a, duplicates = arrays_of(op.a), op.a, op.duplicates
    least = None if not op.ordered else 0 if duplicates == "keep" else 1

    def run(addresses: Sequence[int]) -> None:
        text = faults_text(a, _counts(a, arrays(addresses), least), duplicates)
        if text:
            raise ShapeError(f"sparse.check: a: {text}")

    return run


def sound(op: "Op[Any, Any]", name: str) -> Arrays:
    """The :func:`~callboard.backends.cpu.sparse.matrices.arrays_of` an operand, which hold a matrix.

    They raise ``ShapeError``, with the text of ``Check``, where they do not: the caller's mistake, not the library's.
    """
    a: AnyRef = getattr(op, name)
    arrays, any_order, extent = arrays_of(a), isinstance(op, sparse.Sort), _reach(a)

    def holds(parts: "list[Array]") -> bool:
        values, first, *second = parts
        if isinstance(a, sparse.BlockedEllRef):
            return _within(first + 1, extent + 1) if a.padded else _within(first, extent)
        if not isinstance(a, sparse.CooRef):
            return _rises(second[0], values.shape[0]) and _within(first, extent)
        return _within(second[0], a.shape[1]) and _within(first, extent) and (any_order or _never_falls(first))

    def looked_at(addresses: Sequence[int]) -> "list[Array]":
        parts = arrays(addresses)
        if not holds(parts):
            raise _refused(op, name, parts, any_order)
        return parts

    return looked_at


def sound_by_parts(op: "Op[Any, Any]", name: str) -> tuple[Arrays, Callable[["list[Array]", int, int], None]]:
    """As :func:`sound`, for a matrix with pointers: its arrays, and a look at some of its indices before their use.

    The arrays are those of a matrix but for the indices. ``look(parts, first, last)`` raises ``ShapeError`` if the
    matrix has a wrong one from entry ``first`` on, before entry ``last``.
    """
    a: AnyRef = getattr(op, name)
    arrays, extent = arrays_of(a), _reach(a)

    def pointed(addresses: Sequence[int]) -> "list[Array]":
        parts = arrays(addresses)
        if not _rises(parts[2], parts[0].shape[0]):
            raise _refused(op, name, parts)
        return parts

    def look(parts: "list[Array]", first: int, last: int) -> None:
        if not _within(parts[1][first:last], extent):
            raise _refused(op, name, parts)

    return pointed, look


def _refused(op: "Op[Any, Any]", name: str, parts: "list[Array]", any_order: bool = False) -> ShapeError:
    a: AnyRef = getattr(op, name)
    pointers, first, second, falls, order = _counts(a, parts, None)
    counts = (pointers, first, second, 0 if any_order else falls, order)
    return ShapeError(f"{type(op).__struct_config__.tag}: {name}: {faults_text(a, counts)}")


def _reach(a: AnyRef) -> int:
    """What the first array of indices must be below."""
    rows, cols = _extents(a)
    return rows if isinstance(a, sparse.CscRef | sparse.CooRef) else cols


def _extents(a: AnyRef) -> tuple[int, int]:
    """Rows and columns; block rows and block columns if there are blocks."""
    (rows, cols), (down, across) = a.shape, stored_block(a) or (1, 1)
    return rows // down, cols // across


def _within(indices: Array, extent: int) -> bool:
    """True if all indices are in ``[0, extent)``; a negative one reads as a large unsigned number."""
    return not indices.size or int(indices.view(f"u{indices.itemsize}").max()) < extent


def _never_falls(numbers: Array) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


def _rises(indptr: Array, entries: int) -> bool:
    return bool(indptr[0] == 0 and indptr[-1] == entries) and _never_falls(indptr)


def _counts(a: AnyRef, parts: "list[Array]", least: int | None) -> Counts:
    (rows, cols), (values, first, *second) = _extents(a), parts
    if isinstance(a, sparse.BlockedEllRef):
        return _of_padded(first, cols, -1 if a.padded else 0, least)
    if isinstance(a, sparse.CooRef):
        return _of_coordinates(first, second[0], (rows, cols), least)
    return _of_pointers(values.shape[0], first, second[0], rows if isinstance(a, sparse.CscRef) else cols, least)


def _of_coordinates(rows: Array, cols: Array, shape: tuple[int, int], least: int | None) -> Counts:
    falls, same = int((rows[1:] < rows[:-1]).sum()), rows[1:] == rows[:-1]
    unordered = 0 if least is None else int((same & (np.diff(cols) < least)).sum())
    return 0, _outside(cols, 0, shape[1]), _outside(rows, 0, shape[0]), falls, unordered


def _of_pointers(entries: int, indices: Array, indptr: Array, extent: int, least: int | None) -> Counts:
    wrong = int((indptr[1:] < indptr[:-1]).sum()) + int(indptr[0] != 0)  # a difference could overflow
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
