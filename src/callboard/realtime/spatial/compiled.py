"""Searches in a grid compiled by Numba: as :mod:`.plain`, search by search."""

from typing import Any

import numpy as np

from callboard.realtime.base.cpu.engines import spread
from callboard.realtime.base.cpu.jit import jit, jit_inlined

__all__ = ["count", "fill", "keyed", "nearest", "places"]

COUNT, FILL, NEAREST = 0, 1, 2
GRAIN = 500
"""Searches of a thread at least."""


@jit_inlined
def cell(p: Any, axis: Any, world: Any) -> Any:
    found = np.floor((p - world[axis]) * world[3 + axis])
    return np.int64(min(max(found, world[12]), world[6 + axis] - 1.0))


@jit_inlined
def bucket(x: Any, y: Any, z: Any, world: Any, size: Any) -> Any:
    if world[12] == 0.0:
        return (z * np.int64(world[7]) + y) * np.int64(world[6]) + x
    mixed = np.uint32(x) * np.uint32(73856093) ^ np.uint32(y) * np.uint32(19349663) ^ np.uint32(z) * np.uint32(83492791)
    return np.int64(np.uint32(mixed) & np.uint32(size - 1))


@jit
def keyed(p: Any, world: Any, key: Any, index: Any, size: Any) -> None:
    """The bucket of each point, and its number."""
    for i in range(p.shape[0]):
        x, y, z = cell(p[i, 0], 0, world), cell(p[i, 1], 1, world), cell(p[i, 2], 2, world)
        key[i], index[i] = bucket(x, y, z, world, size), i


@jit
def places(p: Any, order: Any, out: Any) -> None:
    """Points in the order of their buckets."""
    for axis in range(3):
        for i in range(order.shape[0]):
            out[axis, i] = p[order[i], axis]


@jit_inlined
def extent(low: Any, high: Any, axis: Any, world: Any) -> Any:
    """The first and the last cell on an axis."""
    first = np.floor((low - world[axis]) * world[3 + axis])
    last = np.floor((high - world[axis]) * world[3 + axis])
    if world[9 + axis] > 0.0:
        if not last - first + 1.0 < world[6 + axis]:
            first, last = 0.0, world[6 + axis] - 1.0
    else:
        first = min(max(first, world[12]), world[6 + axis] - 1.0)
        last = min(max(last, world[12]), world[6 + axis] - 1.0)
    return np.int64(first), np.int64(last)


@jit_inlined
def wrapped(c: Any, axis: Any, world: Any) -> Any:
    return c % np.int64(world[6 + axis]) if world[9 + axis] > 0.0 else c


@jit_inlined
def counted(q: Any, r2: Any, points: Any, begin: Any, end: Any) -> Any:
    """Points within a radius, where nothing is periodic. Unsigned indices are not looked at for being negative."""
    found = 0
    for j in range(np.uint64(begin), np.uint64(end)):
        dx, dy, dz = points[0, j] - q[0], points[1, j] - q[1], points[2, j] - q[2]
        found += dx * dx + dy * dy + dz * dz <= r2
    return found


