"""A step of particles compiled by Numba: as :mod:`.plain`, block by block, with loops that become vector code."""

from typing import Any

import numpy as np

from callboard.realtime.base.cpu.engines import spread
from callboard.realtime.base.cpu.jit import jit
from callboard.realtime.cloth.compiled import bucket

__all__ = ["advance", "contacts"]

BLOCK = 512
GRAIN = 512 * BLOCK
"""Particles of a thread at least."""
ONE, HALF, TWO, SIXTH, TINY = np.float32(1), np.float32(0.5), np.float32(2), np.float32(1 / 6), np.float32(1e-12)

NONE = np.zeros(0, "f4")
"""Masses where all are 1."""


@jit
def rows(x: Any, start: Any, end: Any) -> Any:
    """A part of each row. They are contiguous, which views of two dimensions would not be."""
    return x[0][start:end], x[1][start:end], x[2][start:end]


@jit
def accelerations(x: Any, v: Any, life: Any, mass: Any, world: Any, fields: Any, mortal: Any, a: Any) -> None:
    size, massive = x[0].shape[0], mass.shape[0] > 0
    for axis in range(3):
        gravity, drag, of, to = np.float32(0) if massive else world[axis], world[3], v[axis], a[axis]
        for j in range(size):
            to[j] = gravity - drag * of[j]
    ax, ay, az, px, py, pz = a[0], a[1], a[2], x[0], x[1], x[2]
    for f in range(fields.shape[0]):
        row = fields[f]
        kind, cx, cy, cz, ox, oy, oz, s, soft = row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8]
        if kind == ONE:
            for j in range(size):
                tx, ty, tz = cx - px[j], cy - py[j], cz - pz[j]
                square = tx * tx + ty * ty + tz * tz + soft * soft
                factor = s / (square * np.sqrt(square))
                ax[j] += factor * tx
                ay[j] += factor * ty
                az[j] += factor * tz
        elif kind == np.float32(2):
            for j in range(size):
                ax[j] += s * (cx - px[j])
                ay[j] += s * (cy - py[j])
                az[j] += s * (cz - pz[j])
        elif kind == np.float32(3):
            for j in range(size):
                dx, dy, dz = px[j] - cx, py[j] - cy, pz[j] - cz
                ax[j] += s * (oy * dz - oz * dy)
                ay[j] += s * (oz * dx - ox * dz)
                az[j] += s * (ox * dy - oy * dx)
        elif kind == np.float32(4):
            for j in range(size):
                ax[j] += s * (ox - v[0][j])
                ay[j] += s * (oy - v[1][j])
                az[j] += s * (oz - v[2][j])
    if massive:
        for axis in range(3):
            gravity, to = world[axis], a[axis]
            for j in range(size):
                to[j] = gravity + to[j] / mass[j]
    if mortal:
        for j in range(size):
            if life[j] <= np.float32(0):
                ax[j] = ay[j] = az[j] = np.float32(0)


@jit
def sum_of(x: Any, a: Any, factor: Any, out: Any) -> None:
    """``out = x + a * factor``."""
    for axis in range(3):
        p, q, r = x[axis], a[axis], out[axis]
        for j in range(p.shape[0]):
            r[j] = p[j] + q[j] * factor


@jit
def add_to(x: Any, a: Any, factor: Any) -> None:
    """``x += a * factor``. Loops over few arrays become vector code, since the compiler can tell them apart."""
    for axis in range(3):
        p, q = x[axis], a[axis]
        for j in range(p.shape[0]):
            p[j] += q[j] * factor


@jit
def fell(x: Any, v: Any, dt: Any, world: Any) -> None:
    """A symplectic step without fields, in one pass."""
    for axis in range(3):
        p, u, gravity, drag = x[axis], v[axis], world[axis], world[3]
        for j in range(p.shape[0]):
            u[j] += (gravity - drag * u[j]) * dt
            p[j] += u[j] * dt


