"""A step of a fluid compiled by Numba: as :mod:`.plain`, cell by cell."""

from typing import Any

import numpy as np

from callboard.realtime.base.cpu.jit import jit, jit_inlined
from callboard.realtime.base.cpu.vectors import LANES, lanes
from callboard.realtime.fluid.advection import advect, correct, near

__all__ = [
    "advect", "correct", "curl", "diffuse", "divergence", "project", "prolong", "push", "rescale", "restrict", "smooth",
    "source", "swirl",
]  # fmt: skip

ZERO, QUARTER, HALF, ONE, TWO = np.float32(0), np.float32(0.25), np.float32(0.5), np.float32(1), np.float32(2)
TINY, UNIT = np.float32(1e-6), np.uint64(1)


@jit
def rescale(dye: Any, before: Any, after: Any, fluid: Any, dt: Any, fading: Any) -> None:
    """Give each dye the total that it had, less what fades."""
    for c in range(dye.shape[0]):
        factor = before[c] / after[c] if before[c] * after[c] > ZERO else ONE
        factor = min(max(factor, HALF), TWO) / (ONE + fading * dt)
        for i in range(dye.shape[1]):
            dye[c, i] *= fluid[i] * factor


# -- forces ------------------------------------------------------------------------------------------------------------


@jit_inlined
def _next(k: Any, j: Any, i: Any, axis: Any, by: Any, shape: Any) -> Any:
    """The next cell along an axis."""
    if axis == 0:
        return k, j, near(i + by, shape[2])
    if axis == 1:
        return k, near(j + by, shape[1]), i
    return near(k + by, shape[0]), j, i


@jit_inlined
def _middle(u: Any, axis: Any, at: Any) -> Any:
    to = _next(at[0], at[1], at[2], axis, 1, u.shape[1:])
    return HALF * (u[axis, at[0], at[1], at[2]] + u[axis, to[0], to[1], to[2]])


@jit_inlined
def _ends(open_: Any, k: Any, j: Any, i: Any, axis: Any) -> Any:
    """The cells after and before along an axis; the cell itself where there is a wall."""
    here = (k, j, i)
    up, down = _next(k, j, i, axis, 1, open_.shape[1:]), _next(k, j, i, axis, -1, open_.shape[1:])
    if not open_[axis, up[0], up[1], up[2]] > ZERO:
        up = here
    if not open_[axis, k, j, i] > ZERO:
        down = here
    return up, down


@jit
def curl(u: Any, open_: Any, out: Any) -> None:
    """Vorticity times the spacing."""
    axes, d, h, w = u.shape
    for k in range(d):
        for j in range(h):
            for i in range(w):
                for a in range(3):
                    b, c = (a + 1) % 3, (a + 2) % 3
                    out[a, k, j, i] = ZERO
                    if b < axes and c < axes:
                        up, down = _ends(open_, k, j, i, b)
                        first = HALF * (_middle(u, c, up) - _middle(u, c, down))
                        up, down = _ends(open_, k, j, i, c)
                        out[a, k, j, i] = first - HALF * (_middle(u, b, up) - _middle(u, b, down))


@jit_inlined
def _size(w: Any, at: Any) -> Any:
    x, y, z = w[0, at[0], at[1], at[2]], w[1, at[0], at[1], at[2]], w[2, at[0], at[1], at[2]]
    return np.sqrt(x * x + y * y + z * z)


@jit
def swirl(vorticity: Any, open_: Any, force: Any, strength: Any) -> None:
    """Confinement of vortices."""
    axes, d, h, w = force.shape
    n = np.zeros(3, np.float32)
    for k in range(d):
        for j in range(h):
            for i in range(w):
                for a in range(axes):
                    up, down = _ends(open_, k, j, i, a)
                    n[a] = HALF * (_size(vorticity, up) - _size(vorticity, down))
                length = np.sqrt(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]) + TINY
                for a in range(axes):
                    b, c = (a + 1) % 3, (a + 2) % 3
                    turn = n[b] / length * vorticity[c, k, j, i] - n[c] / length * vorticity[b, k, j, i]
                    force[a, k, j, i] = strength * turn


@jit
def push(u: Any, open_: Any, dye: Any, force: Any, buoyancy: Any, dt: Any) -> None:
    """Add forces."""
    axes, d, h, w = u.shape
    for a in range(axes):
        for k in range(d):
            for j in range(h):
                for i in range(w):
                    z, y, x = _next(k, j, i, a, -1, u.shape[1:])
                    here, before = force[a, k, j, i], force[a, z, y, x]
                    if a == 1:
                        for c in range(dye.shape[0]):
                            here += buoyancy[c] * dye[c, k, j, i]
                            before += buoyancy[c] * dye[c, z, y, x]
                    u[a, k, j, i] = open_[a, k, j, i] * (u[a, k, j, i] + dt * HALF * (here + before))


