"""The cells of a spatial index: chosen on the host from the points. Pure."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callboard.realtime.base.cpu.slices import sliced

__all__ = ["FARTHEST", "Grid", "grid_of"]

FARTHEST = 1 << 30
"""Cells of hashed grids beyond this, from 0, are one."""
SAMPLE = 4096
IN_A_CELL = 2
"""Points, where the caller does not say how large cells are."""
WIDE = 128
"""Points whose coordinates are compared with those of as many others at once; one by one takes ten times as long."""


class Grid(NamedTuple):
    """Cells.

    Attributes:
        world: f64 ``[13]``: origin, inverse of the edges, numbers of cells, periods (0: none), and the least cell: 0,
            or ``-FARTHEST`` if cells are hashed.
        buckets: Cells, or in a hashed grid a power of 2.
        spacing: The edge of a cell that has about ``IN_A_CELL`` points, where most points are.
    """

    world: NDArray[np.float64]
    buckets: int
    spacing: float


def grid_of(points: NDArray[np.float64], edge: float | None, box: NDArray[np.float64]) -> Grid:
    """The cells for points ``[n, 3]``: a box of them if it has not many more cells than points, otherwise hashed.

    Args:
        edge: Of a cell; None: such that there are few points in most cells.
        box: Period of each axis, or 0.
    """
    n = len(points)
    first, last = bounds(points)
    low, high = np.where(box > 0, 0.0, first), np.where(box > 0, box, last)
    spacing = _edge(points, box, max(0.0, last.max(), -first.min()))
    edge = spacing if edge is None else edge
    most = 4.0 * n + 4096
    with np.errstate(over="ignore"):
        counts = np.floor((high - low) / edge) + 1
    periodic = box > 0
    counts[periodic] = np.maximum(1, np.floor(box[periodic] / edge))
    if not periodic.any() and np.prod(counts) > most:
        size = 1 << max(4, (2 * n).bit_length())
        inverse = np.where(high > low, 1 / edge, 0.0)
        return Grid(
            np.array([0.0] * 3 + [*inverse] + [FARTHEST + 1.0] * 3 + [0.0] * 3 + [-float(FARTHEST)]), size, spacing
        )
    while np.prod(counts) > most:  # a periodic box that has few points for its size
        counts, edge = np.maximum(1, np.floor(counts / 2)), edge * 2
    inverse = np.where(periodic, counts / np.where(periodic, box, 1.0), np.where(high > low, 1 / edge, 0.0))
    return Grid(np.concatenate([low, inverse, counts, box, [0.0]]), int(np.prod(counts)), spacing)


def bounds(points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and the largest coordinate of points ``[n, 3]`` on each axis; 0 if there are none."""
    if not len(points):
        return np.zeros(3), np.zeros(3)
    found: list[NDArray[np.float64]] = []

    def some(first: int, end: int) -> None:
        part = points[first:end]
        whole = len(part) // WIDE * WIDE
        if whole and part.flags.c_contiguous:
            lines = part[:whole].reshape(-1, 3 * WIDE)
            found.extend(by.reduce(lines, axis=0).reshape(WIDE, 3) for by in (np.minimum, np.maximum))
            part = part[whole:]
        if len(part):
            found.append(part)

    sliced(some, len(points), points.nbytes)
    every = np.concatenate(found)
    return every.min(0), every.max(0)


def _edge(points: NDArray[np.float64], box: Any, far: float) -> float:
    """Such that a cell has about ``IN_A_CELL`` points where most points are; none is farther than ``far`` from 0."""
    some = points[:: max(1, len(points) // SAMPLE)]
    if len(some) < 2:
        return float(max(box.max(), 1.0))
    ordered = np.sort(some, axis=0)
    extents = ordered[len(some) - 1 - len(some) // 20] - ordered[len(some) // 20]  # of nine tenths
    wide = extents[extents > 1e-9 * max(extents.max(), 1e-300)]
    if not len(wide):
        return 1.0
    edge = float(np.exp(np.mean(np.log(wide))) * (IN_A_CELL / len(points)) ** (1 / len(wide)))
    return max(edge, 1e-9 * far, 1e-300)
