"""A step of cloth compiled by Numba: as :mod:`.plain`, particle by particle and spring by spring."""

from typing import Any

import numpy as np

from callboard.realtime.base.cpu.jit import jit

__all__ = ["apart", "begins", "buckets", "finish", "predict", "solve", "stop", "torn"]

ZERO, ONE, TINY, SIX = np.float32(0), np.float32(1), np.float32(1e-12), np.float32(6)


@jit
def predict(x: Any, v: Any, q: Any, w: Any, free: Any, fan_starts: Any, fans: Any, h: Any, world: Any) -> None:
    """Where particles would be after a substep without springs."""
    keep = ONE / (ONE + world[3] * h)
    for i in range(x.shape[1]):
        if free[i] == ZERO:
            for axis in range(3):
                v[axis, i] = ZERO
                q[axis, i] = x[axis, i]
            continue
        ax, ay, az = world[0], world[1], world[2]
        if world[7] != ZERO:
            rx, ry, rz = world[4] - v[0, i], world[5] - v[1, i], world[6] - v[2, i]
            fx = fy = fz = ZERO
            for k in range(fan_starts[i], fan_starts[i + 1]):
                a, b = fans[0, k], fans[1, k]
                px, py, pz = x[0, a] - x[0, i], x[1, a] - x[1, i], x[2, a] - x[2, i]
                sx, sy, sz = x[0, b] - x[0, i], x[1, b] - x[1, i], x[2, b] - x[2, i]
                cx, cy, cz = py * sz - pz * sy, pz * sx - px * sz, px * sy - py * sx
                size = max(np.sqrt(cx * cx + cy * cy + cz * cz), TINY)
                push = world[7] / SIX * (rx * cx + ry * cy + rz * cz) / size
                fx += push * cx
                fy += push * cy
                fz += push * cz
            ax += w[i] * fx
            ay += w[i] * fy
            az += w[i] * fz
        v[0, i] = v[0, i] * keep + h * ax
        v[1, i] = v[1, i] * keep + h * ay
        v[2, i] = v[2, i] * keep + h * az
        for axis in range(3):
            q[axis, i] = x[axis, i] + h * v[axis, i]


@jit
def solve(
    q: Any, load: Any, springs: Any, rest: Any, kinds: Any, w: Any, free: Any, compliance: Any, h: Any, part: Any,
    again: Any,
) -> None:  # fmt: skip
    """Bring the springs of a colour closer to their lengths at rest."""
    for c in range(part.start, part.stop):
        i, j = springs[0, c], springs[1, c]
        wi, wj = w[i] * free[i], w[j] * free[j]
        before = load[c] if again != 0 else ZERO
        dx, dy, dz = q[0, i] - q[0, j], q[1, i] - q[1, j], q[2, i] - q[2, j]
        length = np.sqrt(dx * dx + dy * dy + dz * dz)
        if wi + wj <= ZERO or rest[c] < ZERO or length <= TINY:
            load[c] = before
            continue
        give = compliance[kinds[c]]
        change = (rest[c] - length - give * before) / (wi + wj + give / (h * h))
        load[c] = before + change / (h * h)
        scale = change / length
        q[0, i] += wi * scale * dx
        q[1, i] += wi * scale * dy
        q[2, i] += wi * scale * dz
        q[0, j] -= wj * scale * dx
        q[1, j] -= wj * scale * dy
        q[2, j] -= wj * scale * dz


@jit
def stop(q: Any, x: Any, free: Any, colliders: Any, margin: Any) -> None:
    """Put particles out of obstacles."""
    for r in range(colliders.shape[0]):
        row = colliders[r]
        if row[0] == ZERO:
            continue
        sign = -ONE if row[0] == np.float32(3) else ONE
        for i in range(q.shape[1]):
            if free[i] == ZERO:
                continue
            if row[0] == ONE:
                nx, ny, nz = row[1], row[2], row[3]
                depth = q[0, i] * nx + q[1, i] * ny + q[2, i] * nz - row[4]
            else:
                nx, ny, nz = q[0, i] - row[1], q[1, i] - row[2], q[2, i] - row[3]
                distance = np.sqrt(nx * nx + ny * ny + nz * nz)
                depth = sign * (distance - row[4])
                factor = sign / max(distance, TINY)
                nx, ny, nz = nx * factor, ny * factor, nz * factor
            if depth >= margin:
                continue
            out = margin - depth
            px, py, pz = q[0, i] + out * nx, q[1, i] + out * ny, q[2, i] + out * nz
            wx, wy, wz = px - x[0, i], py - x[1, i], pz - x[2, i]
            along = wx * nx + wy * ny + wz * nz
            q[0, i] = px - row[8] * (wx - along * nx)
            q[1, i] = py - row[8] * (wy - along * ny)
            q[2, i] = pz - row[8] * (wz - along * nz)


