"""Plans of convolutions and pooling."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from callboard.backends.torch.blas.forms import wide
from callboard.backends.torch.dnn.support import accumulating, channels_first, channels_last
from callboard.backends.torch.elementwise.machine import Machine
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import plans
from callboard.core.operand import Placeholder
from callboard.kernel import dnn
from callboard.kernel.dnn.checks import image_of
from callboard.kernel.dnn.conv import Geometry, geometry_of
from callboard.kernel.dnn.epilogues import epilogue_of
from callboard.kernel.dnn.pooling import counts_of, windows_of

__all__ = ["average", "convolution", "forward", "gradients", "largest", "largest_gradient"]


def _pads(pairs: Any) -> list[int]:
    return [n for pair in reversed(pairs) for n in pair]


def forward(x: Tensor, w: Tensor, g: Geometry) -> Tensor:
    """``[n, k, *result]`` of ``x [n, c, *spatial]`` and ``w [k, c / groups, *window]``."""
    if 0 in x.shape or 0 in w.shape:
        return torch.zeros(g.result.batch, g.result.channels, *g.result.spatial, dtype=x.dtype, device=x.device)
    convolve = getattr(torch.nn.functional, f"conv{len(g.window)}d")
    return convolve(torch.nn.functional.pad(x, _pads(g.padding)), w, None, g.stride, 0, g.dilation, g.groups)


def _backward(dy: Tensor, x: Tensor, w: Tensor, g: Geometry, by_image: bool) -> Tensor:
    """The gradient by the image or by the filter; of the other one only the shape counts."""
    padded = torch.nn.functional.pad(x, _pads(g.padding))
    if not dy.numel() or not padded.numel() or not w.numel():
        return torch.zeros_like(x if by_image else w)
    settings = (None, g.stride, [0] * len(g.window), g.dilation, False, [0] * len(g.window), g.groups)
    found = torch.ops.aten.convolution_backward(dy, padded, w, *settings, [by_image, not by_image, False])
    if not by_image:
        return found[1]
    pairs = zip(g.image.spatial, g.padding, strict=True)
    return found[0][(..., *(slice(before, before + n) for n, (before, _) in pairs))]


@plans(dnn.Conv)
def convolution(library: TorchLibrary, op: dnn.Conv) -> Plan:
    """Return a convolution, and what follows it."""
    g, made = geometry_of(op), op.infer()["out"].dtype
    plain = op.bias is None and op.residual is None and op.activation is None and op.scale is None
    is_i8 = op.x.dtype.name == "i8"
    sums = DTYPES["f64" if is_i8 or op.x.dtype.name == "f64" else "f32"]
    dtypes = {n: None if getattr(op, n) is None else getattr(op, n).dtype for n in ("bias", "residual")}
    finish = Machine(epilogue_of(sums, made, activation=op.activation, scale=op.scale, **dtypes), library.where)

    def work(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
        x, w = (channels_first(y.to(torch.float64) if is_i8 else wide(y), op.layout) for y in (x, w))
        found = forward(x, w, g)
        if not plain:
            given = [found]
            given += [] if bias is None else [bias.reshape(1, -1, *[1] * len(g.window))]
            given += [] if residual is None else [channels_first(residual, op.layout)]
            found = finish.stored(given, ())[0]
        return channels_last(found, op.layout)

    return library.planned(op, accumulating(op, work))


@plans(dnn.ConvBackwardData, dnn.ConvBackwardFilter, dnn.ConvTranspose)
def gradients(library: TorchLibrary, op: Any) -> Plan:
    """Return a gradient of a convolution."""
    g, by_image = geometry_of(op), not isinstance(op, dnn.ConvBackwardFilter)
    image = (g.image.batch, g.image.channels, *g.image.spatial)
    filters = (g.result.channels, g.image.channels // g.groups, *g.window)

    def work(one: Tensor, other: Tensor) -> Tensor:
        one, other = (channels_first(wide(y), op.layout) for y in (one, other))
        if by_image:
            found = _backward(one, one.new_empty(image), other, g, True)
        else:
            found = _backward(other, one, one.new_empty(filters), g, False)
        return channels_last(found, op.layout)

    return library.planned(op, accumulating(op, work))


class Places:
    """The windows of an array, and what each of their elements covers of the padded array."""

    def __init__(self, op: Any) -> None:
        pooled = getattr(op, "x", None) or Placeholder(layout_of(DTYPES["f32"], op.shape))
        self.spatial = image_of(op, "x", pooled, op.layout).spatial
        self.windows = windows_of(op, len(self.spatial))
        self.counts = counts_of(op, self.windows, self.spatial)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        w = self.windows
        for place in itertools.product(*map(range, w.extent)):
            met = zip(place, w.dilation, w.stride, self.counts, strict=True)
            yield (..., *(slice(q * d, q * d + (many - 1) * s + 1, s) for q, d, s, many in met))

    def padded(self, x: Tensor, fill: float) -> Tensor:
        return torch.nn.functional.pad(x, _pads(self.windows.padding), value=fill)

    def inner(self, x: Tensor) -> Tensor:
        """The array within the padded one."""
        pairs = zip(self.spatial, self.windows.padding, strict=True)
        return x[(..., *(slice(before, before + n) for n, (before, _) in pairs))]

    def plane(self, where: Any) -> Tensor:
        """The place of each element, -1 in the padding."""
        return self.padded(torch.arange(math.prod(self.spatial), device=where).reshape(self.spatial), -1)


@plans(dnn.AvgPool, dnn.AvgPoolBackward)
def average(library: TorchLibrary, op: Any) -> Plan:
    """Return averages of windows, or their gradient."""
    places = Places(op)

    def work(given: Tensor) -> Tensor:
        x = channels_first(wide(given), op.layout)
        by: Any = math.prod(places.windows.extent)
        if not op.count_include_pad:
            ones = places.padded(torch.ones(places.spatial, dtype=x.dtype, device=x.device), 0)
            by = sum(ones[part] for part in places)
        if isinstance(op, dnn.AvgPool):
            array = places.padded(x, 0)
            return channels_last(sum(array[part] for part in places) / by, op.layout)
        sums = places.padded(torch.zeros(*x.shape[:2], *places.spatial, dtype=x.dtype, device=x.device), 0)
        for part in places:
            sums[part] += x / by
        return channels_last(places.inner(sums), op.layout)

    return library.planned(op, work)


@plans(dnn.MaxPool, dnn.MaxPoolIndices)
def largest(library: TorchLibrary, op: Any) -> Plan:
    """Return the largest elements and where they are; of equal ones, and of several NaN, the first."""
    places = Places(op)

    def work(given: Tensor) -> Any:
        x = channels_first(given, op.layout)
        array, plane = places.padded(x, -math.inf), places.plane(x.device)
        shape = (*x.shape[:2], *places.counts)
        best = torch.full(shape, -math.inf, dtype=x.dtype, device=x.device)
        at = torch.full(shape, -1, dtype=torch.int64, device=x.device)
        for part in places:
            value, place = array[part], plane[part].expand(shape)
            better = (place >= 0) & ((at < 0) | (value > best) | (torch.isnan(value) & ~torch.isnan(best)))
            best, at = torch.where(better, value, best), torch.where(better, place, at)
        found = channels_last(best, op.layout)
        return found if isinstance(op, dnn.MaxPool) else (found, channels_last(at, op.layout))

    return library.planned(op, work)


@plans(dnn.MaxPoolBackward)
def largest_gradient(library: TorchLibrary, op: dnn.MaxPoolBackward) -> Plan:
    """Return the gradient of the largest elements."""
    places = Places(op)

    def work(dy: Tensor, indices: Tensor) -> Tensor:
        dy, at = channels_first(wide(dy), op.layout), channels_first(indices, op.layout)
        sums = places.padded(torch.zeros(*dy.shape[:2], *places.spatial, dtype=dy.dtype, device=dy.device), 0)
        plane = places.plane(dy.device)
        for part in places:
            sums[part] += torch.where(plane[part] == at, dy, 0)
        return channels_last(places.inner(sums), op.layout)

    return library.planned(op, work)
