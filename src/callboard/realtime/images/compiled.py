"""Filters compiled by Numba: as :mod:`.plain`.

Rows are taken one by one: with what is beyond their ends, and in f32, they stay in the cache for all sums.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callboard.realtime.base.cpu.engines import spread
from callboard.realtime.base.cpu.jit import jit, jit_inlined
from callboard.realtime.images.plain import indices
from callboard.realtime.images.separation import outer_product

__all__ = ["correlate", "most_of", "store"]

ZERO = np.float32(0)
GRAIN = 1 << 17
"""Numbers of the rows of a thread at least."""


def correlate(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """See :func:`.plain.correlate`."""
    _, h, w, _ = image.shape
    ky, kx = weights.shape
    across, down = taps_of(np.ascontiguousarray(weights, "f4").tobytes(), kx)
    ys, xs = indices(h, ky // 2, border), indices(w, kx // 2, border)
    grain = max(4 * ky, -(-GRAIN // max(1, image.shape[2] * image.shape[3])))
    for source, target in zip(image, result, strict=True):
        spread(rows_of, h, grain, source, target, across, down, ys, xs, np.float32(fill), most_of(result))


def most_of(result: Any) -> Any:
    """The largest number of a dtype of integers; 0 for floats, which are not rounded."""
    return np.float32(np.iinfo(result.dtype).max if result.dtype.kind == "u" else 0)


class Taps(NamedTuple):
    """Weights of a sum that are not 0, in the order in which :mod:`.plain` adds their products.

    Attributes:
        rows, columns: Where in the kernel.
        weights: Of each.
    """

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    weights: NDArray[np.float32]


@functools.lru_cache(maxsize=64)
def taps_of(weights: bytes, kx: int) -> tuple[Taps, Taps]:
    """Of the pass along a row, and of the one down. The first has no weights if the kernel is no outer product."""
    whole = np.frombuffer(weights, "f4").reshape(-1, kx)
    column, row = outer_product(whole)
    return _taps(row[None]), _taps(column[:, None] if row.size else whole)


def _taps(weights: NDArray[np.float32]) -> Taps:
    rows, columns = np.nonzero(weights)
    return Taps(rows, columns, weights[rows, columns])


@jit
def add(total: Any, ring: Any, base: Any, step: Any, taps: Any) -> None:
    """The sum of products with rows of a ring, up to five in one pass.

    Args:
        total: Overwritten.
        ring: Row ``n`` of the kernel is ``(base + n) % len(ring)``.
        step: Numbers of a column: channels.
        taps: At least one.
    """
    size, many, length = total.shape[0], taps.weights.shape[0], ring.shape[0]
    n = 0
    while n < many:
        begin = taps.columns[n] * step
        p, a = ring[(base + taps.rows[n]) % length][begin : begin + size], taps.weights[n]
        if n + 2 >= many:
            if n == 0:
                for i in range(size):
                    total[i] = a * p[i]
            else:
                for i in range(size):
                    total[i] += a * p[i]
            n += 1
            continue
        begin = taps.columns[n + 1] * step
        q, b = ring[(base + taps.rows[n + 1]) % length][begin : begin + size], taps.weights[n + 1]
        begin = taps.columns[n + 2] * step
        r, c = ring[(base + taps.rows[n + 2]) % length][begin : begin + size], taps.weights[n + 2]
        if n + 4 >= many:
            if n == 0:
                for i in range(size):
                    total[i] = a * p[i] + b * q[i] + c * r[i]
            else:
                for i in range(size):
                    total[i] = total[i] + a * p[i] + b * q[i] + c * r[i]
            n += 3
            continue
        begin = taps.columns[n + 3] * step
        s, d = ring[(base + taps.rows[n + 3]) % length][begin : begin + size], taps.weights[n + 3]
        begin = taps.columns[n + 4] * step
        t, e = ring[(base + taps.rows[n + 4]) % length][begin : begin + size], taps.weights[n + 4]
        if n == 0:
            for i in range(size):
                total[i] = a * p[i] + b * q[i] + c * r[i] + d * s[i] + e * t[i]
        else:
            for i in range(size):
                total[i] = total[i] + a * p[i] + b * q[i] + c * r[i] + d * s[i] + e * t[i]
        n += 5


@jit
def rows_of(
    first: Any, end: Any, source: Any, target: Any, across: Any, down: Any, ys: Any, xs: Any, fill: Any, most: Any
) -> None:
    """Rows of an image: those that a sum needs are in a ring."""
    h, w, c = source.shape
    ky, rx = ys.shape[0] - h + 1, (xs.shape[0] - w) // 2
    direct = across.weights.shape[0] == 0
    padded = np.zeros((1, (w + 2 * rx) * c), np.float32)
    ring = np.zeros((ky, padded.shape[1] if direct else w * c), np.float32)
    total = np.zeros(w * c, np.float32)
    for n in range(first, end + ky - 1):
        y = ys[n]
        into = ring[n % ky] if direct else padded[0]
        if y < 0:
            into[:] = fill
        else:
            line = source[y].reshape(-1)
            middle = into[rx * c : (rx + w) * c]
            for i in range(w * c):
                middle[i] = line[i]
            for x in range(rx):
                left, right = xs[x], xs[w + rx + x]
                for k in range(c):
                    into[x * c + k] = fill if left < 0 else line[left * c + k]
                    into[(w + rx + x) * c + k] = fill if right < 0 else line[right * c + k]
        if not direct:
            add(ring[n % ky], padded, 0, c, across)
        j = n - ky + 1
        if j >= first:
            add(total, ring, j, c, down)
            store(total, target[j].reshape(-1), most)


@jit_inlined
def store(total: Any, target: Any, most: Any) -> None:
    """Round to the nearest, to even at a half, and keep within the dtype's range; ``most`` is 0 for floats."""
    if most > ZERO:
        for i in range(total.shape[0]):
            target[i] = np.int32(min(max(np.rint(total[i]), ZERO), most))
    else:
        for i in range(total.shape[0]):
            target[i] = total[i]
