"""``Entries``: a sparse matrix on the host, sorted, without duplicates. Pure."""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.realtime.base.checks import numbers_of, within

__all__ = ["Change", "Entries", "checked"]

Change = Literal["add", "set"]
Triple = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]


class Entries:
    """Entries of a matrix by row and column.

    Args:
        shape: Rows and columns.
        dtype: Of the values.

    Attributes:
        keys: ``row * columns + column`` of each, ascending.
        values: Of each.
        version: Counts changes of the pattern.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.keys = np.zeros(0, "i8")
        self.values: NDArray[Any] = np.zeros(0, dtype)
        self.version = 0
        self._places = _places(self.keys, self.keys, shape)  # of the last call; the next is often for the same

    def replace(self, rows: Any, cols: Any, values: Any) -> None:
        """Have these entries and no others; values of one place are added."""
        keys, found = self._merged(*checked(rows, cols, values, self.shape, self.values.dtype), "add")
        self.keys, self.values = keys, found
        self.version += 1

    def change(self, rows: Any, cols: Any, values: Any, how: Change) -> None:
        """Add to entries, or set them; new places become entries.

        With ``"set"`` the last value for a place counts.
        """
        if how not in get_args(Change):
            raise ValueError(f"how is {how!r}; use 'add' or 'set'")
        keys, found = self._merged(*checked(rows, cols, values, self.shape, self.values.dtype), how)
        if keys is self.keys or np.array_equal(keys, self.keys):  # all of them: nothing to look for
            self.values = self.values + found if how == "add" else found
            return
        at = np.searchsorted(self.keys, keys)
        inside = np.zeros(len(keys), bool)
        inside[at < len(self.keys)] = self.keys[at[at < len(self.keys)]] == keys[at < len(self.keys)]
        if how == "add":
            self.values[at[inside]] += found[inside]
        else:
            self.values[at[inside]] = found[inside]
        if not inside.all():
            self.keys = np.insert(self.keys, at[~inside], keys[~inside])
            self.values = np.insert(self.values, at[~inside], found[~inside])
            self.version += 1

    def remove(self, rows: Any, cols: Any) -> int:
        """Have no entries at these places; their number."""
        keys, _ = self._merged(*checked(rows, cols, np.zeros(np.shape(rows)), self.shape, self.values.dtype), "set")
        gone = np.isin(self.keys, keys)
        if gone.any():
            self.keys, self.values = self.keys[~gone], self.values[~gone]
            self.version += 1
        return int(gone.sum())

    def _merged(
        self, rows: NDArray[np.int64], cols: NDArray[np.int64], values: NDArray[Any], how: Change
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Ascending keys and their values, those of one place as one."""
        if not (np.array_equal(rows, self._places.rows) and np.array_equal(cols, self._places.cols)):
            self._places = _places(rows, cols, self.shape)
        _, _, keys, order, first = self._places
        values = values[order]
        if first is None:
            return keys, values
        if how == "add":
            return keys, np.add.reduceat(values, first)
        return keys, values[np.append(first[1:], len(values)) - 1]

    def csr(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]:
        """Row pointers, columns, values."""
        rows, cols = np.divmod(self.keys, max(1, self.shape[1]))
        indptr = np.searchsorted(rows, np.arange(self.shape[0] + 1))
        return indptr.astype("i4"), cols.astype("i4"), self.values


class _Places(NamedTuple):
    """Places as they were passed, their keys, ascending and each once, and where the values of those are.

    Attributes:
        order: Of the values by their keys.
        first: The first of each key in that order; None if there is one of each.
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    keys: NDArray[np.int64]
    order: NDArray[Any]
    first: NDArray[np.intp] | None


def _places(rows: NDArray[np.int64], cols: NDArray[np.int64], shape: tuple[int, int]) -> _Places:
    keys, order = _ascending(rows, cols, shape)
    again = keys[1:] == keys[:-1]
    if not again.any():
        return _Places(rows, cols, keys, order, None)
    first = np.flatnonzero(np.append(True, ~again))
    return _Places(rows, cols, keys[first], order, first)


def _ascending(
    rows: NDArray[np.int64], cols: NDArray[np.int64], shape: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Keys in ascending order, and where each was; equal ones stay in the order in which they were."""
    n = len(rows)
    if shape[0] > 4 * n + 1024 or n >= 1 << 31:
        keys = rows * shape[1] + cols
        order = np.argsort(keys, kind="stable")
        return keys[order], order
    entries = scipy.sparse.coo_array((np.arange(n, dtype="i4"), (rows.astype("i4"), cols.astype("i4"))), shape)
    entries.has_canonical_format = True  # or SciPy would add the places
    by_row = entries.tocsr()  # counts the entries of rows, and sorts each row
    by_row.sort_indices()
    keys = np.repeat(np.arange(shape[0]) * shape[1], np.diff(by_row.indptr)) + by_row.indices
    order = by_row.data
    same = keys[1:] == keys[:-1]
    some = np.flatnonzero(np.append(same, False) | np.append(False, same))
    order[some] = order[some][np.lexsort((order[some], keys[some]))]
    return keys, order


def checked(rows: Any, cols: Any, values: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> Triple:
    """Places and values as arrays of one length.

    Raises:
        ShapeError: They differ in length, or a place is outside of the matrix.
        TypeError: Indices that are no integers; values of another kind than the dtype.
        ValueError: The dtype has not a value: it would become infinite, or is an integer that would be rounded.
    """
    given = np.asarray(rows), np.asarray(cols), numbers_of("values", values, dtype)
    for name, one in zip(("rows", "cols", "values"), given, strict=True):
        if one.ndim != 1 or one.shape != given[0].shape:
            raise ShapeError(f"{name} has shape {list(one.shape)}; pass {given[0].size} numbers, as many as rows")
    for name, one, extent in zip(("rows", "cols"), given, shape, strict=False):
        if one.size and one.dtype.kind not in "iu":
            raise TypeError(f"{name} has dtype {one.dtype}; pass integers")
        if one.size and not (one.min() >= 0 and one.max() < extent):
            at = int(np.flatnonzero((one < 0) | (one >= extent))[0])
            raise ShapeError(f"{name}[{at}] is {one[at]}; the matrix has {extent} {name}")
    stored = within("values", given[2] + np.uint8(0) if given[2].dtype.kind == "b" else given[2], dtype, rounds=True)
    return given[0].astype("i8"), given[1].astype("i8"), np.array(stored)