@jit
def moved(
    x: Any, v: Any, life: Any, mass: Any, dt: Any, world: Any, fields: Any, method: Any, mortal: Any, work: Any
) -> None:
    size = x[0].shape[0]
    if method == 0 and not mortal and mass.shape[0] == 0 and fields.shape[0] == 1 and fields[0, 0] == np.float32(0):
        fell(x, v, dt, world)
        return
    a = rows(work[0], 0, size)
    half = HALF * dt
    accelerations(x, v, life, mass, world, fields, mortal, a)
    if method == 0:
        add_to(v, a, dt)
        add_to(x, v, dt)
    elif method == 1:
        add_to(v, a, half)
        add_to(x, v, dt)
        accelerations(x, v, life, mass, world, fields, mortal, a)
        add_to(v, a, half)
    else:
        b, c, d, va = rows(work[1], 0, size), rows(work[2], 0, size), rows(work[3], 0, size), rows(work[4], 0, size)
        vb, vc, at = rows(work[5], 0, size), rows(work[6], 0, size), rows(work[7], 0, size)
        sum_of(v, a, half, va)
        sum_of(x, v, half, at)
        accelerations(at, va, life, mass, world, fields, mortal, b)
        sum_of(v, b, half, vb)
        sum_of(x, va, half, at)
        accelerations(at, vb, life, mass, world, fields, mortal, c)
        sum_of(v, c, dt, vc)
        sum_of(x, vb, dt, at)
        accelerations(at, vc, life, mass, world, fields, mortal, d)
        sixth = dt * SIXTH
        for axis in range(3):
            for j in range(size):
                x[axis][j] += (v[axis][j] + TWO * va[axis][j] + TWO * vb[axis][j] + vc[axis][j]) * sixth
                v[axis][j] += (a[axis][j] + TWO * b[axis][j] + TWO * c[axis][j] + d[axis][j]) * sixth


@jit
def stopped(x: Any, v: Any, row: Any) -> None:
    size = x[0].shape[0]
    kind, px, py, pz, vx, vy, vz = row[0], x[0], x[1], x[2], v[0], v[1], v[2]
    left, slip, zero = row[7], ONE - row[8], np.float32(0)
    if kind == np.float32(4):
        for axis in range(3):
            p, u, low, high = x[axis], v[axis], row[1 + axis], row[4 + axis]
            for j in range(size):
                back = (p[j] < low and u[j] < zero) or (p[j] > high and u[j] > zero)
                p[j] = min(max(p[j], low), high)
                u[j] = u[j] * (-left if back else ONE)
        return
    nx, ny, nz, offset = row[1], row[2], row[3], row[4]
    if kind == ONE:
        least = zero
        for j in range(size):
            depth = nx * px[j] + ny * py[j] + nz * pz[j] - offset
            least = min(least, depth)
        if least == zero:
            return
        for j in range(size):
            depth = min(nx * px[j] + ny * py[j] + nz * pz[j] - offset, zero)
            px[j] -= depth * nx
            py[j] -= depth * ny
            pz[j] -= depth * nz
            along = vx[j] * nx + vy[j] * ny + vz[j] * nz
            bounces = (depth < zero) & (along < zero)
            keep = slip if bounces else ONE
            push = along * (slip + left) if bounces else zero
            vx[j] = vx[j] * keep - push * nx
            vy[j] = vy[j] * keep - push * ny
            vz[j] = vz[j] * keep - push * nz
        return
    sign = -ONE if kind == np.float32(3) else ONE
    for j in range(size):
        dx, dy, dz = px[j] - nx, py[j] - ny, pz[j] - nz
        distance = np.sqrt(dx * dx + dy * dy + dz * dz)
        depth = sign * (distance - offset)
        if depth < zero:
            factor = sign / max(distance, TINY)
            dx, dy, dz = factor * dx, factor * dy, factor * dz
            px[j] -= depth * dx
            py[j] -= depth * dy
            pz[j] -= depth * dz
            along = vx[j] * dx + vy[j] * dy + vz[j] * dz
            if along < zero:
                push = along * (slip + left)
                vx[j] = vx[j] * slip - push * dx
                vy[j] = vy[j] * slip - push * dy
                vz[j] = vz[j] * slip - push * dz


@jit
def landed(first: Any, last: Any, x: Any, v: Any, dt: Any, world: Any, row: Any) -> None:
    """A symplectic step without fields over one plane, in one pass. As there are two arrays, it becomes vector code."""
    gx, gy, gz, drag = world[0], world[1], world[2], world[3]
    nx, ny, nz, offset, left, slip, zero = row[1], row[2], row[3], row[4], row[7], ONE - row[8], np.float32(0)
    for j in range(np.uint64(first), np.uint64(last)):  # an index that may be negative would be checked
        vx, vy, vz = v[0, j], v[1, j], v[2, j]
        vx += (gx - drag * vx) * dt
        vy += (gy - drag * vy) * dt
        vz += (gz - drag * vz) * dt
        px, py, pz = x[0, j] + vx * dt, x[1, j] + vy * dt, x[2, j] + vz * dt
        depth = nx * px + ny * py + nz * pz - offset
        depth = min(depth, zero)
        along = vx * nx + vy * ny + vz * nz
        bounces = (depth < zero) & (along < zero)
        keep = slip if bounces else ONE
        push = along * (slip + left) if bounces else zero
        x[0, j], x[1, j], x[2, j] = px - depth * nx, py - depth * ny, pz - depth * nz
        v[0, j], v[1, j], v[2, j] = vx * keep - push * nx, vy * keep - push * ny, vz * keep - push * nz


