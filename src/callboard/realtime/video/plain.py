"""Effects in NumPy: the reference for the kernels in Numba and CUDA."""

from typing import Any

import numpy as np

from callboard.realtime.images.plain import stored

__all__ = ["combined", "edges", "gray", "limited"]


def light(image: Any) -> Any:
    """Brightness: of an image with three channels or more weighted, otherwise its first."""
    if image.shape[-1] < 3:
        return image[..., 0].astype("f4")
    pixels = image.astype("f4")
    weights = np.float32(0.299), np.float32(0.587), np.float32(0.114)
    return sum(weight * pixels[..., k] for k, weight in enumerate(weights))


def combined(a: Any, b: Any, out: Any, wa: Any, wb: Any, mode: int) -> None:
    """0: a weighted sum, 1: the greater one, 2: the distance."""
    x, y = a.astype("f4"), b.astype("f4")
    ways = (lambda: wa * x + wb * y, lambda: np.maximum(x, y), lambda: np.abs(x - y))
    stored(ways[mode](), out)


def limited(a: Any, out: Any, level: Any, high: Any) -> None:
    """``high`` above the level, and 0 elsewhere."""
    stored(np.where(a > level, high, np.float32(0)), out)


def gray(a: Any, out: Any) -> None:
    """Brightness in each colour; a fourth channel stays."""
    out[...] = a
    stored(np.broadcast_to(light(a)[:, None], out[:, :3].shape), out[:, :3])


def edges(a: Any, out: Any) -> None:
    """Size of the brightness's gradient, by Sobel's kernels."""
    v = np.pad(light(a), 1, mode="edge")
    across, down = v[:, 2:] - v[:, :-2], v[2:] - v[:-2]
    gx = across[:-2] + 2 * across[1:-1] + across[2:]
    gy = down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
    out[...] = a
    stored(np.broadcast_to(np.sqrt(gx * gx + gy * gy)[..., None], out[..., :3].shape), out[..., :3])
