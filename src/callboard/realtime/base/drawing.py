"""Pictures of states, drawn on the host with NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["coloured", "splatted"]

Picture = NDArray[np.uint8]
STOPS = np.array([[13, 8, 30], [60, 30, 120], [40, 110, 180], [60, 190, 150], [230, 220, 90], [255, 250, 230]], "f4")


def coloured(values: NDArray[Any], low: float, high: float) -> Picture:
    """Numbers as colours, from dark to bright: u8 ``[..., 3]``."""
    scaled = np.clip((np.asarray(values, "f4") - low) / max(high - low, 1e-12), 0, 1) * (len(STOPS) - 1)
    below = np.minimum(scaled.astype(int), len(STOPS) - 2)
    part = (scaled - below)[..., None]
    return np.asarray(STOPS[below] * (1 - part) + STOPS[below + 1] * part, "u1")


def splatted(points: NDArray[Any], values: NDArray[Any], width: int, height: int, bounds: Any = None) -> Picture:
    """Points as dots of 2 by 2 pixels, coloured by their values, y upwards.

    Args:
        points: ``[n, 2]``.
        bounds: Two corners of what is shown; None: -1 to 1 on the shorter side.
    """
    picture = np.empty((height, width, 3), "u1")
    picture[:] = STOPS[0].astype("u1")
    if bounds is None:
        reach = np.array([width, height]) / min(width, height)
        bounds = -reach, reach
    low, high = np.array(bounds[0], "f8")[:2], np.array(bounds[1], "f8")[:2]
    scale = min((width - 2) / (high[0] - low[0]), (height - 2) / (high[1] - low[1]))
    middle = (np.array([width, height]) - 1) / 2
    place = (points - (low + high) / 2) * scale * (1, -1) + middle
    seen = ((place >= 0) & (place < (width - 1, height - 1))).all(1)
    columns, rows = place[seen].astype(int).T
    top = float(values.max()) if len(values) else 1.0
    dots = coloured(0.25 * top + 0.75 * values[seen], 0.0, top or 1.0)
    for dy in (0, 1):
        for dx in (0, 1):
            picture[rows + dy, columns + dx] = dots
    return picture
