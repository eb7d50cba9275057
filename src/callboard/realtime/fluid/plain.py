"""A step of a fluid in NumPy: the reference for the kernels in CUDA.

Fields are f32 ``[d, h, w]``. ``u[a]`` is the velocity along axis ``a`` (x, y, z) at the lower face of each cell, in
metres a second, and ``open[a]`` is 1 where that face lets the fluid through, and 0 at walls. All indices are periodic:
the upper face of the last cell is the lower face of the first one, so walls are closed faces, and nothing else.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "advect", "correct", "curl", "diffuse", "divergence", "project", "prolong", "push", "rescale", "restrict", "smooth",
    "source", "swirl",
]  # fmt: skip

Floats = NDArray[np.float32]
CHECKS = 16
"""Places along a path at which it may meet a solid."""
REACH = 8.0
"""Most cells of a path where there are solids."""


def upper(field: Any, axis: int) -> Any:
    """The values of the next cells along an axis."""
    return np.roll(field, -1, -1 - axis)


def lower(field: Any, axis: int) -> Any:
    """The values of the cells before."""
    return np.roll(field, 1, -1 - axis)


# -- advection: MacCormack's method (Selle et al., 2008) ---------------------------------------------------------------


def corners(field: Floats, where: Any, stagger: int, periodic: int) -> tuple[list[Any], list[Any]]:
    """Values at the corners around places, and the parts of the way between them.

    Args:
        where: Places in cells, ``[axes, d, h, w]``; the middle of the first cell is 0.
        stagger: Axis at whose faces the field is; -1: in the middle of cells.
        periodic: A bit for each axis.
    """
    below, parts = [], []
    for axis in range(len(where)):
        extent = field.shape[-1 - axis]
        at = where[axis] + np.float32(0.5) if stagger == axis else where[axis]
        if not periodic >> axis & 1:
            at = np.clip(at, 0, np.float32(extent if stagger == axis else extent - 1))
        low = np.floor(at)
        below.append(low.astype("i4"))
        parts.append(at - low)
    found = []
    for n in range(1 << len(where)):
        index = [(below[axis] + (n >> axis & 1)) % field.shape[-1 - axis] for axis in range(len(where))]
        z = index[2] if len(where) == 3 else 0
        found.append(field[z, index[1], index[0]])
    return found, parts


def mixed(values: list[Any], parts: list[Any]) -> Any:
    """The corners' values, linear along each axis."""
    for part in parts:
        values = [a + part * (b - a) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def velocity(u: Floats, where: Any, periodic: int) -> Any:
    """At places."""
    return np.stack([mixed(*corners(u[axis], where, axis, periodic)) for axis in range(len(u))])


def trace(u: Floats, fluid: Any, stagger: int, scale: np.float32, periodic: int, solid: int) -> Any:
    """Where the fluid of each place of a field was, a step before: a midpoint step, cut where it meets a solid."""
    z, y, x = np.indices(u.shape[1:], "f4")
    start = np.stack([x, y, z][: len(u)])
    if stagger >= 0:
        start[stagger] -= np.float32(0.5)
    half = start - np.float32(0.5) * scale * velocity(u, start, periodic)
    way = -scale * velocity(u, half, periodic)
    if solid:
        length = np.sqrt((way * way).sum(0))
        way = way * (np.float32(REACH) / np.maximum(length, np.float32(REACH)))
        part = np.zeros_like(way[0])
        free = np.ones(part.shape, bool)
        for n in range(1, CHECKS + 1):
            cells = np.floor(start + np.float32(n / CHECKS) * way + np.float32(0.5)).astype("i4")
            for axis in range(len(u)):
                extent = u.shape[-1 - axis]
                cells[axis] = cells[axis] % extent if periodic >> axis & 1 else np.clip(cells[axis], 0, extent - 1)
            free &= fluid[cells[2] if len(u) == 3 else 0, cells[1], cells[0]] > 0
            part[free] = n / CHECKS
        way = way * part
    return start + way


def advect(
    u: Floats, fluid: Any, field: Floats, out: Floats, scale: np.float32, stagger: int, periodic: int, solid: int
) -> None:
    """Move fields ``[c, d, h, w]`` along ``u``, back in time where ``scale`` is negative.

    Args:
        scale: Seconds over the spacing.
        stagger: 1 if field ``c`` is at the faces of axis ``c``.
    """
    where = None if stagger else trace(u, fluid, -1, scale, periodic, solid)
    for c in range(len(field)):
        start = trace(u, fluid, c, scale, periodic, solid) if where is None else where
        out[c] = mixed(*corners(field[c], start, c if stagger else -1, periodic))


def correct(
    u: Floats, fluid: Any, field: Floats, ahead: Floats, back: Floats, out: Floats, scale: np.float32, stagger: int,
    periodic: int, solid: int,
) -> None:  # fmt: skip
    """Take half of the error of ``advect`` there and back from ``ahead``, within the range of its corners."""
    where = None if stagger else trace(u, fluid, -1, scale, periodic, solid)
    for c in range(len(field)):
        start = trace(u, fluid, c, scale, periodic, solid) if where is None else where
        values, _ = corners(field[c], start, c if stagger else -1, periodic)
        low, high = np.minimum.reduce(values), np.maximum.reduce(values)
        out[c] = np.clip(ahead[c] + np.float32(0.5) * (field[c] - back[c]), low, high)


def rescale(dye: Floats, before: Floats, after: Floats, fluid: Any, dt: np.float32, fading: np.float32) -> None:
    """Give each dye the total that it had, less what fades; there is none in solids."""
    for c in range(len(dye)):
        factor = before[c] / after[c] if before[c] * after[c] > 0 else np.float32(1)
        dye[c] *= fluid * np.clip(factor, np.float32(0.5), np.float32(2)) / (1 + fading * dt)


# -- forces ------------------------------------------------------------------------------------------------------------


def middle(u: Floats, axis: int) -> Any:
    """A component of the velocity in the middle of cells."""
    return np.float32(0.5) * (u[axis] + upper(u[axis], axis))


def slope(field: Any, open_: Floats, axis: int) -> Any:
    """Change from the cell before to the next one; a wall's other side counts as this side."""
    ahead = np.where(upper(open_[axis], axis) > 0, upper(field, axis), field)
    return np.float32(0.5) * (ahead - np.where(open_[axis] > 0, lower(field, axis), field))


def curl(u: Floats, open_: Floats, out: Floats) -> None:
    """Vorticity times the spacing, ``[3, d, h, w]``."""
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        first = slope(middle(u, c), open_, b) if c < len(u) and b < len(u) else np.float32(0)
        out[a] = first - (slope(middle(u, b), open_, c) if c < len(u) and b < len(u) else np.float32(0))


def swirl(w: Floats, open_: Floats, force: Floats, strength: np.float32) -> None:
    """Confinement (Fedkiw, Stam and Jensen, 2001): a force around each vortex, ``[axes, d, h, w]``."""
    size = np.sqrt((w * w).sum(0))
    n = np.zeros_like(w)
    for axis in range(len(force)):
        n[axis] = slope(size, open_, axis)
    n /= np.sqrt((n * n).sum(0)) + np.float32(1e-6)
    for a in range(len(force)):
        b, c = (a + 1) % 3, (a + 2) % 3
        force[a] = strength * (n[b] * w[c] - n[c] * w[b])


def push(u: Floats, open_: Floats, dye: Floats, force: Floats, buoyancy: Floats, dt: np.float32) -> None:
    """Add forces to the velocities of open faces, and stop those of closed ones."""
    lift = (buoyancy[:, None, None, None] * dye).sum(0)
    for axis in range(len(u)):
        f = force[axis] + lift if axis == 1 else force[axis]
        u[axis] = open_[axis] * (u[axis] + dt * np.float32(0.5) * (f + lower(f, axis)))


def source(
    u: Floats, open_: Floats, dye: Floats, fluid: Any, rows: Floats, dt: np.float32, spacing: np.float32
) -> None:
    """Add dye and velocity in balls: rows of centre, radius, dye, channel, acceleration."""
    places = [(one + np.float32(0.5)) * spacing for one in np.indices(fluid.shape, "f4")[::-1]]
    for row in rows:
        away = sum((places[axis] - row[axis]) ** 2 for axis in range(len(u)))
        inside = np.where(away < row[3] * row[3], fluid, np.float32(0))
        dye[int(row[5])] += dt * row[4] * inside
        for axis in range(len(u)):
            u[axis] += open_[axis] * (dt * np.float32(0.5) * row[6 + axis] * (inside + lower(inside, axis)))


@functools.cache
def colours(shape: tuple[int, ...], odd: int) -> Any:
    """Neighbours have different colours, also across the ends: 2, or 3 if there is an odd axis.

    Args:
        odd: A bit for each periodic axis with an odd extent.
    """
    total: Any = 0
    for axis, at in enumerate(np.indices(shape)[::-1]):
        last = (odd >> axis & 1) * (at == shape[-1 - axis] - 1)
        total = total + np.where(last, 2, at & 1)
    return total % (3 if odd else 2)


def diffuse(u: Floats, before: Floats, open_: Floats, rate: np.float32, odd: int, colour: int) -> None:
    """One colour of a Gauss-Seidel sweep of ``u - rate * laplacian(u) = before``; fluid slips along walls."""
    mine = colours(u.shape[1:], odd) == colour
    for a in range(len(u)):
        total, weight = before[a].copy(), np.ones_like(u[a])
        for b in range(len(u)):
            pass_ = np.ones_like(u[a]) if a == b else open_[b] * lower(open_[b], a)
            above = upper(pass_, b)
            total += rate * (above * upper(u[a], b) + pass_ * lower(u[a], b))
            weight += rate * (above + pass_)
        u[a][mine] = (open_[a] * total / weight)[mine]


# -- pressure: multigrid on a Laplacian with weights of faces ----------------------------------------------------------


def divergence(u: Floats, out: Floats) -> None:
    """What leaves each cell, times the spacing."""
    out[...] = sum(upper(u[axis], axis) - u[axis] for axis in range(len(u)))


def around(p: Floats, weights: Floats) -> tuple[Any, Any]:
    """The weighted sum of the neighbours, and the sum of the weights."""
    total, weight = np.zeros_like(p), np.zeros_like(p)
    for axis in range(len(weights)):
        above = upper(weights[axis], axis)
        total += above * upper(p, axis) + weights[axis] * lower(p, axis)
        weight += above + weights[axis]
    return total, weight


def smooth(p: Floats, b: Floats, weights: Floats, odd: int, colour: int) -> None:
    """One colour of a Gauss-Seidel sweep of ``laplacian(p) = b``."""
    total, weight = around(p, weights)
    mine = (colours(p.shape, odd) == colour) & (weight > 0)
    p[mine] = (total - b)[mine] / weight[mine]


def restrict(p: Floats, b: Floats, weights: Floats, coarse: Floats, start: Floats) -> None:
    """The residual of each coarse cell, and zeros to start with."""
    total, weight = around(p, weights)
    rest = b - (total - weight * p)
    factors = _factors(rest.shape, coarse.shape)
    padded = np.zeros([n * f for n, f in zip(coarse.shape, factors, strict=True)], "f4")
    padded[tuple(map(slice, rest.shape))] = rest
    split = [part for n, f in zip(coarse.shape, factors, strict=True) for part in (n, f)]
    coarse[...] = padded.reshape(split).sum((1, 3, 5))
    start[...] = 0


def prolong(p: Floats, coarse: Floats, weights: Floats) -> None:
    """Add the coarse solution, linear between the middles of coarse cells that have an open face.

    Args:
        weights: Of the coarse faces.
    """
    factors = _factors(p.shape, coarse.shape)
    index = np.ix_(*(np.arange(n) // f for n, f in zip(p.shape, factors, strict=True)))
    p += coarse[index]
    places = np.indices(p.shape)[::-1]
    for axis in range(len(weights)):
        if factors[2 - axis] == 1:
            continue
        above = upper(weights[axis], axis) > 0
        ahead = np.where(above, upper(coarse, axis) - coarse, np.float32(0))
        behind = np.where(weights[axis] > 0, lower(coarse, axis) - coarse, np.float32(0))
        p += np.float32(0.25) * np.where(places[axis] & 1, ahead[index], behind[index])


def _factors(fine: tuple[int, ...], coarse: tuple[int, ...]) -> list[int]:
    return [1 if a == b else 2 for a, b in zip(fine, coarse, strict=True)]


def project(u: Floats, p: Floats, open_: Floats) -> None:
    """Take the gradient of the pressure from the velocities."""
    for axis in range(len(u)):
        u[axis] -= open_[axis] * (p - lower(p, axis))