@jit
def source(u: Any, open_: Any, dye: Any, fluid: Any, rows: Any, dt: Any, spacing: Any) -> None:
    """Add dye and velocity in balls."""
    axes, d, h, w = u.shape
    for n in range(len(rows)):
        row = rows[n]
        for k in range(d):
            for j in range(h):
                for i in range(w):
                    dx, dy = (np.float32(i) + HALF) * spacing - row[0], (np.float32(j) + HALF) * spacing - row[1]
                    dz = (np.float32(k) + HALF) * spacing - row[2] if axes == 3 else ZERO
                    if dx * dx + dy * dy + dz * dz < row[3] * row[3] and fluid[k, j, i] > ZERO:
                        dye[int(row[5]), k, j, i] += dt * row[4]
                        for a in range(axes):
                            z, y, x = _next(k, j, i, a, 1, fluid.shape)
                            u[a, k, j, i] += open_[a, k, j, i] * dt * HALF * row[6 + a]
                            u[a, z, y, x] += open_[a, z, y, x] * dt * HALF * row[6 + a]


@jit_inlined
def _colour(k: Any, j: Any, i: Any, shape: Any, odd: Any) -> Any:
    if odd == 0:
        return (i + j + k) & 1
    x = 2 if odd & 1 and i == shape[2] - 1 else i & 1
    y = 2 if odd & 2 and j == shape[1] - 1 else j & 1
    z = 2 if odd & 4 and k == shape[0] - 1 else k & 1
    return (x + y + z) % 3


@jit
def diffuse(u: Any, before: Any, open_: Any, rate: Any, odd: Any, colour: Any) -> None:
    """One colour of a sweep of the viscosity."""
    axes, d, h, w = u.shape
    for k in range(d):
        for j in range(h):
            for i in range(w):
                if _colour(k, j, i, u.shape[1:], odd) != colour:
                    continue
                for a in range(axes):
                    total, weight = before[a, k, j, i], ONE
                    for b in range(axes):
                        up = _next(k, j, i, b, 1, u.shape[1:])
                        down = _next(k, j, i, b, -1, u.shape[1:])
                        above = below = ONE
                        if a != b:
                            beside = _next(k, j, i, a, -1, u.shape[1:])
                            under = _next(up[0], up[1], up[2], a, -1, u.shape[1:])
                            above = open_[b, up[0], up[1], up[2]] * open_[b, under[0], under[1], under[2]]
                            below = open_[b, k, j, i] * open_[b, beside[0], beside[1], beside[2]]
                        total += rate * (above * u[a, up[0], up[1], up[2]] + below * u[a, down[0], down[1], down[2]])
                        weight += rate * (above + below)
                    u[a, k, j, i] = open_[a, k, j, i] * total / weight


# -- pressure ----------------------------------------------------------------------------------------------------------


@jit
def divergence(u: Any, out: Any) -> None:
    """What leaves each cell."""
    axes, d, h, w = u.shape
    for k in range(d):
        up = k + 1 if k + 1 < d else 0
        for j in range(h):
            above = j + 1 if j + 1 < h else 0
            for i in range(w):
                right = i + 1 if i + 1 < w else 0
                total = u[0, k, j, right] - u[0, k, j, i] + u[1, k, above, i] - u[1, k, j, i]
                if axes == 3:
                    total += u[2, up, j, i] - u[2, k, j, i]
                out[k, j, i] = total


@jit_inlined
def _around(p: Any, o: Any, k: Any, j: Any, i: Any) -> Any:
    """The weighted sum of the neighbours, and the sum of the weights."""
    axes, d, h, w = o.shape
    r, t = (i + 1 if i + 1 < w else 0), (j + 1 if j + 1 < h else 0)
    le, b = (i - 1 if i > 0 else w - 1), (j - 1 if j > 0 else h - 1)
    total = (
        o[0, k, j, r] * p[k, j, r]
        + o[0, k, j, i] * p[k, j, le]
        + (o[1, k, t, i] * p[k, t, i] + o[1, k, j, i] * p[k, b, i])
    )
    weight = o[0, k, j, r] + o[0, k, j, i] + (o[1, k, t, i] + o[1, k, j, i])
    if axes == 3:
        up, down = (k + 1 if k + 1 < d else 0), (k - 1 if k > 0 else d - 1)
        total += o[2, up, j, i] * p[up, j, i] + o[2, k, j, i] * p[down, j, i]
        weight += o[2, up, j, i] + o[2, k, j, i]
    return total, weight


