"""Plans of all norms, and of local response normalisation."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.torch.blas.forms import wide
from callboard.backends.torch.dnn.support import optional
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import dnn

__all__ = ["batch_inference", "batch_training", "channel_gradients", "each_item", "last_axes", "last_gradients", "lrn"]


def moments(x: Tensor, axes: Sequence[int], centred: bool = True) -> tuple[Any, Tensor]:
    """Mean, if it is taken, and variance along some axes, which stay with an extent of 1."""
    mean = x.mean(tuple(axes), keepdim=True) if centred else None
    away = x if mean is None else x - mean
    return mean, away.square().mean(tuple(axes), keepdim=True)


def normalised(x: Tensor, mean: Tensor | None, inverse: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    """``(x - mean) * inverse * scale + bias``; all broadcast."""
    y = (x if mean is None else x - mean) * inverse
    y = y if scale is None else y * scale
    return y if bias is None else y + bias


def gradient(
    dy: Tensor, x: Tensor, mean: Any, inverse: Tensor, scale: Any, axes: Sequence[int], constant: bool = False
) -> tuple[Tensor, Tensor]:
    """The gradient by ``x``, and ``(x - mean) * inverse``; ``constant``: the statistics do not follow from ``x``."""
    hat = (x if mean is None else x - mean) * inverse
    g = dy if scale is None else dy * scale
    if constant:
        return g * inverse, hat
    dx = g - hat * (g * hat).mean(tuple(axes), keepdim=True)
    return (dx if mean is None else dx - g.mean(tuple(axes), keepdim=True)) * inverse, hat


class Divided:
    """A view of ``[n, ..., channels, ...]`` in which what is normalised together spans whole axes."""

    def __init__(self, shape: tuple[int, ...], axis: int, groups: int | None) -> None:
        axis %= len(shape)
        channels = shape[axis]
        split = (channels,) if groups is None else (groups, channels // groups)
        self.shape = (*shape[:axis], *split, *shape[axis + 1 :])
        own = range(axis, axis + len(split))
        kept = {axis} if groups is None else {0, axis}
        self.axes = tuple(a for a in range(len(self.shape)) if a not in kept)
        self.statistics = tuple(n if a in kept else 1 for a, n in enumerate(self.shape))
        self.summed = tuple(a for a in range(len(self.shape)) if a not in own)
        self._parameters = tuple(n if a in own else 1 for a, n in enumerate(self.shape))

    def parameter(self, x: Any) -> Any:
        """A number for each channel, so that it broadcasts."""
        return None if x is None else wide(x).reshape(self._parameters)


@plans(dnn.BatchNorm)
def batch_inference(library: TorchLibrary, op: dnn.BatchNorm) -> Plan:
    """Return an array normalised by given statistics."""
    by = Divided(op.x.shape, op.axis, None)

    def work(x: Tensor, mean: Tensor, variance: Tensor, scale: Any, bias: Any) -> Tensor:
        inverse = 1 / torch.sqrt(by.parameter(variance) + op.epsilon)
        return normalised(wide(x), by.parameter(mean), inverse, by.parameter(scale), by.parameter(bias))

    return library.planned(op, work)


@plans(dnn.BatchNormTraining)
def batch_training(library: TorchLibrary, op: dnn.BatchNormTraining) -> Plan:
    """Return running statistics, the array, and its statistics."""
    by = Divided(op.x.shape, op.axis, None)
    count = op.x.size // max(op.x.shape[op.axis], 1)

    def work(x: Tensor, scale: Any, bias: Any, running_mean: Any, running_variance: Any, momentum: float) -> Any:
        if not x.numel():
            return running_mean, running_variance, x, None, None
        mean, variance = moments(wide(x), by.axes)
        inverse = 1 / torch.sqrt(variance + op.epsilon)
        found = normalised(wide(x), mean, inverse, by.parameter(scale), by.parameter(bias))
        fresh = mean.reshape(-1), variance.reshape(-1) * (count / (count - 1))
        running = [
            None if old is None else (1 - momentum) * old + momentum * new
            for old, new in zip((running_mean, running_variance), fresh, strict=True)
        ]
        return *running, found, mean.reshape(-1), inverse.reshape(-1)

    return library.planned(op, work)


@plans(dnn.GroupNorm, dnn.GroupNormTraining, dnn.InstanceNorm, dnn.InstanceNormTraining)
def each_item(library: TorchLibrary, op: Any) -> Plan:
    """Return items normalised each by itself."""
    by = Divided(op.x.shape, op.axis, op.group_count())
    keeps = isinstance(op, dnn.GroupNormTraining | dnn.InstanceNormTraining)
    items = (op.x.shape[0], op.group_count())

    def work(x: Tensor, scale: Any, bias: Any) -> Any:
        given = wide(x).reshape(by.shape)
        mean, variance = moments(given, by.axes)
        inverse = 1 / torch.sqrt(variance + op.epsilon)
        found = normalised(given, mean, inverse, by.parameter(scale), by.parameter(bias)).reshape(x.shape)
        return (found, mean.reshape(items), inverse.reshape(items)) if keeps else found

    return library.planned(op, work)


@plans(dnn.BatchNormBackward, dnn.GroupNormBackward, dnn.InstanceNormBackward)
def channel_gradients(library: TorchLibrary, op: Any) -> Plan:
    """Return the gradients by the array and by its parameters."""
    batch = isinstance(op, dnn.BatchNormBackward)
    by = Divided(op.x.shape, op.axis, None if batch else op.group_count())
    constant = batch and not op.training

    def work(dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, scale: Any) -> Any:
        grad, given = wide(dy).reshape(by.shape), wide(x).reshape(by.shape)
        middle, deviation = mean.reshape(by.statistics), inverse.reshape(by.statistics)
        found, hat = gradient(grad, given, middle, deviation, by.parameter(scale), by.axes, constant)
        sums = (grad * hat).sum(by.summed).reshape(-1), grad.sum(by.summed).reshape(-1)
        return found.reshape(x.shape), *(sums if scale is not None else (None, None))

    return library.planned(op, work)


@plans(dnn.LayerNorm, dnn.LayerNormTraining, dnn.RmsNorm, dnn.RmsNormTraining)
def last_axes(library: TorchLibrary, op: Any) -> Plan:
    """Return arrays normalised over their last axes."""
    centred = isinstance(op, dnn.LayerNorm | dnn.LayerNormTraining)
    keeps = isinstance(op, dnn.LayerNormTraining | dnn.RmsNormTraining)
    ndim = op.x.ndim
    last, items = range(ndim - op.axes, ndim), op.x.shape[: ndim - op.axes]

    def work(x: Tensor, scale: Any, bias: Any = None) -> Any:
        mean, variance = moments(wide(x), last, centred)
        inverse = 1 / torch.sqrt(variance + op.epsilon)
        found = normalised(wide(x), mean, inverse, optional(scale), optional(bias))
        kept = [y.reshape(items) for y in (mean, inverse) if y is not None]
        return (found, *kept) if keeps else found

    return library.planned(op, work)


@plans(dnn.LayerNormBackward, dnn.RmsNormBackward)
def last_gradients(library: TorchLibrary, op: Any) -> Plan:
    """Return the gradients by the array and by its parameters."""
    centred = isinstance(op, dnn.LayerNormBackward)
    ndim = op.x.ndim
    last, first = range(ndim - op.axes, ndim), tuple(range(ndim - op.axes))
    one = (slice(None),) * len(first) + (None,) * op.axes

    def work(dy: Tensor, x: Tensor, *rest: Any) -> Any:
        mean, inverse, scale = rest if centred else (None, *rest)
        grad = wide(dy)
        found, hat = gradient(grad, wide(x), None if mean is None else mean[one], inverse[one], optional(scale), last)
        products = grad * hat
        sums = (products.sum(first), grad.sum(first)) if first else (products, grad)
        return found, *((sums if centred else sums[:1]) if scale is not None else (None,) * (1 + centred))

    return library.planned(op, work)


def _window_sums(x: Tensor, axis: int, before: int, behind: int) -> Tensor:
    """The sum of each channel and its neighbours."""
    moved = torch.nn.functional.pad(x.movedim(axis, -1), (before, behind))
    return moved.unfold(-1, before + behind + 1, 1).sum(-1).movedim(-1, axis)


@plans(dnn.Lrn, dnn.LrnBackward)
def lrn(library: TorchLibrary, op: Any) -> Plan:
    """Return local response normalisation, or its gradient."""
    axis, half, rest = op.axis % op.x.ndim, op.size // 2, op.size - 1 - op.size // 2

    def work(*given: Tensor) -> Tensor:
        x = wide(given[-1])
        divisor = op.k + op.alpha / op.size * _window_sums(x * x, axis, half, rest)
        power = divisor**-op.beta
        if isinstance(op, dnn.Lrn):
            return x * power
        dy = wide(given[0])
        sums = _window_sums(
            dy * x * power / divisor, axis, rest, half
        )  # a channel is in the windows of those before it
        return dy * power - 2 * op.alpha * op.beta / op.size * x * sums

    return library.planned(op, work)
