"""Moving fields along a flow, compiled by Numba: as :mod:`.plain`, cell by cell, on several threads.

A flow in a plane has code of its own, whose loops become vector code: about five times as fast as the general one.
"""

from typing import Any

import numpy as np

from callboard.realtime.base.cpu.engines import spread
from callboard.realtime.base.cpu.jit import jit, jit_inlined
from callboard.realtime.base.cpu.vectors import LANES, lanes

__all__ = ["advect", "correct", "near"]

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
REACH, CHECKS = np.float32(8), np.float32(16)
GRAIN = 1 << 12
"""Cells of a thread at least."""


@jit_inlined
def near(n: Any, extent: Any) -> Any:
    """Index of a cell that is at most one beyond the ends."""
    return n + extent if n < 0 else n - extent if n >= extent else n


@jit_inlined
def _corner(at: Any, stagger: Any, extent: Any, periodic: Any) -> Any:
    """Cells below and above a place along an axis, and the part of the way."""
    if stagger:
        at += HALF
    if periodic:
        low = np.floor(at)
        part = np.float32(at - low)
        first = int(low) % extent
    else:
        at = min(max(at, ZERO), np.float32(extent if stagger else extent - 1))
        low = np.floor(at)
        part = np.float32(at - low)
        first = near(int(low), extent)
    return first, first + 1 if first + 1 < extent else 0, part


@jit
def _sample(f: Any, n: Any, x: Any, y: Any, z: Any, stagger: Any, periodic: Any, axes: Any) -> Any:
    """The value at a place, and the range of what it is mixed from."""
    _, d, h, w = f.shape
    x0, x1, px = _corner(x, stagger == 0, w, periodic & 1)
    y0, y1, py = _corner(y, stagger == 1, h, periodic & 2)
    if axes == 2:
        a, b, c, e = f[n, 0, y0, x0], f[n, 0, y0, x1], f[n, 0, y1, x0], f[n, 0, y1, x1]
        low, high = min(a, b, c, e), max(a, b, c, e)
        a += px * (b - a)
        c += px * (e - c)
        return a + py * (c - a), low, high
    z0, z1, pz = _corner(z, stagger == 2, d, periodic & 4)
    a, b, c, e = f[n, z0, y0, x0], f[n, z0, y0, x1], f[n, z0, y1, x0], f[n, z0, y1, x1]
    low, high = min(a, b, c, e), max(a, b, c, e)
    a += px * (b - a)
    c += px * (e - c)
    first = a + py * (c - a)
    a, b, c, e = f[n, z1, y0, x0], f[n, z1, y0, x1], f[n, z1, y1, x0], f[n, z1, y1, x1]
    low, high = min(low, a, b, c, e), max(high, a, b, c, e)
    a += px * (b - a)
    c += px * (e - c)
    return first + pz * (a + py * (c - a) - first), low, high


@jit_inlined
def _cell(at: Any, extent: Any, periodic: Any) -> Any:
    n = int(np.floor(at + HALF))
    return n % extent if periodic else min(max(n, 0), extent - 1)


@jit
def _trace(u: Any, fluid: Any, x: Any, y: Any, z: Any, stagger: Any, scale: Any, periodic: Any, solid: Any) -> Any:
    """Where the fluid of a place was."""
    axes = u.shape[0]
    if stagger == 0:
        x -= HALF
    elif stagger == 1:
        y -= HALF
    elif stagger == 2:
        z -= HALF
    half = HALF * scale
    hx = x - half * _sample(u, 0, x, y, z, 0, periodic, axes)[0]
    hy = y - half * _sample(u, 1, x, y, z, 1, periodic, axes)[0]
    hz = z - half * _sample(u, 2, x, y, z, 2, periodic, axes)[0] if axes == 3 else ZERO
    wx = -scale * _sample(u, 0, hx, hy, hz, 0, periodic, axes)[0]
    wy = -scale * _sample(u, 1, hx, hy, hz, 1, periodic, axes)[0]
    wz = -scale * _sample(u, 2, hx, hy, hz, 2, periodic, axes)[0] if axes == 3 else ZERO
    part = ONE
    if solid:
        d, h, w = fluid.shape
        shorter = REACH / max(np.sqrt(wx * wx + wy * wy + wz * wz), REACH)
        wx, wy, wz = wx * shorter, wy * shorter, wz * shorter
        part = ZERO
        for n in range(1, 17):
            way = np.float32(n) / CHECKS
            cx, cy = _cell(x + way * wx, w, periodic & 1), _cell(y + way * wy, h, periodic & 2)
            cz = _cell(z + way * wz, d, periodic & 4) if axes == 3 else 0
            if not fluid[cz, cy, cx] > ZERO:
                break
            part = way
    return x + wx * part, y + wy * part, z + wz * part