@jit
def finish(x: Any, v: Any, q: Any, h: Any) -> None:
    """The substep is done."""
    for axis in range(3):
        for i in range(x.shape[1]):
            v[axis, i] = (q[axis, i] - x[axis, i]) / h
            x[axis, i] = q[axis, i]


@jit
def torn(rest: Any, load: Any, x: Any, springs: Any, most: Any) -> None:
    """Break springs that are too long."""
    for c in range(rest.shape[0]):
        i, j = springs[0, c], springs[1, c]
        dx, dy, dz = x[0, i] - x[0, j], x[1, i] - x[1, j], x[2, i] - x[2, j]
        if rest[c] > ZERO and np.sqrt(dx * dx + dy * dy + dz * dz) > most * rest[c]:
            rest[c] = -rest[c]
            load[c] = ZERO


@jit
def bucket(x: Any, y: Any, z: Any, size: Any) -> Any:
    mixed = np.uint32(x) * np.uint32(73856093) ^ np.uint32(y) * np.uint32(19349663) ^ np.uint32(z) * np.uint32(83492791)
    return np.uint32(mixed) & np.uint32(size - 1)


@jit
def buckets(q: Any, key: Any, cell: Any, size: Any) -> None:
    """The bucket of the cell in which each particle is."""
    for i in range(q.shape[1]):
        x, y, z = np.floor(q[0, i] / cell), np.floor(q[1, i] / cell), np.floor(q[2, i] / cell)
        key[i] = bucket(np.int32(x), np.int32(y), np.int32(z), size)


@jit
def begins(keys: Any, starts: Any) -> None:
    """Where each bucket begins in the sorted keys."""
    at = 0
    for bucket_ in range(starts.shape[0]):
        while at < keys.shape[0] and keys[at] < bucket_:
            at += 1
        starts[bucket_] = at


@jit
def apart(q: Any, out: Any, order: Any, starts: Any, home: Any, w: Any, free: Any, thickness: Any) -> None:
    """Move particles away from those that are too near."""
    for i in range(q.shape[1]):
        cx = np.int32(np.floor(q[0, i] / thickness))
        cy = np.int32(np.floor(q[1, i] / thickness))
        cz = np.int32(np.floor(q[2, i] / thickness))
        wi = w[i] * free[i]
        px = py = pz = many = ZERO
        for n in range(27 if wi > ZERO else 0):
            x, y, z = np.int32(cx + n // 9 - 1), np.int32(cy + n // 3 % 3 - 1), np.int32(cz + n % 3 - 1)
            where = np.int64(bucket(x, y, z, starts.shape[0] - 1))
            for k in range(starts[where], starts[where + 1]):
                j = order[k]
                dx, dy, dz = q[0, i] - q[0, j], q[1, i] - q[1, j], q[2, i] - q[2, j]
                distance = np.sqrt(dx * dx + dy * dy + dz * dz)
                if distance >= thickness or distance <= TINY:
                    continue
                if (
                    np.int32(np.floor(q[0, j] / thickness)) != x
                    or np.int32(np.floor(q[1, j] / thickness)) != y
                    or np.int32(np.floor(q[2, j] / thickness)) != z
                ):
                    continue
                hx, hy, hz = home[0, i] - home[0, j], home[1, i] - home[1, j], home[2, i] - home[2, j]
                if hx * hx + hy * hy + hz * hz < thickness * thickness:
                    continue
                share = (thickness / distance - ONE) * wi / (wi + w[j] * free[j])
                px += share * dx
                py += share * dy
                pz += share * dz
                many += ONE
        many = max(many, ONE)
        out[0, i] = q[0, i] + px / many
        out[1, i] = q[1, i] + py / many
        out[2, i] = q[2, i] + pz / many
