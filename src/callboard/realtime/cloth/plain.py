"""A step of cloth in NumPy: the reference for the kernels in Numba and CUDA.

Extended position-based dynamics (Macklin, Müller and Chentanez, 2016) in small steps (Macklin et al., 2019). ``x``,
``v`` and ``q`` are f32 ``[3, n]``: positions, velocities, and the positions that a substep ends with. ``w`` is the
inverse mass of each particle, ``free`` is 0 where it is pinned, and 1 elsewhere.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.realtime.particles.packing import BOWL, NOTHING, PLANE

__all__ = ["apart", "begins", "buckets", "finish", "predict", "solve", "stop", "torn"]

Floats = NDArray[np.float32]
ONE, TINY = np.float32(1), np.float32(1e-12)


def predict(
    x: Floats,
    v: Floats,
    q: Floats,
    w: Floats,
    free: Floats,
    fan_starts: Any,
    fans: Any,
    h: np.float32,
    world: Floats,
) -> None:
    """Where particles would be after a substep without springs.

    Args:
        fan_starts: Where the triangles around each particle begin in ``fans``, which has their other corners.
        world: Gravity (3), damping, wind (3), force of the air.
    """
    size = x.shape[1]
    a = np.repeat(world[:3, None], size, axis=1)
    if world[7]:
        owner = np.repeat(np.arange(size), np.diff(fan_starts))
        first, second = fans[:, : len(owner)]
        cross = np.cross(x[:, first] - x[:, owner], x[:, second] - x[:, owner], axis=0)
        along = ((world[4:7, None] - v[:, owner]) * cross).sum(0)
        push = world[7] / np.float32(6) * along / np.maximum(np.sqrt((cross * cross).sum(0)), TINY) * cross
        for axis in range(3):
            a[axis] += w * np.bincount(owner, push[axis], size).astype("f4")
    v *= ONE / (ONE + world[3] * h)
    v += h * a
    v *= free
    np.multiply(v, h, out=q)
    q += x


def solve(
    q: Floats,
    load: Floats,
    springs: Any,
    rest: Floats,
    kinds: Any,
    w: Floats,
    free: Floats,
    compliance: Floats,
    h: np.float32,
    part: slice,
    again: int,
) -> None:
    """Bring the springs of a colour closer to their lengths at rest.

    Args:
        load: Force of each spring, which pushes its ends apart where it is positive.
        compliance: Of each kind.
        part: The colour's springs.
        again: Not 0 in passes after the first of a substep.
    """
    first, second = springs[:, part]
    wi, wj = w[first] * free[first], w[second] * free[second]
    d = q[:, first] - q[:, second]
    length = np.sqrt((d * d).sum(0))
    give = compliance[kinds[part]]
    before = load[part] if again else np.float32(0)
    moves = (wi + wj > 0) & (rest[part] >= 0) & (length > TINY)
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(moves, (rest[part] - length - give * before) / (wi + wj + give / (h * h)), np.float32(0))
        n = np.where(moves, d / length, np.float32(0))
    load[part] = before + change / (h * h)
    q[:, first] += wi * change * n
    q[:, second] -= wj * change * n


def stop(q: Floats, x: Floats, free: Floats, colliders: Floats, margin: np.float32) -> None:
    """Put particles out of obstacles, and take a part of their way along them."""
    for row in colliders:
        kind = int(row[0])
        if kind == NOTHING:
            continue
        if kind == PLANE:
            normal = np.broadcast_to(row[1:4, None], q.shape)
            depth = (q * normal).sum(0) - row[4]
        else:
            away = q - row[1:4, None]
            distance = np.sqrt((away * away).sum(0))
            sign = np.float32(-1 if kind == BOWL else 1)
            normal = sign * away / np.maximum(distance, TINY)
            depth = sign * (distance - row[4])
        hit = np.flatnonzero((depth < margin) & (free > 0))
        n = normal[:, hit]
        q[:, hit] += (margin - depth[hit]) * n
        way = q[:, hit] - x[:, hit]
        q[:, hit] -= row[8] * (way - (way * n).sum(0) * n)


def finish(x: Floats, v: Floats, q: Floats, h: np.float32) -> None:
    """The substep is done."""
    np.subtract(q, x, out=v)
    v /= h
    x[...] = q


def torn(rest: Floats, load: Floats, x: Floats, springs: Any, most: np.float32) -> None:
    """Break springs that are too long: their length at rest becomes negative, and they do not pull."""
    d = x[:, springs[0]] - x[:, springs[1]]
    far = np.sqrt((d * d).sum(0)) > most * rest
    breaks = far & (rest > 0)
    rest[breaks] *= -1
    load[breaks] = 0


# -- a cloth that does not pass through itself -------------------------------------------------------------------------


def buckets(q: Floats, key: Any, cell: np.float32, size: int) -> None:
    """The bucket of the cell in which each particle is (Teschner et al., 2003)."""
    key[...] = _bucket(np.floor(q / cell).astype("i4"), size)


def _bucket(place: Any, size: int) -> Any:
    x, y, z = place.astype("u4")
    return (x * np.uint32(73856093) ^ y * np.uint32(19349663) ^ z * np.uint32(83492791)) & np.uint32(size - 1)


def begins(keys: Any, starts: Any) -> None:
    """Where each bucket begins in the sorted keys."""
    starts[...] = np.searchsorted(keys, np.arange(len(starts), dtype="u4"))


def apart(
    q: Floats, out: Floats, order: Any, starts: Any, home: Floats, w: Floats, free: Floats, thickness: np.float32
) -> None:
    """Move particles away from those that are too near and were not so at rest, by the mean of what each asks for."""
    place = np.floor(q / thickness).astype("i4")
    weight = w * free
    push = np.zeros_like(q)
    many = np.zeros(q.shape[1], "f4")
    for n in range(27):
        cell = place + np.array([[n // 9 - 1], [n // 3 % 3 - 1], [n % 3 - 1]], "i4")
        bucket = _bucket(cell, len(starts) - 1)
        at, end = starts[bucket].copy(), starts[bucket.astype("i8") + 1]
        while True:
            mine = np.flatnonzero(at < end)
            if not mine.size:
                break
            other = order[at[mine]]
            at[mine] += 1
            d, before = q[:, mine] - q[:, other], home[:, mine] - home[:, other]
            distance = np.sqrt((d * d).sum(0))
            near = (place[:, other] == cell[:, mine]).all(0) & (distance < thickness) & (distance > TINY)
            near &= ((before * before).sum(0) >= thickness * thickness) & (weight[mine] > 0)
            i, j = mine[near], other[near]
            share = (thickness / distance[near] - ONE) * weight[i] / (weight[i] + weight[j])
            push[:, i] += share * d[:, near]
            many[i] += 1
    np.divide(push, np.maximum(many, ONE), out=out)
    out += q