# -- in a plane --------------------------------------------------------------------------------------------------------


@jit_inlined
def between(at: Any, half: Any, inverse: Any, span: Any, top: Any, extent: Any) -> Any:
    """As :func:`_corner`, without a branch; a place that is no number is 0.

    Args:
        half: 0.5 where values are on faces, else 0.
        inverse, extent: Of the number of cells along this axis.
        span: That number along an axis that is periodic, else 0.
        top: The last place.
    """
    at = at + half
    at = at - np.floor(at * inverse) * span
    at = at if at > ZERO else ZERO  # noqa: FURB136 -- 0 for what is no number
    at = at if at < top else top  # noqa: FURB136
    first = np.uint32(np.int32(at))
    part = at - np.float32(np.int32(first))
    first = first - extent if first >= extent else first
    second = first + np.uint32(1)
    return first, (second if second < extent else np.uint32(0)), part


@jit
def plane(
    first: Any, end: Any, u: Any, fluid: Any, field: Any, ahead: Any, back: Any, out: Any, scale: Any, stagger: Any,
    periodic: Any, solid: Any, correcting: Any,
) -> None:  # fmt: skip
    """Rows of all fields in a plane, some cells of a row at once."""
    many, h, w = field.shape[0], field.shape[2], field.shape[3]
    size, width, height = np.uint64(h * w), np.uint32(w), np.uint32(h)
    flow, fields = u.reshape(-1), field.reshape(-1)
    px, py, qx, qy, got = lanes(), lanes(), lanes(), lanes(), lanes()
    ix, iy, faces_x, faces_y = ONE / np.float32(w), ONE / np.float32(h), np.float32(w), np.float32(h)
    sx, sy = faces_x if periodic & 1 else ZERO, faces_y if periodic & 2 else ZERO
    cells_x = faces_x if periodic & 1 else faces_x - ONE
    cells_y = faces_y if periodic & 2 else faces_y - ONE
    for j in range(first, end):
        for begin in range(0, w, LANES):
            m = min(LANES, w - begin)
            for c in range(many):
                at = c if stagger else -1
                if c == 0 or stagger:
                    x = np.float32(begin) - (HALF if at == 0 else ZERO)
                    y = np.float32(j) - (HALF if at == 1 else ZERO)
                    for n in range(m):
                        px[n], py[n] = x + np.float32(n), y
                    for turn in range(2):
                        way = HALF * scale if turn == 0 else scale
                        for n in range(m):
                            x0, x1, part = between(px[n], HALF, ix, sx, faces_x, width)
                            y0, y1, over = between(py[n], ZERO, iy, sy, cells_y, height)
                            low, high = np.uint64(y0) * width, np.uint64(y1) * width
                            a, b, e, f = flow[low + x0], flow[low + x1], flow[high + x0], flow[high + x1]
                            a += part * (b - a)
                            e += part * (f - e)
                            qx[n] = -way * (a + over * (e - a))
                        for n in range(m):
                            x0, x1, part = between(px[n], ZERO, ix, sx, cells_x, width)
                            y0, y1, over = between(py[n], HALF, iy, sy, faces_y, height)
                            low, high = np.uint64(y0) * width + size, np.uint64(y1) * width + size
                            a, b, e, f = flow[low + x0], flow[low + x1], flow[high + x0], flow[high + x1]
                            a += part * (b - a)
                            e += part * (f - e)
                            qy[n] = -way * (a + over * (e - a))
                        if solid and turn == 1:
                            for n in range(m):
                                qx[n], qy[n] = _stopped(fluid, x + np.float32(n), y, qx[n], qy[n], periodic)
                        for n in range(m):
                            px[n], py[n] = x + np.float32(n) + qx[n], y + qy[n]
                half_x, top_x = (HALF, faces_x) if at == 0 else (ZERO, cells_x)
                half_y, top_y = (HALF, faces_y) if at == 1 else (ZERO, cells_y)
                base = np.uint64(c) * size
                for n in range(m):
                    x0, x1, part = between(px[n], half_x, ix, sx, top_x, width)
                    y0, y1, over = between(py[n], half_y, iy, sy, top_y, height)
                    low, high = np.uint64(y0) * width + base, np.uint64(y1) * width + base
                    a, b, e, f = fields[low + x0], fields[low + x1], fields[high + x0], fields[high + x1]
                    qx[n], qy[n] = min(a, b, e, f), max(a, b, e, f)
                    a += part * (b - a)
                    e += part * (f - e)
                    got[n] = a + over * (e - a)
                if correcting:
                    for n in range(m):
                        i = begin + n
                        better = ahead[c, 0, j, i] + HALF * (field[c, 0, j, i] - back[c, 0, j, i])
                        got[n] = min(max(better, qx[n]), qy[n])
                for n in range(m):
                    out[c, 0, j, begin + n] = got[n]


