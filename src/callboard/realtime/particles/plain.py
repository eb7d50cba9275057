"""A step of particles in NumPy: the reference for the kernels in Numba and CUDA.

``x`` and ``v`` are f32 ``[3, n]``, ``life`` is f32 ``[n]``: seconds left, 0 or less in a free slot.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from callboard.realtime.particles import packing as kinds

__all__ = ["advance", "contacts", "emit", "tick"]

Floats = NDArray[np.float32]
BLOCK = 1 << 14
"""Particles that are moved at once, so that what lies between fits a cache."""


def advance(
    x: Floats,
    v: Floats,
    life: Floats,
    mass: Floats | None,
    dt: float,
    world: Floats,
    fields: Floats,
    colliders: Floats,
    method: int,
    mortal: int,
) -> None:
    """Move all particles by one step, and stop them at obstacles.

    Args:
        mass: None: all have 1.
        mortal: Not 0 if slots may be free.
    """
    for start in range(0, x.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        free = None
        if mortal:
            life[part] -= np.float32(dt)
            free = life[part] <= 0
            v[:, part][:, free] = 0
        masses = None if mass is None else mass[part]
        _moved(x[:, part], v[:, part], free, masses, np.float32(dt), world, fields, method)
        for row in colliders:
            _stopped(x[:, part], v[:, part], row)


def _moved(
    x: Floats, v: Floats, free: Any, mass: Floats | None, dt: np.float32, world: Floats, fields: Floats, method: int
) -> None:
    half = np.float32(0.5) * dt
    rest = free, mass, world, fields
    a = _accelerations(x, v, *rest)
    if method == kinds.METHODS["symplectic"]:
        v += a * dt
        x += v * dt
    elif method == kinds.METHODS["verlet"]:
        v += a * half
        x += v * dt
        v += _accelerations(x, v, *rest) * half
    else:
        va = v + a * half
        b = _accelerations(x + v * half, va, *rest)
        vb = v + b * half
        c = _accelerations(x + va * half, vb, *rest)
        vc = v + c * dt
        d = _accelerations(x + vb * dt, vc, *rest)
        sixth, two = dt / np.float32(6), np.float32(2)
        x += (v + two * va + two * vb + vc) * sixth
        v += (a + two * b + two * c + d) * sixth


def _accelerations(x: Any, v: Any, free: Any, mass: Floats | None, world: Floats, fields: Floats) -> Floats:
    gravity = world[:3, None]
    a: Floats = -world[3] * v
    if mass is None:
        a += gravity
    with np.errstate(divide="ignore", invalid="ignore"):  # found by the simulation
        for row in fields:
            kind, center, other, strength = int(row[0]), row[1:4, None], row[4:7, None], row[7]
            if kind == kinds.ATTRACTOR:
                to = center - x
                square = (to * to).sum(0) + row[8] * row[8]
                a += strength * to / (square * np.sqrt(square))
            elif kind == kinds.SPRING:
                a += strength * (center - x)
            elif kind == kinds.VORTEX:
                a += strength * np.cross(other, x - center, axis=0)
            elif kind == kinds.WIND:
                a += strength * (other - v)
    if mass is not None:
        a /= mass
        a += gravity
    if free is not None:
        a[:, free] = 0
    return a


def _stopped(x: Floats, v: Floats, row: Floats) -> None:
    """Out of one obstacle, with the velocity that it leaves."""
    kind, left, slip = int(row[0]), row[7], np.float32(1) - row[8]
    if kind == kinds.BOX:
        for axis in range(3):
            low, high = x[axis] < row[1 + axis], x[axis] > row[4 + axis]
            np.clip(x[axis], row[1 + axis], row[4 + axis], out=x[axis])
            v[axis][(low & (v[axis] < 0)) | (high & (v[axis] > 0))] *= -left
        return
    if kind == kinds.PLANE:
        normal = np.broadcast_to(row[1:4, None], x.shape)
        depth = (x * normal).sum(0) - row[4]
    elif kind in (kinds.BALL, kinds.BOWL):
        from_center = x - row[1:4, None]
        distance = np.sqrt((from_center * from_center).sum(0))
        sign = np.float32(1 if kind == kinds.BALL else -1)
        normal = sign * from_center / np.maximum(distance, np.float32(1e-12))
        depth = sign * (distance - row[4])
    else:
        return
    hit = np.flatnonzero(depth < 0)
    if hit.size:
        n = normal[:, hit]
        x[:, hit] -= depth[hit] * n
        along = (v[:, hit] * n).sum(0)
        bounced = (v[:, hit] - along * n) * slip - left * along * n
        v[:, hit] = np.where(along < 0, bounced, v[:, hit])


def contacts(
    x: Floats,
    v: Floats,
    life: Floats,
    order: Any,
    starts: Any,
    out: Floats,
    diameter: Any,
    stiffness: Any,
    damping: Any,
) -> None:
    """Forces between particles that touch: a spring and a damper, which push and never pull.

    Args:
        order, starts: Particles in the order of their buckets, and where each of these begins; not needed here.
    """
    out[...] = 0
    alive = np.flatnonzero(life > 0)
    i, j = alive[KDTree(x[:, alive].T).query_pairs(diameter, output_type="ndarray").T]
    d = x[:, i] - x[:, j]
    distance = np.sqrt((d * d).sum(0))
    touch = (distance < diameter) & (distance > np.float32(1e-12))
    i, j, d, distance = i[touch], j[touch], d[:, touch], distance[touch]
    apart = ((v[:, i] - v[:, j]) * d).sum(0) / distance
    push = np.maximum(stiffness * (diameter - distance) - damping * apart, np.float32(0)) / distance * d
    for axis in range(3):
        np.add.at(out[axis], i, push[axis])
        np.subtract.at(out[axis], j, push[axis])


def emit(
    x: Floats,
    v: Floats,
    life: Floats,
    mass: Floats,
    attributes: Floats,
    clock: Any,
    dt: float,
    emitters: Floats,
    born: Floats,
    seed: int,
) -> None:
    """Make new particles in free slots, in ascending order.

    Args:
        attributes: ``[k, n]``, or ``[1, 1]`` where there are none.
        clock: Its first item is the seconds since the start.
        born: Attributes of new particles, a row for each emitter.
    """
    free = np.flatnonzero(life <= 0)
    taken = 0
    for e, row in enumerate(emitters):
        first, count = _due(row, clock[0], dt)
        slots = free[taken : taken + count]
        taken += count
        serial = (first + np.arange(len(slots))).astype("u4")
        for axis in range(3):
            x[axis, slots] = row[1 + axis] + row[8] * _drawn(seed, e, serial, axis)
            v[axis, slots] = row[4 + axis] + row[9] * _drawn(seed, e, serial, 3 + axis)
        life[slots], mass[slots] = row[10], row[11]
        if attributes.shape[1] == len(life):
            attributes[:, slots] = born[e][:, None]


def tick(clock: Any, rank: NDArray[np.int32], free: NDArray[np.int32], dt: float, emitters: Floats) -> None:
    """Move the clock: seconds, particles made, and particles for which there was no slot.

    Args:
        rank: Free slots before each slot.
        free: Whether it was one.
    """
    wanted = sum(_due(row, clock[0], dt)[1] for row in emitters)
    made = min(wanted, int(rank[-1] + free[-1]))
    clock += np.array([float(dt), made, wanted - made])


def _due(row: Floats, time: float, dt: float) -> tuple[int, int]:
    """Number of the first particle of an emitter in a step, and how many there are."""
    rate = float(row[7]) * float(row[0] != kinds.NOTHING)
    first = int(np.floor(rate * time))
    return first, int(np.floor(rate * (time + float(dt)))) - first


def _drawn(seed: int, emitter: int, serial: NDArray[np.uint32], axis: int) -> Floats:
    """Numbers between -1 and 1, which depend on the arguments only."""
    fixed = (seed * 0x9E3779B9 ^ (emitter + 1) * 0x85EBCA6B ^ (axis + 1) * 0x27D4EB2F) & 0xFFFFFFFF
    h = serial * np.uint32(0xC2B2AE35) ^ np.uint32(fixed)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
    h ^= h >> np.uint32(16)
    return (h >> np.uint32(8)).astype("f4") * np.float32(2.0**-23) - np.float32(1)
