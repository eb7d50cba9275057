"""The content of an index at one time. Writers append and make another one, so a search never sees half a write."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.index.coarse import CoarseRows
from callboard.agents.index.coding import decode
from callboard.agents.index.filters import Columns
from callboard.agents.index.protocol import Where

__all__ = ["Snapshot"]

PIECE = 1 << 16
"""Rows that are scored at once."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Rows ``[:count]`` of arrays that may be longer; nothing below ``count`` is ever written again.

    Attributes:
        rows, scales: Stored rows, see :mod:`callboard.agents.index.coding`.
        squares: Square of the norm of each row.
        ids: Id of each row: i64, or objects.
        alive: ``[count]``: rows that were not replaced or deleted.
        columns: The metadata of each row.
        living: Number of rows that are alive.
        largest: Largest norm of a row.
        numbering: Shared by snapshots in which a number means the same row, whose coarse rows it has.
    """

    count: int
    rows: NDArray[Any]
    scales: NDArray[np.float32] | None
    squares: NDArray[np.float32]
    ids: NDArray[Any]
    alive: NDArray[np.bool_]
    columns: Columns
    living: int
    largest: float
    numbering: CoarseRows

    def decoded(self, numbers: "NDArray[np.intp] | slice") -> NDArray[np.float32]:
        """Rows as f32, ``[*numbers.shape, dim]``."""
        rows = self.rows[numbers] if isinstance(numbers, slice) else self.rows.take(numbers, axis=0)
        return decode(rows, None if self.scales is None else self.scales[numbers])

    def allowed(self, where: Where | None) -> NDArray[np.bool_] | None:
        """Mask of the rows that are alive and pass a filter; None if all are.

        Raises:
            TypeError, ValueError: See :meth:`Columns.passing`.
        """
        if where is None:
            return None if self.living == self.count else self.alive
        return self.columns.passing(where, self.alive)

    def pieces(self, allowed: NDArray[np.bool_] | None, living: int) -> Iterator["NDArray[np.intp] | slice"]:
        """The rows in parts; those that are not allowed are left out if they are most."""
        if allowed is None or 8 * living > self.count:
            for start in range(0, self.count, PIECE):
                yield slice(start, min(start + PIECE, self.count))
        else:
            numbers = np.flatnonzero(allowed)
            for start in range(0, len(numbers), PIECE):
                yield numbers[start : start + PIECE]
