"""What a spatial index answers."""

from typing import Any, NamedTuple

__all__ = ["Nearest", "Neighbors", "SpatialStats"]


class Neighbors(NamedTuple):
    """The results of a batch of searches, row by row: ``ids[offsets[i]:offsets[i + 1]]`` are those of search ``i``.

    Attributes:
        offsets: i64 ``[searches + 1]``.
        ids: i64, of points; in each row in an order that is the same on all devices.
        distances: f64, from the place to the point; None for boxes.
    """

    offsets: Any
    ids: Any
    distances: Any = None


class Nearest(NamedTuple):
    """The nearest points of each place, by distance.

    Attributes:
        ids: i64 ``[places, k]``; -1 where there are fewer points.
        distances: f64 ``[places, k]``; infinity there.
    """

    ids: Any
    distances: Any


class SpatialStats(NamedTuple):
    """Figures of an index.

    Attributes:
        points: In it.
        occupied_cells: Cells that have points.
        hashed: Whether cells are hashed, because they would be far more than points.
        uploads: Times that all points were put on the device.
        updates: Times that only points that moved were.
    """

    points: int
    occupied_cells: int
    hashed: bool
    uploads: int
    updates: int
