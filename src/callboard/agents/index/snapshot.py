"""The content of an index at one time. Writers append and make another one, so a search never sees half a write."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.index.coarse import CoarseRows
from callboard.agents.index.coding import decode
from callboard.agents.index.protocol import Metadata, Value, Where

__all__ = ["Postings", "Snapshot"]

Postings = dict[tuple[str, Value], list[int]]
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
        metadata, postings: The metadata of each row, and the rows that have an item of it.
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
    metadata: list[Metadata | None]
    postings: Postings
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
            TypeError: ``where`` is neither a mapping nor callable.
        """
        if where is None:
            return None if self.living == self.count else self.alive
        if isinstance(where, Mapping):
            return self._equal(where)
        if not callable(where):
            raise TypeError(f"where is {where!r}; pass a dict of metadata that must be equal, or a function of it")
        return self._judged(where)

    def _equal(self, where: Metadata) -> NDArray[np.bool_]:
        mask = self.alive
        for item in where.items():
            try:
                numbers = np.array(self.postings.get(item, ()), np.intp)
            except TypeError:
                raise TypeError(f"where[{item[0]!r}] is {item[1]!r}; compare with str, number, bool or None") from None
            found = np.zeros(self.count, np.bool_)
            found[numbers[numbers < self.count]] = True  # a writer may have appended
            mask = mask & found
        return mask

    def _judged(self, where: Callable[[Metadata], bool]) -> NDArray[np.bool_]:
        mask = self.alive.copy()
        for number in np.flatnonzero(mask):
            mask[number] = bool(where(self.metadata[number] or {}))
        return mask

    def pieces(self, allowed: NDArray[np.bool_] | None, living: int) -> Iterator["NDArray[np.intp] | slice"]:
        """The rows in parts; those that are not allowed are left out if they are most."""
        if allowed is None or 8 * living > self.count:
            for start in range(0, self.count, PIECE):
                yield slice(start, min(start + PIECE, self.count))
        else:
            numbers = np.flatnonzero(allowed)
            for start in range(0, len(numbers), PIECE):
                yield numbers[start : start + PIECE]
