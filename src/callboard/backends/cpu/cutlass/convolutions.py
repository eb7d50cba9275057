"""Convolutions as products with the images' patches."""

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from callboard.backends.cpu.cutlass.epilogues import Array, finisher
from callboard.backends.cpu.cutlass.products import multiply
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel.cutlass import Conv

__all__ = ["conv"]


@plans(Conv)
def conv(op: Conv) -> Callable[..., None]:
    """Called with the operands and numbers of the message."""
    problem = op.problem()
    finish = finisher(op, problem)
    images, filters, small = op.shapes()
    spatial = (problem.result.shape if small is None else small)[1:3]
    patch = filters[1] * filters[2] * filters[3]
    pixels = images[0] * spatial[0] * spatial[1]
    inner = {"fprop": patch, "dgrad": filters[0], "wgrad": pixels}[op.kind]
    times = multiply(op, inner)
    view_a, view_b = viewer(op.a.layout), viewer(op.b.layout)

    def fprop(a: Array, b: Array) -> Array:
        return times(_patches(op, a, filters, spatial).reshape(pixels, patch), b.reshape(-1, patch).T)

    def wgrad(a: Array, b: Array) -> Array:
        return times(a.reshape(pixels, -1).T, _patches(op, b, filters, spatial).reshape(pixels, patch))

    def dgrad(a: Array, b: Array) -> Array:
        parts = times(a.reshape(pixels, -1), b.reshape(-1, patch))
        (top, left), (h, w) = op.padding, images[1:3]
        whole = np.zeros((images[0], h + 2 * top, w + 2 * left, images[3]), parts.dtype)
        parts = parts.reshape(images[0], *spatial, filters[1], filters[2], filters[3])
        for r in range(filters[1]):
            for s in range(filters[2]):
                rows = slice(r * op.dilation[0], r * op.dilation[0] + (spatial[0] - 1) * op.stride[0] + 1, op.stride[0])
                cols = slice(s * op.dilation[1], s * op.dilation[1] + (spatial[1] - 1) * op.stride[1] + 1, op.stride[1])
                whole[:, rows, cols] += parts[:, :, :, r, s]
        return whole[:, top : top + h, left : left + w]

    product = {"fprop": fprop, "dgrad": dgrad, "wgrad": wgrad}[op.kind]
    return lambda a, b, *rest: finish(product(view_a(a), view_b(b)), None, *rest)


def _patches(op: Conv, images: Array, filters: tuple[int, ...], spatial: tuple[int, ...]) -> Array:
    """``[images, p, q, r, s, channels]``: for each place of a filter the pixels below it, 0 outside of the image."""
    (top, left), (down, right), (far, wide) = op.padding, op.stride, op.dilation
    padded = np.pad(images, ((0, 0), (top, top), (left, left), (0, 0)))
    n, h, w, c = padded.strides
    shape = (len(images), *spatial, *filters[1:])
    found: Array = as_strided(padded, shape, (n, h * down, w * right, h * far, w * wide, c), writeable=False)
    return found