@jit
def smooth(p: Any, b: Any, weights: Any, odd: Any, colour: Any) -> None:
    """One colour of a sweep of the pressure."""
    axes = weights.shape[0]
    d, h, w = p.shape
    got = lanes()
    for k in range(d):
        for j in range(h):
            if odd == 0 and axes == 2 and w > 1:
                above, under = j + 1 if j + 1 < h else 0, j - 1 if j > 0 else h - 1
                row, high, low, given = p[k, j], p[k, above], p[k, under], b[k, j]
                beside, below, over = weights[0, k, j], weights[1, k, j], weights[1, k, above]
                mine = (colour - j - k) & 1
                for begin in range(1, w - 1, LANES):
                    m = min(LANES, w - 1 - begin)
                    for n in range(m):  # both colours: all lanes do the same
                        i = np.uint64(begin + n)
                        total = beside[i + UNIT] * row[i + UNIT] + beside[i] * row[i - UNIT]
                        total += over[i] * high[i] + below[i] * low[i]
                        weight = beside[i + UNIT] + beside[i] + (over[i] + below[i])
                        keeps = weight <= ZERO or ((begin + n) & 1) != mine
                        got[n] = row[i] if keeps else (total - given[i]) / weight
                    for n in range(m):
                        row[begin + n] = got[n]
                for end in (0, w - 1):
                    if end & 1 == mine:
                        total, weight = _around(p, weights, k, j, end)
                        if weight > ZERO:
                            row[end] = (total - given[end]) / weight
                continue
            first, step = ((colour - j - k) & 1, 2) if odd == 0 else (0, 1)
            for at in range(first, w, step):
                if odd and _colour(k, j, at, p.shape, odd) != colour:
                    continue
                total, weight = _around(p, weights, k, j, at)
                if weight > ZERO:
                    p[k, j, at] = (total - b[k, j, at]) / weight


@jit
def restrict(p: Any, b: Any, weights: Any, coarse: Any, start: Any) -> None:
    """The residual of coarse cells, and zeros to start with."""
    d, h, w = p.shape
    coarse[:] = ZERO
    start[:] = ZERO
    fz, fy, fx = d != coarse.shape[0], h != coarse.shape[1], w != coarse.shape[2]
    for k in range(d):
        for j in range(h):
            for i in range(w):
                total, weight = _around(p, weights, k, j, i)
                coarse[k >> fz, j >> fy, i >> fx] += b[k, j, i] - (total - weight * p[k, j, i])


@jit
def _prolong_plane(p: Any, coarse: Any, beside: Any, below: Any) -> None:
    """As :func:`prolong`, some cells of a row at once."""
    (h, w), (height, width) = p.shape, coarse.shape
    got = lanes()
    for j in range(h):
        face = near((j + 1) // 2, height)  # between this cell's coarse one and the next
        row, other = coarse[j // 2], coarse[near((j + 1) // 2 - 1 + (j & 1), height)]
        aside, under = beside[j // 2], below[face]
        for begin in range(0, w, LANES):
            m = min(LANES, w - begin)
            for n in range(m):
                i = np.uint64(begin + n)
                x, after = i >> UNIT, (i + UNIT) >> UNIT
                xx = after + (i & UNIT)
                xx = xx - UNIT if xx > np.uint64(0) else np.uint64(width) - UNIT
                xx = xx if xx < np.uint64(width) else np.uint64(0)
                after = after if after < np.uint64(width) else np.uint64(0)
                here = row[x]
                along = QUARTER * (row[xx] - here)
                across = QUARTER * (other[x] - here)
                value = here + (along if aside[after] > ZERO else ZERO)
                got[n] = value + (across if under[x] > ZERO else ZERO)
            for n in range(m):
                p[j, begin + n] += got[n]


@jit
def prolong(p: Any, coarse: Any, weights: Any) -> None:
    """Add the coarse solution."""
    shape, extents = p.shape, coarse.shape
    if weights.shape[0] == 2 and shape[1] != extents[1] and shape[2] != extents[2]:
        _prolong_plane(p[0], coarse[0], weights[0, 0], weights[1, 0])
        return
    for k in range(shape[0]):
        z = k if shape[0] == extents[0] else k // 2
        for j in range(shape[1]):
            y = j if shape[1] == extents[1] else j // 2
            for i in range(shape[2]):
                x = i if shape[2] == extents[2] else i // 2
                here = coarse[z, y, x]
                value = here
                for a in range(weights.shape[0]):
                    n = i if a == 0 else j if a == 1 else k
                    if shape[2 - a] == extents[2 - a]:
                        continue
                    zz, yy, xx = _next(z, y, x, a, 1 if n & 1 else -1, extents)
                    open_ = weights[a, zz, yy, xx] if n & 1 else weights[a, z, y, x]
                    if open_ > ZERO:
                        value += QUARTER * (coarse[zz, yy, xx] - here)
                p[k, j, i] += value


@jit
def project(u: Any, p: Any, open_: Any) -> None:
    """Take the gradient of the pressure."""
    axes, d, h, w = u.shape
    for a in range(axes):
        for k in range(d):
            for j in range(h):
                for i in range(w):
                    z, y, x = _next(k, j, i, a, -1, p.shape)
                    u[a, k, j, i] -= open_[a, k, j, i] * (p[k, j, i] - p[z, y, x])
