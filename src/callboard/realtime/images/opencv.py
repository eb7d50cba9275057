"""Filters by OpenCV: as :mod:`.plain`, except for a last digit where a sum is close to a half."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

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
DEPTHS = {"uint8": cv2.CV_8U, "uint16": cv2.CV_16U, "float32": cv2.CV_32F}


def correlate(image: Image, weights: Image, result: Image, border: int, fill: float) -> None:
    """See :func:`.plain.correlate`."""
    for source, target in zip(image, result, strict=True):
        _one(source, np.asarray(weights), target, border, fill)


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
