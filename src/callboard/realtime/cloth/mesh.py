"""The springs of a cloth, in colours: no two springs of a colour share a particle, so that they are solved at once."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.realtime.base.checks import rows

__all__ = ["BEND", "SHEAR", "STRETCH", "Mesh", "grid", "of_triangles"]

Indices = NDArray[np.int32]
STRETCH, SHEAR, BEND = 0, 1, 2


class Mesh(NamedTuple):
    """A cloth at rest.

    Attributes:
        positions: f32 ``[particles, 3]``.
        triangles: i32 ``[triangles, 3]``.
        springs: i32 ``[springs, 2]``, sorted by colour.
        kinds: ``STRETCH``, ``SHEAR`` or ``BEND`` of each; u8.
        colours: Where each colour begins, and the number of springs.
    """

    positions: NDArray[np.float32]
    triangles: Indices
    springs: Indices
    kinds: NDArray[np.uint8]
    colours: tuple[int, ...]

    def fans(self) -> tuple[Indices, Indices]:
        """For each particle, its triangles: where they begin, and their other corners, ``[2, 3 * triangles]``."""
        owner = self.triangles.reshape(-1)
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(len(self.positions) + 1)).astype("i4")
        others = np.stack([np.roll(self.triangles, -n, axis=1).reshape(-1)[order] for n in (1, 2)])
        return starts, others.astype("i4") if others.size else np.zeros((2, 1), "i4")

    def areas(self) -> NDArray[np.float64]:
        """A third of the triangles around each particle."""
        a, b, c = (self.positions[self.triangles[:, n]].astype("f8") for n in range(3))
        area = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 6
        owner = self.triangles.reshape(-1)
        return np.bincount(owner, np.repeat(area, 3), len(self.positions)).astype("f8")


def grid(width: int, height: int, spacing: float) -> Mesh:
    """A rectangle in the plane z = 0: particle ``j * width + i`` is at ``(i, j) * spacing``."""
    at = np.arange(width * height, dtype="i4").reshape(height, width)
    y, x = np.divmod(at, width)
    positions = np.stack([x, y, np.zeros_like(x)], axis=-1).reshape(-1, 3).astype("f4") * np.float32(spacing)
    links = (
        (STRETCH, at[:, :-1], at[:, 1:], x[:, :-1]),
        (STRETCH, at[:-1], at[1:], y[:-1]),
        (SHEAR, at[:-1, :-1], at[1:, 1:], x[:-1, :-1]),
        (SHEAR, at[:-1, 1:], at[1:, :-1], x[:-1, 1:]),
        (BEND, at[:, :-2], at[:, 2:], x[:, :-2] // 2),
        (BEND, at[:-2], at[2:], y[:-2] // 2),
    )
    springs, kinds = [], []
    for kind, first, second, line in links:
        for parity in (0, 1):
            one = line % 2 == parity
            springs.append(np.stack([first[one], second[one]], axis=1))
            kinds.append(kind)
    corners = at[:-1, :-1], at[:-1, 1:], at[1:, :-1], at[1:, 1:]
    a, b, c, d = (corner.reshape(-1) for corner in corners)
    triangles = np.concatenate([np.stack([a, b, c], axis=1), np.stack([d, c, b], axis=1)])
    return _mesh(positions, triangles, springs, kinds)


def of_triangles(positions: Any, triangles: Any) -> Mesh:
    """Springs along all edges, and across each edge that two triangles share.

    Where three triangles share an edge, the first two have a spring across it.

    Raises:
        ShapeError: An array is not ``[n, 3]``.
        ValueError: An index is out of range, a triangle has a corner twice, or a particle is in no triangle.
    """
    where = rows("positions", positions, 3)
    corners = np.asarray(triangles)
    if corners.ndim != 2 or corners.shape[1] != 3 or corners.dtype.kind not in "iu" or not len(corners):
        raise ShapeError(f"triangles is {corners.dtype}{list(corners.shape)}; pass integers [triangles, 3]")
    outside = (corners < 0) | (corners >= len(where))
    if outside.any():
        raise ValueError(f"triangles has {corners[outside][0]}; there are {len(where)} positions")
    corners = corners.astype("i4")
    pairs = np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]), axis=1)
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise ValueError("triangles has one with a corner twice; pass triangles with three corners")
    alone = np.setdiff1d(np.arange(len(where)), corners)
    if alone.size:
        raise ValueError(f"position {alone[0]} is in no triangle; leave it out")
    opposite = np.concatenate([corners[:, 2], corners[:, 0], corners[:, 1]])
    edges, which, times = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(which.reshape(-1), kind="stable")
    begins = np.cumsum(times) - times
    shared = begins[times >= 2]
    bends = np.stack([opposite[order[shared]], opposite[order[shared + 1]]], axis=1)
    bends = np.unique(np.sort(bends[bends[:, 0] != bends[:, 1]], axis=1), axis=0)
    size = len(where)
    bends = bends[~np.isin(bends @ [size, 1], edges.astype("i8") @ [size, 1])]
    springs, kinds = [], []
    for kind, links in ((STRETCH, edges), (BEND, bends)):
        for colour in _coloured(links.astype("i4"), len(where)):
            springs.append(colour)
            kinds.append(kind)
    return _mesh(where, corners, springs, kinds)


def _mesh(positions: Any, triangles: Any, springs: list[Any], kinds: list[int]) -> Mesh:
    kept = [(colour, kind) for colour, kind in zip(springs, kinds, strict=True) if len(colour)]
    sizes = [len(colour) for colour, _ in kept]
    links = np.concatenate([colour for colour, _ in kept]) if kept else np.zeros((0, 2), "i4")
    of = np.repeat(np.array([kind for _, kind in kept], "u1"), sizes)
    return Mesh(positions, triangles, links, of, (0, *(int(end) for end in np.cumsum(sizes))))


def _coloured(links: Indices, particles: int) -> list[Indices]:
    """Greedy colours: each is a maximal set of links without a common particle (Luby, 1986, round by round)."""
    draw = np.random.default_rng(0)
    colours = []
    while len(links):
        chosen = np.zeros(len(links), bool)
        open_ = np.arange(len(links))
        taken = np.zeros(particles, bool)
        while len(open_):
            a, b = links[open_].T
            rank = draw.permutation(len(open_))
            best = np.full(particles, len(open_))
            np.minimum.at(best, a, rank)
            np.minimum.at(best, b, rank)
            wins = (best[a] == rank) & (best[b] == rank)
            chosen[open_[wins]] = True
            taken[a[wins]] = taken[b[wins]] = True
            open_ = open_[~(taken[a] | taken[b])]
        colours.append(links[chosen])
        links = links[~chosen]
    return colours
