"""Effects compiled by Numba: as :mod:`.plain`, on several threads."""

from typing import Any

import numpy as np

from callboard.realtime.base.cpu.engines import spread
from callboard.realtime.base.cpu.jit import jit, jit_inlined
from callboard.realtime.images.compiled import most_of, store

__all__ = ["combined", "edges", "gray", "limited"]

ZERO, TWO = np.float32(0), np.float32(2)
ONE, PAIR, THREE = np.uint64(1), np.uint64(2), np.uint64(3)
RED, GREEN, BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)
GRAIN = 1 << 17
"""Numbers of a thread at least."""
CHUNK = 4096
"""Pixels whose brightness is in the cache."""


@jit
def combined_of(first: Any, end: Any, a: Any, b: Any, out: Any, wa: Any, wb: Any, mode: Any, most: Any) -> None:
    x, y, z = a[first:end], b[first:end], out[first:end]
    if mode == 0:
        total = np.zeros(CHUNK, np.float32)
        for start in range(0, z.shape[0], CHUNK):
            some, one, other = z[start : start + CHUNK], x[start : start + CHUNK], y[start : start + CHUNK]
            for i in range(some.shape[0]):
                total[i] = wa * np.float32(one[i]) + wb * np.float32(other[i])
            store(total[: some.shape[0]], some, most)
    elif mode == 1:
        for i in range(z.shape[0]):
            z[i] = max(x[i], y[i])
    else:
        for i in range(z.shape[0]):
            z[i] = x[i] - y[i] if x[i] > y[i] else y[i] - x[i]


def combined(a: Any, b: Any, out: Any, wa: Any, wb: Any, mode: int) -> None:
    """See :func:`.plain.combined`."""
    spread(combined_of, len(a), GRAIN, a, b, out, wa, wb, mode, most_of(out))


@jit
def limited_of(first: Any, end: Any, a: Any, out: Any, level: Any, high: Any) -> None:
    x, z = a[first:end], out[first:end]
    above, below = z.dtype.type(high), z.dtype.type(0)
    for i in range(z.shape[0]):
        z[i] = above if np.float32(x[i]) > level else below


def limited(a: Any, out: Any, level: Any, high: Any) -> None:
    """See :func:`.plain.limited`."""
    most = most_of(out)
    high = min(max(np.rint(high), ZERO), most) if most else high
    spread(limited_of, len(a), GRAIN, a, out, level, high)


@jit_inlined
def brightness(line: Any, light: Any) -> None:
    """Of the pixels of a row ``[w, c]``. Only steps that the compiler knows become vector code."""
    numbers, c = line.reshape(-1), line.shape[1]
    if c < 3:
        for x in range(light.shape[0]):
            light[x] = line[x, 0]
    elif c == 3:
        for x in range(np.uint64(light.shape[0])):
            at = THREE * x
            light[x] = (
                RED * np.float32(numbers[at])
                + GREEN * np.float32(numbers[at + ONE])
                + BLUE * np.float32(numbers[at + PAIR])
            )
    else:
        for x in range(light.shape[0]):
            light[x] = RED * np.float32(line[x, 0]) + GREEN * np.float32(line[x, 1]) + BLUE * np.float32(line[x, 2])


@jit_inlined
def shown(values: Any, line: Any, out: Any, rounded: Any, most: Any) -> None:
    """A number for each pixel, in its colours; ``rounded`` is room for as many."""
    c = line.shape[1]
    store(values, rounded, most)
    if c == 3:
        numbers = out.reshape(-1)
        for x in range(np.uint64(values.shape[0])):
            at = THREE * x
            numbers[at] = numbers[at + ONE] = numbers[at + PAIR] = rounded[x]
        return
    for x in range(values.shape[0]):
        for k in range(min(c, 3)):
            out[x, k] = rounded[x]
        if c > 3:
            out[x, 3] = line[x, 3]


@jit
def gray_of(first: Any, end: Any, a: Any, out: Any, most: Any) -> None:
    light, room = np.zeros(CHUNK, np.float32), np.empty(CHUNK, out.dtype)
    for start in range(first, end, CHUNK):
        stop = min(start + CHUNK, end)
        some = light[: stop - start]
        brightness(a[start:stop], some)
        shown(some, a[start:stop], out[start:stop], room[: stop - start], most)


def gray(a: Any, out: Any) -> None:
    """See :func:`.plain.gray`."""
    spread(gray_of, len(a), GRAIN, a, out, most_of(out))


@jit
def edges_of(first: Any, end: Any, a: Any, out: Any, most: Any) -> None:
    h, w, _ = a.shape
    ring = np.zeros((3, w + 2), np.float32)
    sizes, room = np.zeros(w, np.float32), np.empty(w, out.dtype)
    for n in range(first - 1, end + 1):
        light = ring[(n + 1) % 3]
        brightness(a[min(max(n, 0), h - 1)], light[1 : w + 1])
        light[0], light[w + 1] = light[1], light[w]
        if n <= first:
            continue
        j = n - 1
        above, here, below = ring[j % 3], ring[(j + 1) % 3], ring[(j + 2) % 3]
        for x in range(w):
            gx = (above[x + 2] - above[x]) + TWO * (here[x + 2] - here[x]) + (below[x + 2] - below[x])
            gy = (below[x] - above[x]) + TWO * (below[x + 1] - above[x + 1]) + (below[x + 2] - above[x + 2])
            sizes[x] = np.sqrt(gx * gx + gy * gy)
        shown(sizes, a[j], out[j], room, most)


def edges(a: Any, out: Any) -> None:
    """See :func:`.plain.edges`."""
    spread(edges_of, len(a), max(1, GRAIN // (a.shape[1] * a.shape[2])), a, out, most_of(out))