@jit
def advanced(
    first: Any, last: Any, x: Any, v: Any, life: Any, mass: Any, dt: Any, world: Any, fields: Any, colliders: Any,
    method: Any, mortal: Any,
) -> None:  # fmt: skip
    falling = (
        method == 0 and not mortal and mass.shape[0] == 0 and fields.shape[0] == 1 and fields[0, 0] == np.float32(0)
    )
    if falling and colliders.shape[0] == 1 and colliders[0, 0] == ONE:
        landed(first, last, x, v, dt, world, colliders[0])
        return
    work = np.empty((8 if method == 2 else 1, 3, BLOCK), np.float32)
    for start in range(first, last, BLOCK):
        end = min(start + BLOCK, last)
        px, pv, lives, masses = rows(x, start, end), rows(v, start, end), life[start:end], mass[start:end]
        if mortal:
            for j in range(end - start):
                lives[j] -= dt
                if lives[j] <= np.float32(0):
                    pv[0][j] = pv[1][j] = pv[2][j] = np.float32(0)
        moved(px, pv, lives, masses, dt, world, fields, method, mortal, work)
        for c in range(colliders.shape[0]):
            if colliders[c, 0] != np.float32(0):
                stopped(px, pv, colliders[c])


def advance(
    x: Any, v: Any, life: Any, mass: Any, dt: Any, world: Any, fields: Any, colliders: Any, method: int, mortal: int
) -> None:
    """See :func:`.plain.advance`."""
    masses = NONE if mass is None else mass
    spread(advanced, x.shape[1], GRAIN, x, v, life, masses, np.float32(dt), world, fields, colliders, method, mortal)


@jit
def touched(
    first: Any, last: Any, x: Any, v: Any, life: Any, order: Any, starts: Any, out: Any, diameter: Any, stiffness: Any,
    damping: Any,
) -> None:  # fmt: skip
    zero = np.float32(0)
    for i in range(first, last):
        px, py, pz = x[0, i], x[1, i], x[2, i]
        cx, cy, cz = (
            np.int32(np.floor(px / diameter)),
            np.int32(np.floor(py / diameter)),
            np.int32(np.floor(pz / diameter)),
        )
        ax = ay = az = zero
        for n in range(27 if life[i] > zero else 0):
            ox, oy, oz = np.int32(cx + n // 9 - 1), np.int32(cy + n // 3 % 3 - 1), np.int32(cz + n % 3 - 1)
            where = np.int64(bucket(ox, oy, oz, starts.shape[0] - 1))
            for k in range(starts[where], starts[where + 1]):
                j = order[k]
                dx, dy, dz = px - x[0, j], py - x[1, j], pz - x[2, j]
                distance = np.sqrt(dx * dx + dy * dy + dz * dz)
                if distance >= diameter or distance <= TINY or life[j] <= zero:
                    continue
                if (
                    np.int32(np.floor(x[0, j] / diameter)) != ox
                    or np.int32(np.floor(x[1, j] / diameter)) != oy
                    or np.int32(np.floor(x[2, j] / diameter)) != oz
                ):
                    continue
                apart = (v[0, i] - v[0, j]) * dx + (v[1, i] - v[1, j]) * dy + (v[2, i] - v[2, j]) * dz
                push = max(stiffness * (diameter - distance) - damping * apart / distance, zero) / distance
                ax += push * dx
                ay += push * dy
                az += push * dz
        out[0, i], out[1, i], out[2, i] = ax, ay, az


def contacts(
    x: Any, v: Any, life: Any, order: Any, starts: Any, out: Any, diameter: Any, stiffness: Any, damping: Any
) -> None:
    """See :func:`.plain.contacts`."""
    spread(touched, x.shape[1], 1 << 11, x, v, life, order, starts, out, diameter, stiffness, damping)
