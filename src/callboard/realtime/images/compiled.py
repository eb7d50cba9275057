"""Filters compiled by Numba: as :mod:`.plain`, except for the order of the sums of kernels that are outer products.

Rows are taken one by one: with what is beyond their ends, and in f32, they stay in the cache for all sums.
"""

import functools
from typing import Any

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
    column, row, direct = separated(np.ascontiguousarray(weights, "f4").tobytes(), kx)
    ys, xs = indices(h, ky // 2, border), indices(w, kx // 2, border)
    grain = max(4 * ky, -(-GRAIN // max(1, image.shape[2] * image.shape[3])))
    for source, target in zip(image, result, strict=True):
        spread(rows_of, h, grain, source, target, column, row, direct, ys, xs, np.float32(fill), most_of(result))


def most_of(result: Any) -> Any:
    """The largest number of a dtype of integers; 0 for floats, which are not rounded."""
    return np.float32(np.iinfo(result.dtype).max if result.dtype.kind == "u" else 0)


@functools.lru_cache(maxsize=64)
def separated(weights: bytes, kx: int) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
    """A column and a row; or the weights of all rows, one after the other, if they are no outer product."""
    whole = np.frombuffer(weights, "f4").reshape(-1, kx)
    column, row = outer_product(whole)
    if row.size:
        return column, row, False
    return np.zeros(len(whole), "f4"), whole.reshape(-1), True


@jit
def add(total: Any, source: Any, weights: Any, step: Any, fresh: Any) -> None:
    """Add products to each total, up to three in one pass; ``step`` numbers are between their factors."""
    size, many = total.shape[0], weights.shape[0]
    n = 0
    if fresh and many < 3:
        total[:] = ZERO
    while n < many:
        x, a = source[n * step : n * step + size], weights[n]
        if n + 2 < many:
            y, z = source[(n + 1) * step : (n + 1) * step + size], source[(n + 2) * step : (n + 2) * step + size]
            b, c = weights[n + 1], weights[n + 2]
            if fresh and n == 0:
                for i in range(size):
                    total[i] = a * x[i] + b * y[i] + c * z[i]
            else:
                for i in range(size):
                    total[i] += a * x[i] + b * y[i] + c * z[i]
            n += 3
        else:
            for i in range(size):
                total[i] += a * x[i]
            n += 1


@jit
def rows_of(
    first: Any, end: Any, source: Any, target: Any, column: Any, row: Any, direct: Any, ys: Any, xs: Any, fill: Any,
    most: Any,
) -> None:  # fmt: skip
    """Rows of an image: those that a sum needs are in a ring."""
    _, w, c = source.shape
    ky = column.shape[0]
    kx = row.shape[0] // ky if direct else row.shape[0]
    rx = kx // 2
    padded = np.zeros((w + 2 * rx) * c, np.float32)
    ring = np.zeros((ky, padded.shape[0] if direct else w * c), np.float32)
    total = np.zeros(w * c, np.float32)
    for n in range(first, end + ky - 1):
        y = ys[n]
        into = padded if not direct else ring[n % ky]
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
            add(ring[n % ky], padded, row, c, True)
        if n < first + ky - 1:
            continue
        j = n - ky + 1
        if direct:
            for i in range(ky):
                add(total, ring[(j + i) % ky], row[i * kx : (i + 1) * kx], c, i == 0)
        else:
            for i in range(ky):
                add(total, ring[(j + i) % ky], column[i : i + 1], 1, i == 0)
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