@jit
def run(
    begin: Any, end: Any, place: Any, q: Any, h: Any, r2: Any, points: Any, order: Any, world: Any, mode: Any,
    at: Any, found: Any, k: Any, rows: Any, distances: Any,
) -> Any:  # fmt: skip
    """Look at some points; ``place`` is the cell in which they must be, if its last number is 1."""
    for j in range(begin, end):
        px, py, pz = points[0, j], points[1, j], points[2, j]
        if place[3] == 1 and (
            cell(px, 0, world) != place[0] or cell(py, 1, world) != place[1] or cell(pz, 2, world) != place[2]
        ):
            continue
        d2 = 0.0
        if r2 < 0.0:
            px = px + world[9] if px < q[0] else px
            py = py + world[10] if py < q[1] else py
            pz = pz + world[11] if pz < q[2] else pz
            if px < q[0] or py < q[1] or pz < q[2] or px > h[0] or py > h[1] or pz > h[2]:
                continue
        else:
            dx, dy, dz = abs(px - q[0]), abs(py - q[1]), abs(pz - q[2])
            dx = min(dx, world[9] - dx) if world[9] > 0.0 else dx
            dy = min(dy, world[10] - dy) if world[10] > 0.0 else dy
            dz = min(dz, world[11] - dz) if world[11] > 0.0 else dz
            d2 = dx * dx + dy * dy + dz * dz
            if d2 > r2:
                continue
        if mode == FILL:
            rows[at + found], distances[at + found] = order[j], np.sqrt(d2)
        elif mode == NEAREST:
            row = order[j]
            last = found
            if found == k:
                last = k - 1
                if d2 > distances[at + last] or (d2 == distances[at + last] and row > rows[at + last]):
                    continue
                found -= 1
            while last > 0 and (
                distances[at + last - 1] > d2 or (distances[at + last - 1] == d2 and rows[at + last - 1] > row)
            ):
                rows[at + last], distances[at + last] = rows[at + last - 1], distances[at + last - 1]
                last -= 1
            rows[at + last], distances[at + last] = row, d2
        found += 1
    return found


@jit
def walk(
    q: Any, low: Any, high: Any, h: Any, r2: Any, points: Any, order: Any, starts: Any, world: Any, mode: Any,
    at: Any, k: Any, rows: Any, distances: Any,
) -> Any:  # fmt: skip
    """One search; its results, and whether it has looked at all points. For the nearest these have no limit then."""
    size, n = starts.shape[0] - 1, points.shape[1]
    lx, hx = extent(low[0], high[0], 0, world)
    ly, hy = extent(low[1], high[1], 1, world)
    lz, hz = extent(low[2], high[2], 2, world)
    hashed = world[12] < 0.0
    cells = np.float64(hy - ly + 1) * np.float64(hz - lz + 1)
    if hashed:
        cells *= np.float64(hx - lx + 1)
    if cells > n:
        r2 = np.inf if mode == NEAREST else r2
        none = (np.int64(0), np.int64(0), np.int64(0), 0)
        return run(0, n, none, q, h, r2, points, order, world, mode, at, 0, k, rows, distances), True
    plainly = mode == COUNT and not hashed and r2 >= 0.0 and world[9] + world[10] + world[11] == 0.0
    found = 0
    for z in range(lz, hz + 1):
        wz = wrapped(z, 2, world)
        for y in range(ly, hy + 1):
            wy = wrapped(y, 1, world)
            x = lx
            while x <= hx:
                wx = wrapped(x, 0, world)
                length = 1 if hashed else min(hx - x + 1, np.int64(world[6]) - wx)
                b = bucket(wx, wy, wz, world, size)
                begin, end = starts[b], starts[b + length]
                if plainly:
                    found += counted(q, r2, points, begin, end)
                else:
                    place = (np.int64(wx), np.int64(wy), np.int64(wz), 1 if hashed else 0)
                    found = run(begin, end, place, q, h, r2, points, order, world, mode, at, found, k, rows, distances)
                x += length
    return found, False


@jit_inlined
def reached(q: Any, r: Any) -> Any:
    """A box around a ball, a little larger because of rounding."""
    x, y, z = r + 1e-12 * (abs(q[0]) + r), r + 1e-12 * (abs(q[1]) + r), r + 1e-12 * (abs(q[2]) + r)
    return (q[0] - x, q[1] - y, q[2] - z), (q[0] + x, q[1] + y, q[2] + z)


