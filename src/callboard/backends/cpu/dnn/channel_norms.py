"""Plans of batch norm, instance norm and group norm."""

from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.arrays import Array, Plan, optional, view_of, view_of_out, wide
from callboard.backends.cpu.dnn.norms import gradient, moments, normalised, parameter_gradients
from callboard.core.library import plans
from callboard.kernel.dnn.channel_norms import (
    BatchNorm,
    BatchNormBackward,
    BatchNormTraining,
    GroupNorm,
    GroupNormBackward,
    GroupNormTraining,
    InstanceNorm,
    InstanceNormBackward,
    InstanceNormTraining,
)

__all__ = ["backward", "batch_inference", "batch_training", "each_item"]


class Divided:
    """A view of ``[n, …, channels, …]`` in which each normalised group spans whole axes.

    Args:
        shape: Shape of the array.
        axis: The channel axis.
        groups: Number of groups of each item; None: items are normalised together.
    """

    def __init__(self, shape: tuple[int, ...], axis: int, groups: int | None) -> None:
        axis %= len(shape)
        channels = shape[axis]
        inside = channels if groups is None else channels // groups
        split = (channels,) if groups is None else (groups, inside)
        self.shape = (*shape[:axis], *split, *shape[axis + 1 :])
        self.channel_axes = tuple(range(axis, axis + len(split)))
        kept = {axis} if groups is None else {0, axis}
        self.axes = tuple(a for a in range(len(self.shape)) if a not in kept)
        self.statistics = tuple(n if a in kept else 1 for a, n in enumerate(self.shape))
        self.parameters = tuple(n if a in self.channel_axes else 1 for a, n in enumerate(self.shape))
        self.summed = tuple(a for a in range(len(self.shape)) if a not in self.channel_axes)

    def parameter(self, array: Array | None) -> Array | None:
        """A scale or bias, so that it broadcasts."""
        return None if array is None else array.reshape(self.parameters)


@plans(BatchNorm)
def batch_inference(op: BatchNorm) -> Plan:
    """Called with ``(x, mean, variance, scale, bias, out)``."""
    divided = Divided(op.x.shape, op.axis, None)
    view_x, view_mean, view_variance, view_out = view_of(op.x), view_of(op.mean), view_of(op.variance), view_of_out(op)
    scale_of, bias_of = optional(op.scale), optional(op.bias)

    def work(x: int, mean: int, variance: int, scale: int | None, bias: int | None, out: int) -> None:
        spread = view_variance(variance).reshape(divided.parameters)
        inverse = 1 / np.sqrt(spread + spread.dtype.type(op.epsilon))
        parameters = divided.parameter(scale_of(scale)), divided.parameter(bias_of(bias))
        middle = view_mean(mean).reshape(divided.parameters)
        view_out(out)[...] = normalised(wide(view_x(x)), middle, inverse, *parameters)

    return work


@plans(BatchNormTraining)
def batch_training(op: BatchNormTraining) -> Plan:
    """Called with ``(x, scale, bias, running_mean, running_variance, momentum, out, mean, inverse)``."""
    divided = Divided(op.x.shape, op.axis, None)
    view_x, view_out, view_mean, view_inverse = (
        view_of(op.x), view_of_out(op), view_of_out(op, "mean"), view_of_out(op, "inverse")
    )  # fmt: skip
    scale_of, bias_of = optional(op.scale), optional(op.bias)
    running = [view_of(one) for one in (op.running_mean, op.running_variance) if one is not None]
    count = op.x.size // max(op.x.shape[op.axis], 1)

    def work(x: int, scale: int | None, bias: int | None, *rest: Any) -> None:
        running_mean, running_variance, momentum, out, mean, inverse = rest
        given = wide(view_x(x))
        if not given.size:
            return
        middle, variance = moments(given, divided.axes)
        assert middle is not None
        deviation = 1 / np.sqrt(variance + variance.dtype.type(op.epsilon))
        parameters = divided.parameter(scale_of(scale)), divided.parameter(bias_of(bias))
        view_out(out)[...] = normalised(given, middle, deviation, *parameters)
        view_mean(mean)[...], view_inverse(inverse)[...] = middle.reshape(-1), deviation.reshape(-1)
        fresh = middle.reshape(-1), variance.reshape(-1) * (count / (count - 1))
        for view, address, value in zip(running, (running_mean, running_variance), fresh, strict=False):
            array = view(address)
            array[...] = (1 - momentum) * array + momentum * value

    return work


@plans(GroupNorm, GroupNormTraining, InstanceNorm, InstanceNormTraining)
def each_item(op: Any) -> Plan:
    """Called with ``(x, scale, bias, out)`` and, if they are kept, mean and inverse."""
    divided = Divided(op.x.shape, op.axis, op.group_count())
    view_x, view_out, scale_of, bias_of = view_of(op.x), view_of_out(op), optional(op.scale), optional(op.bias)
    keeps = isinstance(op, InstanceNormTraining | GroupNormTraining)
    views = [view_of_out(op, name) for name in ("mean", "inverse")] if keeps else []

    def work(x: int, scale: int | None, bias: int | None, out: int, *kept: int) -> None:
        result = view_out(out)
        if not result.size:
            return
        given = wide(view_x(x)).reshape(divided.shape)
        mean, variance = moments(given, divided.axes)
        assert mean is not None
        inverse = 1 / np.sqrt(variance + variance.dtype.type(op.epsilon))
        parameters = divided.parameter(scale_of(scale)), divided.parameter(bias_of(bias))
        result[...] = normalised(given, mean, inverse, *parameters).reshape(result.shape)
        for view, address, value in zip(views, kept, (mean, inverse), strict=False):
            array = view(address)
            array[...] = value.reshape(array.shape)

    return work


@plans(BatchNormBackward, GroupNormBackward, InstanceNormBackward)
def backward(op: Any) -> Plan:
    """Called with ``(dy, x, mean, inverse, scale, dx, dscale, dbias)``."""
    batch = isinstance(op, BatchNormBackward)
    divided = Divided(op.x.shape, op.axis, None if batch else op.group_count())
    constant = batch and not op.training
    view_dy, view_x, view_mean, view_inverse = view_of(op.dy), view_of(op.x), view_of(op.mean), view_of(op.inverse)
    scale_of, view_dx = optional(op.scale), view_of_out(op, "dx")
    views = [view_of_out(op, name) for name in ("dscale", "dbias")] if op.scale is not None else []

    def work(dy: int, x: int, mean: int, inverse: int, scale: int | None, dx: int, *gradients: int) -> None:
        result = view_dx(dx)
        if not result.size:
            for view, address in zip(views, gradients, strict=False):
                view(address)[...] = 0
            return
        grad, given = wide(view_dy(dy)).reshape(divided.shape), wide(view_x(x)).reshape(divided.shape)
        middle, deviation = (v.reshape(divided.statistics) for v in (view_mean(mean), view_inverse(inverse)))
        factor = divided.parameter(scale_of(scale))
        found, hat = gradient(grad, given, middle, deviation, factor, divided.axes, constant=constant)
        sums = parameter_gradients(grad, hat, divided.summed) if views else ()
        result[...] = found.reshape(result.shape)
        for view, address, total in zip(views, gradients, sums, strict=False):
            view(address)[...] = total.reshape(-1)

    return work
