"""Searches in a grid with NumPy.

Points are sorted by the bucket of their cell; ``starts`` says where each bucket begins. A search is for the points
within ``b`` of ``a``, or in the box from ``a`` to ``b`` (three columns). Where it covers more cells than there are
points, all points are looked at instead. Results are in the order of cells, and of points within a cell.
"""

from typing import Any

import numpy as np

__all__ = ["count", "fill", "keyed", "nearest", "places"]


def cells(p: Any, world: Any) -> Any:
    """The cell of each point, i64 ``[3, n]``."""
    found = np.floor((p - world[0:3, None]) * world[3:6, None])
    return np.clip(found, world[12], world[6:9, None] - 1).astype("i8")


def buckets(place: Any, world: Any, size: int) -> Any:
    x, y, z = place
    if world[12] == 0:
        return (z * int(world[7]) + y) * int(world[6]) + x
    x, y, z = (one.astype("u4") for one in (x, y, z))
    mixed = x * np.uint32(73856093) ^ y * np.uint32(19349663) ^ z * np.uint32(83492791)
    return (mixed & np.uint32(size - 1)).astype("i8")


def keyed(p: Any, world: Any, key: Any, index: Any, size: int) -> None:
    """The bucket of each point, and its number."""
    key[...] = buckets(cells(p.T, world), world, size)
    index[...] = np.arange(len(key))


def places(p: Any, order: Any, out: Any) -> None:
    """Points in the order of their buckets."""
    out[...] = p[order].T


def ranges(low: Any, high: Any, world: Any) -> Any:
    """The first cell and the number of cells on each axis."""
    first, last = (np.floor((one - world[0:3, None]) * world[3:6, None]) for one in (low, high))
    periodic = world[9:12, None] > 0
    first, last = (np.where(periodic, one, np.clip(one, world[12], world[6:9, None] - 1)) for one in (first, last))
    whole = periodic & ~(last - first + 1 < world[6:9, None])
    first, last = np.where(whole, 0, first), np.where(whole, world[6:9, None] - 1, last)
    return first.astype("i8"), (last - first + 1).astype("i8")


def bounds(a: Any, b: Any) -> Any:
    """The box in which results are; a little larger for radii, because of rounding."""
    if len(b) == 3:
        return a, b
    reach = b + 1e-12 * (np.abs(a) + b)
    return a - reach, a + reach


def columns(a: Any, b: Any) -> Any:
    """Searches with an axis in each row; ``b`` for each of them."""
    return a.T, np.broadcast_to(b, (len(a), b.shape[1])).T


def pairs(a: Any, b: Any, points: Any, starts: Any, world: Any) -> Any:
    """Numbers of searches, places of points, and squared distances; which searches have looked at all points."""
    n, size = points.shape[1], len(starts) - 1
    low, high = bounds(a, b)
    first, many = ranges(low, high, world)
    rows = many[1] * many[2] if world[12] == 0 else many[0].astype("f8") * many[1] * many[2]
    whole = rows > n
    which, at = [np.repeat(np.flatnonzero(whole), n)], [np.tile(np.arange(n), int(whole.sum()))]
    some = np.flatnonzero(~whole)
    extents = many[:, some].max(1) if len(some) else np.zeros(3, "i8")
    for cell in np.ndindex(*extents[::-1]):
        step = np.array(cell[::-1])[:, None]
        mine = some[(step < many[:, some]).all(0)]
        place = first[:, mine] + step
        place = np.where(world[9:12, None] > 0, place % world[6:9, None].astype("i8"), place)
        bucket = buckets(place, world, size)
        begin = starts[bucket].astype("i8")
        length = starts[bucket + 1] - begin
        found = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
        if world[12] < 0:
            inside = (cells(points[:, found], world) == np.repeat(place, length, axis=1)).all(0)
        else:
            inside = np.ones(len(found), bool)
        which.append(np.repeat(mine, length)[inside])
        at.append(found[inside])
    query, place = np.concatenate(which), np.concatenate(at)
    hit, d2 = hits(a[:, query], b[:, query], points[:, place], world[9:12, None])
    query, place, d2 = query[hit], place[hit], d2[hit]
    order = np.argsort(query, kind="stable")
    return query[order], place[order], d2[order], whole


def hits(a: Any, b: Any, p: Any, period: Any) -> Any:
    """Which points are results, and their squared distances."""
    if len(b) == 3:
        p = np.where((period > 0) & (p < a), p + period, p)
        return ((p >= a) & (p <= b)).all(0), np.zeros(p.shape[1])
    d = np.abs(p - a)
    d = np.where(period > 0, np.minimum(d, period - d), d)
    d2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2]
    return d2 <= b[0] * b[0], d2


def count(a: Any, b: Any, points: Any, starts: Any, world: Any, counts: Any) -> None:
    """How many results each search has."""
    a, b = columns(a, b)
    counts[...] = np.bincount(pairs(a, b, points, starts, world)[0], minlength=len(counts))


def fill(
    a: Any, b: Any, points: Any, order: Any, starts: Any, world: Any, offsets: Any, rows: Any, distances: Any
) -> None:
    """The results of all searches, one after the other."""
    a, b = columns(a, b)
    _, place, d2, _ = pairs(a, b, points, starts, world)
    rows[...], distances[...] = order[place], np.sqrt(d2)


def nearest(
    a: Any, points: Any, order: Any, starts: Any, world: Any, first: float, rows: Any, distances: Any
) -> None:  # fmt: skip
    """The nearest points of each place by distance, then by number; -1 and infinity where there are no more."""
    a, k = a.T, rows.shape[1]
    rows[...], distances[...] = -1, np.inf
    left, radius = np.arange(a.shape[1]), first
    while len(left):
        query, place, d2, whole = pairs(a[:, left], np.full((1, len(left)), radius), points, starts, world)
        found = np.bincount(query, minlength=len(left))
        done = (found >= k) | (found == points.shape[1])
        if whole.any():  # whatever is farther has been looked at, too
            every = np.flatnonzero(whole & ~done)
            n = points.shape[1]
            more, at = np.repeat(every, n), np.tile(np.arange(n), len(every))
            far = np.full((1, len(more)), np.inf)
            keep = ~np.isin(query, every)
            query, place = np.append(query[keep], more), np.append(place[keep], at)
            d2 = np.append(d2[keep], hits(a[:, left[more]], far, points[:, at], world[9:12, None])[1])
            done |= whole
        sort = np.lexsort((order[place], d2, query))
        query, place, d2 = query[sort], place[sort], d2[sort]
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        best = (rank < k) & done[query]
        rows[left[query[best]], rank[best]] = order[place[best]]
        distances[left[query[best]], rank[best]] = np.sqrt(d2[best])
        left, radius = left[~done], radius * 2