@jit
def search(
    a: Any, b: Any, i: Any, points: Any, order: Any, starts: Any, world: Any, mode: Any, at: Any, rows: Any,
    distances: Any,
) -> Any:  # fmt: skip
    q = (a[i, 0], a[i, 1], a[i, 2])
    own = i if b.shape[0] > 1 else 0
    if b.shape[1] == 3:
        h = (b[own, 0], b[own, 1], b[own, 2])
        return walk(q, q, h, h, -1.0, points, order, starts, world, mode, at, 0, rows, distances)[0]
    r = b[own, 0]
    low, high = reached(q, r)
    return walk(q, low, high, q, r * r, points, order, starts, world, mode, at, 0, rows, distances)[0]


@jit
def visits(a: Any, world: Any, size: Any) -> Any:
    """Searches in the order of the cells of their places, so that consecutive ones look at the same points."""
    m = a.shape[0]
    order = np.arange(m)
    if size > 4 * m:
        return order
    key, starts = np.zeros(m, np.int64), np.zeros(size + 1, np.int64)
    for i in range(m):
        key[i] = bucket(cell(a[i, 0], 0, world), cell(a[i, 1], 1, world), cell(a[i, 2], 2, world), world, size)
        starts[key[i] + 1] += 1
    for b in range(size):
        starts[b + 1] += starts[b]
    for i in range(m):
        order[starts[key[i]]] = i
        starts[key[i]] += 1
    return order


@jit
def counts_of(
    first: Any, end: Any, turn: Any, a: Any, b: Any, points: Any, starts: Any, world: Any, counts: Any, rows: Any,
    distances: Any,
) -> None:  # fmt: skip
    for n in range(first, end):
        counts[turn[n]] = search(a, b, turn[n], points, rows, starts, world, COUNT, 0, rows, distances)


def count(a: Any, b: Any, points: Any, starts: Any, world: Any, counts: Any) -> None:
    """How many results each search has."""
    turn = visits(a, world, len(starts) - 1)
    spread(counts_of, len(turn), GRAIN, turn, a, b, points, starts, world, counts, np.zeros(1, "i4"), np.zeros(1))


@jit
def fills(
    first: Any, end: Any, turn: Any, a: Any, b: Any, points: Any, order: Any, starts: Any, world: Any, offsets: Any,
    rows: Any, distances: Any,
) -> None:  # fmt: skip
    for n in range(first, end):
        i = turn[n]
        search(a, b, i, points, order, starts, world, FILL, offsets[i], rows, distances)


def fill(
    a: Any, b: Any, points: Any, order: Any, starts: Any, world: Any, offsets: Any, rows: Any, distances: Any
) -> None:
    """The results of all searches, one after the other."""
    turn = visits(a, world, len(starts) - 1)
    spread(fills, len(turn), GRAIN, turn, a, b, points, order, starts, world, offsets, rows, distances)


@jit
def nearest_of(
    begin: Any, end: Any, turn: Any, a: Any, points: Any, order: Any, starts: Any, world: Any, first: Any, k: Any,
    rows: Any, distances: Any,
) -> None:  # fmt: skip
    n = points.shape[1]
    for at in range(begin, end):
        i = turn[at]
        q = (a[i, 0], a[i, 1], a[i, 2])
        r, found, whole = first, 0, False
        while not whole and found < min(k, n):
            low, high = reached(q, r)
            found, whole = walk(
                q, low, high, q, r * r, points, order, starts, world, NEAREST, i * k, k, rows, distances
            )
            r *= 2.0
        for column in range(k):
            if column < found:
                distances[i * k + column] = np.sqrt(distances[i * k + column])
            else:
                rows[i * k + column], distances[i * k + column] = -1, np.inf


def nearest(
    a: Any, points: Any, order: Any, starts: Any, world: Any, first: float, rows: Any, distances: Any
) -> None:  # fmt: skip
    """The nearest points of each place by distance, then by number; -1 and infinity where there are no more."""
    k, turn = rows.shape[1], visits(a, world, len(starts) - 1)
    flat = rows.reshape(-1), distances.reshape(-1)
    spread(nearest_of, len(turn), GRAIN, turn, a, points, order, starts, world, float(first), k, *flat)
