"""Plans of layer norm and RMS norm, block by block of items."""

import math
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.arrays import Plan, blocks, optional, view_of, view_of_out, wide
from callboard.backends.cpu.dnn.norms import gradient, parameter_gradients
from callboard.core.library import plans
from callboard.kernel.dnn.layer_norm import (
    LayerNorm,
    LayerNormBackward,
    LayerNormTraining,
    RmsNorm,
    RmsNormBackward,
    RmsNormTraining,
)

__all__ = ["backward", "forward"]


@plans(LayerNorm, LayerNormTraining, RmsNorm, RmsNormTraining)
def forward(op: Any) -> Plan:
    """Called with the message's operands: ``x`` and ``scale``, ``out``, then the message's own."""
    centred = isinstance(op, LayerNorm | LayerNormTraining)
    keeps = isinstance(op, LayerNormTraining | RmsNormTraining)
    shape, ndim = op.x.shape, op.x.ndim
    items = list(range(ndim - op.axes))
    last = tuple(range(ndim - op.axes, ndim))
    count = math.prod(shape[ndim - op.axes :])
    view_x, view_out, scale_of = view_of(op.x), view_of_out(op), optional(op.scale)
    bias_of = optional(op.bias if centred else None)
    view_mean = view_of_out(op, "mean") if keeps and centred else None
    view_inverse = view_of_out(op, "inverse") if keeps else None

    def work(x: int, scale: int | None, out: int, *rest: Any) -> None:
        bias, rest = (rest[0], rest[1:]) if centred else (None, rest)
        given, result, factor, shift = view_x(x), view_out(out), scale_of(scale), bias_of(bias)
        for block in blocks(shape, items):
            part = wide(given[block])
            kind = part.dtype.type
            mean = np.add.reduce(part, last, keepdims=True) / kind(count) if centred else None
            away = np.subtract(part, kind(0) if mean is None else mean, order="C")
            lines = away.reshape(*part.shape[: len(items)], count)
            variance = np.vecdot(lines, lines).reshape(part.shape[: len(items)] + (1,) * op.axes) / kind(count)
            inverse = 1 / np.sqrt(variance + kind(op.epsilon))
            away *= inverse
            if factor is not None:
                away *= factor
            if shift is not None:
                away += shift
            result[block] = away
            if view_inverse is not None:
                view_inverse(rest[-1])[block] = inverse.reshape(inverse.shape[: len(items)])
            if view_mean is not None and mean is not None:
                view_mean(rest[0])[block] = mean.reshape(mean.shape[: len(items)])

    return work


@plans(LayerNormBackward, RmsNormBackward)
def backward(op: Any) -> Plan:
    """Called with the fields of the message."""
    centred = isinstance(op, LayerNormBackward)
    shape, ndim = op.x.shape, op.x.ndim
    items = list(range(ndim - op.axes))
    last = tuple(range(ndim - op.axes, ndim))
    one = (slice(None),) * len(items) + (None,) * op.axes
    view_dy, view_x, scale_of = view_of(op.dy), view_of(op.x), optional(op.scale)
    view_mean, view_inverse = view_of(op.mean) if centred else None, view_of(op.inverse)
    view_dx = view_of_out(op, "dx")
    views = [view_of_out(op, name) for name in (("dscale", "dbias") if centred else ("dscale",)) if op.scale]

    def work(dy: int, x: int, *rest: Any) -> None:
        mean, rest = (rest[0], rest[1:]) if centred else (None, rest)
        inverse, scale, dx, *gradients = rest
        grad, given, result, factor = view_dy(dy), view_x(x), view_dx(dx), scale_of(scale)
        means = None if view_mean is None or mean is None else view_mean(mean)[one]
        inverses = view_inverse(inverse)[one]
        sums: list[Any] = [0.0, 0.0]
        for block in blocks(shape, items):
            g, part = wide(grad[block]), wide(given[block])
            own = None if means is None else means[block]
            found, hat = gradient(g, part, own, inverses[block], factor, last, constant=False)
            if views:
                for i, total in enumerate(parameter_gradients(g, hat, items)):
                    sums[i] = sums[i] + total
            result[block] = found
        for view, address, total in zip(views, gradients, sums, strict=False):
            view(address)[...] = total

    return work