@jit
def _stopped(fluid: Any, x: Any, y: Any, wx: Any, wy: Any, periodic: Any) -> Any:
    """As much of a way as is in the fluid."""
    _, h, w = fluid.shape
    shorter = REACH / max(np.sqrt(wx * wx + wy * wy), REACH)
    wx, wy = wx * shorter, wy * shorter
    part = ZERO
    for n in range(1, 17):
        way = np.float32(n) / CHECKS
        if not fluid[0, _cell(y + way * wy, h, periodic & 2), _cell(x + way * wx, w, periodic & 1)] > ZERO:
            break
        part = way
    return wx * part, wy * part


# -- in space ----------------------------------------------------------------------------------------------------------


@jit
def space(
    first: Any, end: Any, u: Any, fluid: Any, field: Any, ahead: Any, back: Any, out: Any, scale: Any, stagger: Any,
    periodic: Any, solid: Any, correcting: Any,
) -> None:  # fmt: skip
    """Rows of all fields."""
    many, _, h, w = field.shape
    for row in range(first, end):
        k, j = row // h, row % h
        for i in range(w):
            x, y, z = np.float32(i), np.float32(j), np.float32(k)
            px, py, pz = x, y, z
            for c in range(many):
                at = c if stagger else -1
                if c == 0 or stagger:
                    px, py, pz = _trace(u, fluid, x, y, z, at, scale, periodic, solid)
                value, low, high = _sample(field, c, px, py, pz, at, periodic, u.shape[0])
                if correcting:
                    better = ahead[c, k, j, i] + HALF * (field[c, k, j, i] - back[c, k, j, i])
                    value = min(max(better, low), high)
                out[c, k, j, i] = value


def advect(u: Any, fluid: Any, field: Any, out: Any, scale: Any, stagger: int, periodic: int, solid: int) -> None:
    """Move fields along ``u``."""
    _move(u, fluid, field, field, field, out, scale, stagger, periodic, solid, 0)


def correct(
    u: Any, fluid: Any, field: Any, ahead: Any, back: Any, out: Any, scale: Any, stagger: int, periodic: int,
    solid: int,
) -> None:  # fmt: skip
    """Take half of the error from ``ahead``."""
    _move(u, fluid, field, ahead, back, out, scale, stagger, periodic, solid, 1)


def _move(u: Any, fluid: Any, field: Any, *others: Any) -> None:
    depth, height, width = fluid.shape
    spread(plane if len(u) == 2 else space, depth * height, -(-GRAIN // width), u, fluid, field, *others)
