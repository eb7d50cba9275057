"""A step of particles compiled by Numba: as :mod:`.plain`, block by block, with loops that become vector code."""

from typing import Any

import numpy as np

from callboard.realtime.base.engines import jit

__all__ = ["advance"]

BLOCK = 512
ONE, HALF, TWO, SIXTH, TINY = np.float32(1), np.float32(0.5), np.float32(2), np.float32(1 / 6), np.float32(1e-12)


@jit
def accelerations(x: Any, v: Any, life: Any, world: Any, fields: Any, mortal: Any, a: Any) -> None:
    size = x.shape[1]
    for axis in range(3):
        gravity, drag, of, to = world[axis], world[3], v[axis], a[axis]
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
                ax[j] += s * (ox - v[0, j])
                ay[j] += s * (oy - v[1, j])
                az[j] += s * (oz - v[2, j])
    if mortal:
        for j in range(size):
            if life[j] <= np.float32(0):
                ax[j] = ay[j] = az[j] = np.float32(0)


@jit
def sum_of(x: Any, a: Any, factor: Any, out: Any) -> None:
    """``out = x + a * factor``; may be in place."""
    for axis in range(3):
        p, q, r = x[axis], a[axis], out[axis]
        for j in range(p.shape[0]):
            r[j] = p[j] + q[j] * factor


@jit
def moved(x: Any, v: Any, life: Any, dt: Any, world: Any, fields: Any, method: Any, mortal: Any, work: Any) -> None:
    size = x.shape[1]
    a = work[0, :, :size]
    half = HALF * dt
    accelerations(x, v, life, world, fields, mortal, a)
    if method == 0:
        sum_of(v, a, dt, v)
        sum_of(x, v, dt, x)
    elif method == 1:
        sum_of(v, a, half, v)
        sum_of(x, v, dt, x)
        accelerations(x, v, life, world, fields, mortal, a)
        sum_of(v, a, half, v)
    else:
        b, c, d, va = work[1, :, :size], work[2, :, :size], work[3, :, :size], work[4, :, :size]
        vb, vc, at = work[5, :, :size], work[6, :, :size], work[7, :, :size]
        sum_of(v, a, half, va)
        sum_of(x, v, half, at)
        accelerations(at, va, life, world, fields, mortal, b)
        sum_of(v, b, half, vb)
        sum_of(x, va, half, at)
        accelerations(at, vb, life, world, fields, mortal, c)
        sum_of(v, c, dt, vc)
        sum_of(x, vb, dt, at)
        accelerations(at, vc, life, world, fields, mortal, d)
        sixth = dt * SIXTH
        for axis in range(3):
            for j in range(size):
                x[axis, j] += (v[axis, j] + TWO * va[axis, j] + TWO * vb[axis, j] + vc[axis, j]) * sixth
                v[axis, j] += (a[axis, j] + TWO * b[axis, j] + TWO * c[axis, j] + d[axis, j]) * sixth


@jit
def stopped(x: Any, v: Any, row: Any) -> None:
    size = x.shape[1]
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
    nx, ny, nz = row[1], row[2], row[3]
    sign = -ONE if kind == np.float32(3) else ONE
    for j in range(size):
        if kind == ONE:
            depth = nx * px[j] + ny * py[j] + nz * pz[j] - row[4]
            if depth >= zero:
                continue
        elif kind == np.float32(2) or kind == np.float32(3):
            nx, ny, nz = px[j] - row[1], py[j] - row[2], pz[j] - row[3]
            distance = np.sqrt(nx * nx + ny * ny + nz * nz)
            depth = sign * (distance - row[4])
            if depth >= zero:
                continue
            factor = sign / max(distance, TINY)
            nx, ny, nz = factor * nx, factor * ny, factor * nz
        else:
            continue
        px[j] -= depth * nx
        py[j] -= depth * ny
        pz[j] -= depth * nz
        along = vx[j] * nx + vy[j] * ny + vz[j] * nz
        if along < zero:
            vx[j] = (vx[j] - along * nx) * slip - left * along * nx
            vy[j] = (vy[j] - along * ny) * slip - left * along * ny
            vz[j] = (vz[j] - along * nz) * slip - left * along * nz


@jit
def advanced(
    x: Any, v: Any, life: Any, dt: Any, world: Any, fields: Any, colliders: Any, method: Any, mortal: Any
) -> None:
    work = np.empty((8 if method == 2 else 1, 3, BLOCK), np.float32)
    for start in range(0, x.shape[1], BLOCK):
        end = min(start + BLOCK, x.shape[1])
        lives = life[start:end]
        if mortal:
            for j in range(end - start):
                lives[j] -= dt
                if lives[j] <= np.float32(0):
                    v[0, start + j] = v[1, start + j] = v[2, start + j] = np.float32(0)
        moved(x[:, start:end], v[:, start:end], lives, dt, world, fields, method, mortal, work)
        for c in range(colliders.shape[0]):
            if colliders[c, 0] != np.float32(0):
                stopped(x[:, start:end], v[:, start:end], colliders[c])


def advance(
    x: Any, v: Any, life: Any, dt: Any, world: Any, fields: Any, colliders: Any, method: int, mortal: int
) -> None:
    """See :func:`.plain.advance`."""
    advanced(x, v, life, np.float32(dt), world, fields, colliders, method, mortal)
