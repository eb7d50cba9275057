"""The arithmetic of all norms, on arrays of any number of axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.arrays import Array

__all__ = ["gradient", "moments", "normalised", "parameter_gradients"]


def moments(x: Array, axes: Sequence[int], *, centred: bool = True) -> tuple[Array | None, Array]:
    """Mean, if ``centred``, and variance along some axes, which stay with an extent of 1.

    Args:
        x: Wide.
        axes: The axes.
        centred: True if deviations from the mean are taken; else the mean of the squares.
    """
    mean = x.mean(axis=tuple(axes), keepdims=True) if centred else None
    away = x if mean is None else x - mean
    variance: Array = np.square(away).mean(axis=tuple(axes), keepdims=True)
    return mean, variance


def normalised(x: Array, mean: Array | None, inverse: Array, scale: Array | None, bias: Array | None) -> Array:
    """``(x - mean) * inverse * scale + bias``; all broadcast."""
    y: Array = (x if mean is None else x - mean) * inverse
    if scale is not None:
        y *= scale
    if bias is not None:
        y += bias
    return y


def gradient(
    dy: Array, x: Array, mean: Array | None, inverse: Array, scale: Array | None, axes: Sequence[int], *, constant: bool
) -> tuple[Array, Array]:
    """The gradient by ``x``, and ``(x - mean) * inverse``.

    Args:
        dy, x: Wide.
        mean, inverse, scale: They broadcast.
        axes: Axes that were normalised together.
        constant: The statistics did not follow from ``x``.
    """
    hat: Array = (x if mean is None else x - mean) * inverse
    g: Array = dy if scale is None else dy * scale
    if constant:
        return g * inverse, hat
    axes = tuple(axes)
    inner = (g * hat).mean(axis=axes, keepdims=True)
    dx: Array = g - hat * inner
    if mean is not None:
        dx -= g.mean(axis=axes, keepdims=True)
    dx *= inverse
    return dx, hat


def parameter_gradients(dy: Array, hat: Array, axes: Sequence[int]) -> tuple[Any, Any]:
    """The gradients by scale and bias: sums along the axes that those have not."""
    axes = tuple(axes)
    return (dy * hat).sum(axis=axes), dy.sum(axis=axes)
