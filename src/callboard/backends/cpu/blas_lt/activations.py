"""Activations, their derivatives, and the values kept by the forward pass for them."""

import math
from typing import Any

import numpy as np

__all__ = ["derivative", "forward", "kept", "mask_of", "passed"]

Array = np.ndarray[Any, Any]

# GELU in its tanh form: D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415.
SLOPE = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def forward(activation: str, x: Array) -> Array:
    """The activation of ``x``, in its dtype."""
    if activation == "relu":
        rectified: Array = np.maximum(x, x.dtype.type(0))
        return rectified
    y: Array = x.dtype.type(0.5) * x * (1 + np.tanh(_inner(x)))
    return y


def derivative(x: Array) -> Array:
    """Return the derivative of GELU, in the dtype of ``x``."""
    kind = x.dtype.type
    tanh = np.tanh(_inner(x))
    inner = kind(SLOPE) * (1 + kind(3 * CUBIC) * x * x)
    y: Array = kind(0.5) * (1 + tanh) + kind(0.5) * x * (1 - tanh * tanh) * inner
    return y


def kept(activation: str, x: Array) -> Array:
    """The value kept for the backward pass: the pre-activation, or a bit mask as described by ``MatmulAux``."""
    return mask_of(x) if activation == "relu" else x


def mask_of(x: Array) -> Array:
    """Bit mask of ``x >= 0``: one bit per column, lowest first; rows padded to 128 bits."""
    rest = -x.shape[-1] % 128
    padded = np.pad(x >= 0, [(0, 0)] * (x.ndim - 1) + [(0, rest)])
    return np.packbits(padded, axis=-1, bitorder="little")


def passed(mask: Array, columns: int) -> Array:
    """The inverse of :func:`mask_of`, as bool."""
    return np.unpackbits(mask, axis=-1, count=columns, bitorder="little").astype(np.bool_)


def _inner(x: Array) -> Array:
    kind = x.dtype.type
    y: Array = kind(SLOPE) * (x + kind(CUBIC) * x * x * x)
    return y
