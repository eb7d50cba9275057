"""The structural rank of a sparse matrix: an upper bound of its rank for any values of its elements.

A maximum set of elements in different rows and different columns is found by augmenting paths from all unmatched rows
at once, level by level (Azad, Buluc, Pothen, "Computing Maximum Cardinality Matchings in Parallel on Bipartite Graphs
via Tree-Grafting", IEEE TPDS 28(1), 2017, the search without the grafting). Each level is a few operations of NumPy;
the paths of different rows are disjoint, so all of them are followed at once, too.

``scipy.sparse.csgraph`` is not used: ``maximum_bipartite_matching`` of SciPy 1.16, and with it ``structural_rank``,
revisits vertices from which it has found no path, and had not ended after minutes for a Laplacian of 3,600 unknowns
with its rows permuted.
"""

from typing import Any

import numpy as np

from callboard.kernel.solver.failures import structurally_singular

__all__ = ["Array", "transversal"]

Array = np.ndarray[Any, Any]


def transversal(tag: str, offsets: Array, indices: Array, values: Array, start: Array | None = None) -> Array:
    """Elements that are not 0, one in each row and each column of a square CSR matrix (or one in CSC).

    Args:
        tag: Tag of the op, for the error.
        offsets: ``[n + 1]``, integers, valid.
        indices: ``[elements]``, integers, valid; no two alike in one row.
        values: ``[elements]``.
        start: Columns as of a former matrix, to begin with those that still hold; None: with the diagonal.

    Returns:
        ``[n]``, the column of the element of each row.

    Raises:
        NumericalError: There is no such set: the matrix is singular.
    """
    n, there = len(offsets) - 1, values != 0
    rows, places = np.repeat(np.arange(n), np.diff(offsets))[there], indices[there]
    lengths = np.bincount(rows, minlength=n)
    starts = np.cumsum(lengths) - lengths
    holds = places == (np.arange(n) if start is None else start)[rows]
    column_of, row_of = np.full(n, -1), np.full(n, -1)
    column_of[rows[holds]], row_of[places[holds]] = places[holds], rows[holds]
    while _augmented(starts, lengths, places, column_of, row_of):
        pass
    missing = int(np.count_nonzero(column_of < 0))
    if missing:
        raise structurally_singular(tag, missing, n)
    return column_of


def _augmented(starts: Array, lengths: Array, places: Array, column_of: Array, row_of: Array) -> bool:
    """Find paths from rows without an element to columns without one, and exchange elements along them."""
    n = len(starts)
    root, came_from, end = np.full(n, -1), np.full(n, -1), np.full(n, -1)  # of rows; of columns; of roots
    level = np.flatnonzero(column_of < 0)
    root[level] = level
    while level.size:
        many = lengths[level]
        rows = np.repeat(level, many)
        columns = places[np.arange(len(rows)) + np.repeat(starts[level] - (np.cumsum(many) - many), many)]
        new = came_from[columns] < 0
        rows, columns = rows[new], columns[new]
        came_from[columns] = rows
        reached = came_from[columns] == rows  # of several rows, one has got the column
        columns, roots = columns[reached], root[rows[reached]]
        owners = row_of[columns]
        free = owners < 0
        end[roots[free]] = columns[free]
        on = ~free & (end[roots] < 0)
        level = owners[on]
        root[level] = roots[on]
    columns = end[end >= 0]
    found = columns.size > 0
    while columns.size:
        rows = came_from[columns]
        before = column_of[rows]
        column_of[rows], row_of[columns] = columns, rows
        columns = before[before >= 0]
    return found
