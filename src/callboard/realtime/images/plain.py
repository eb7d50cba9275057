"""Filters in NumPy: the definition. ``result[y, x] = sum(weights[i, j] * image[y + i - ry, x + j - rx])``."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from callboard.realtime.images.separation import outer_product

__all__ = ["BORDERS", "correlate", "indices", "stored"]

BORDERS: Final = {"constant": 0, "replicate": 1, "reflect": 2, "wrap": 3, "mirror": 4}
"""What is beyond the edge of ``abcd``: ``000|abcd|000``, ``aaa|abcd|ddd``, ``cba|abcd|dcb``, ``bcd|abcd|abc``,
``dcb|abcd|cba``."""

Image = NDArray[Any]


def correlate(image: Image, weights: Image, result: Image, border: int, fill: float) -> None:
    """Filter images ``[b, h, w, c]``; sums are in f32."""
    (ky, kx), (_, h, w, _) = weights.shape, image.shape
    ys, xs = indices(h, ky // 2, border), indices(w, kx // 2, border)
    padded = image[:, ys][:, :, xs].astype("f4")
    if border == BORDERS["constant"]:
        padded[:, ys < 0] = fill
        padded[:, :, xs < 0] = fill
    column, row = outer_product(weights)
    total = np.zeros(image.shape, "f4")
    if row.size:
        lines = np.zeros((*padded.shape[:2], w, padded.shape[3]), "f4")
        for j in np.flatnonzero(row):
            lines += row[j] * padded[:, :, j : j + w]
        for i in np.flatnonzero(column):
            total += column[i] * lines[:, i : i + h]
    else:
        for i, j in np.argwhere(weights != 0):
            total += weights[i, j] * padded[:, i : i + h, j : j + w]
    stored(total, result)


def indices(extent: int, radius: int, border: int) -> NDArray[np.intp]:
    """Where the pixels from ``-radius`` to ``extent + radius`` are; -1 for none."""
    at = np.arange(-radius, extent + radius)
    if border == BORDERS["constant"]:
        return np.where((at < 0) | (at >= extent), -1, at)
    if border == BORDERS["replicate"]:
        return np.clip(at, 0, extent - 1)
    if border == BORDERS["wrap"]:
        return at % extent
    if border == BORDERS["reflect"]:
        at = at % (2 * extent)
        return np.minimum(at, 2 * extent - 1 - at)
    if extent == 1:
        return np.zeros_like(at)
    at = at % (2 * extent - 2)
    return np.minimum(at, 2 * extent - 2 - at)


def stored(total: Image, result: Image) -> None:
    """Round to the nearest, to even at a half, and keep within the dtype's range."""
    if result.dtype.kind == "f":
        result[...] = total
    else:
        result[...] = np.clip(np.rint(total), 0, np.iinfo(result.dtype).max)
