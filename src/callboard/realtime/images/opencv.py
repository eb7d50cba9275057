"""Filters by OpenCV: as :mod:`.plain`, except for a last digit where a sum is close to a half."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from callboard.realtime.base.engines import spread
from callboard.realtime.images.plain import BORDERS

__all__ = ["correlate"]

Image = NDArray[Any]
CODES = {
    BORDERS["constant"]: cv2.BORDER_CONSTANT,
    BORDERS["replicate"]: cv2.BORDER_REPLICATE,
    BORDERS["reflect"]: cv2.BORDER_REFLECT,
    BORDERS["wrap"]: cv2.BORDER_WRAP,
    BORDERS["mirror"]: cv2.BORDER_REFLECT_101,
}
WHOLE = 49
"""Weights above which OpenCV takes Fourier transforms, whose rounding depends on the extents of the image."""
GRAIN = 1 << 19
"""Numbers of the rows of a thread at least."""
DEPTHS = {"uint8": cv2.CV_8U, "uint16": cv2.CV_16U, "float32": cv2.CV_32F}


def correlate(image: Image, weights: Image, result: Image, border: int, fill: float) -> None:
    """See :func:`.plain.correlate`."""
    weights = np.asarray(weights)
    height, radius = image.shape[1], weights.shape[0] // 2

    def rows(first: int, end: int) -> None:
        """With as many rows beside them as the weights reach. Only at the edges of the image is there a border."""
        above, below = min(first, radius), min(height - end, radius)
        part = image[:, first - above : end + below]
        for source, target in zip(part, result[:, first:end], strict=True):
            if above or below:
                whole = np.empty(source.shape, target.dtype)
                _one(source, weights, whole, border, fill)
                target[...] = whole[above : above + end - first]
            else:
                _one(source, weights, target, border, fill)

    grain = -(-GRAIN // max(1, image.shape[2] * image.shape[3]))
    if weights.size > WHOLE or border == BORDERS["wrap"]:
        rows(0, height)
    else:
        spread(rows, height, max(grain, 2 * weights.shape[0]))


def _one(source: Image, weights: Image, target: Image, border: int, fill: float) -> None:
    code = CODES[border]
    ry, rx = weights.shape[0] // 2, weights.shape[1] // 2
    inner = source
    padded = border == BORDERS["wrap"] or (border == BORDERS["constant"] and fill != 0)
    if padded:  # the borders that filter2D does not have
        inner = cv2.copyMakeBorder(source, ry, ry, rx, rx, code, value=(fill,) * 4)
        code = cv2.BORDER_CONSTANT
    if source.dtype == target.dtype and not padded and target.flags.c_contiguous:
        cv2.filter2D(inner, -1, weights, dst=target, borderType=code)
        return
    found = cv2.filter2D(
        inner, DEPTHS[target.dtype.name if source.dtype != np.float32 else "float32"], weights, borderType=code
    )
    if padded:
        found = found[ry : ry + source.shape[0], rx : rx + source.shape[1]]
    if found.dtype != target.dtype:
        found = cv2.add(found, 0, dtype=DEPTHS[target.dtype.name])  # rounds as filter2D
    target[...] = found.reshape(target.shape)
