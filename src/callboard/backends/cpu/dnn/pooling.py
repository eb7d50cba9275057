"""Pooling on the CPU: a pass over the array for each element of a window."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.images import Array, compute_type, viewer_of_image
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import plans
from callboard.core.operand import Placeholder
from callboard.kernel.dnn.checks import image_of
from callboard.kernel.dnn.pooling import (
    AvgPool,
    AvgPoolBackward,
    MaxPool,
    MaxPoolBackward,
    MaxPoolIndices,
    Windows,
    counts_of,
    windows_of,
)

__all__ = ["average", "average_backward", "maximum", "maximum_backward", "maximum_indices"]

Plan = Callable[..., None]
Index = tuple[Any, ...]


class Places:
    """The windows of an array, and the elements of the padded array that each element of a window covers.

    Attributes:
        windows: Windows of the op.
        spatial: Spatial extents of the array.
        counts: Number of windows along each axis.
    """

    def __init__(self, op: Any, spatial: tuple[int, ...]) -> None:
        self.windows: Windows = windows_of(op, len(spatial))
        self.spatial = spatial
        self.counts = counts_of(op, self.windows, spatial)

    def __iter__(self) -> Iterator[Index]:
        """Yield, per window element, an index into the padded array, with all axes before the spatial ones."""
        w = self.windows
        for place in itertools.product(*map(range, w.extent)):
            met = zip(place, w.dilation, w.stride, self.counts, strict=True)
            yield (..., *(slice(q * d, q * d + (many - 1) * s + 1, s) for q, d, s, many in met))

    def padded(self, x: Array, fill: Any) -> Array:
        """With the padding around the spatial axes, which are the last."""
        pads = [(0, 0)] * (x.ndim - len(self.spatial)) + list(self.windows.padding)
        return np.pad(x, pads, constant_values=fill)

    def inner(self) -> Index:
        """The array within the padded one."""
        pairs = zip(self.spatial, self.windows.padding, strict=True)
        return (..., *(slice(before, before + n) for n, (before, _) in pairs))

    def divisors(self, include_pad: bool, wide: Any) -> Any:
        """The divisor of each window's average: a number, or one per window."""
        if include_pad:
            return wide(np.prod(self.windows.extent))
        ones = self.padded(np.ones(self.spatial, wide), 0)
        return sum(ones[part] for part in self)


def spatial_of(op: Any) -> tuple[int, ...]:
    """The spatial extents of the pooled array."""
    pooled = getattr(op, "x", None) or Placeholder(layout_of(DTYPES["f32"], op.shape))
    return image_of(op, "x", pooled, op.layout).spatial


def views(op: Any, *names: str) -> list[Callable[[int], Array]]:
    """The operands and results at their addresses, ``[n, c, ...]``."""
    layouts = [op.infer()[name] if getattr(op, name) is None else getattr(op, name).layout for name in names]
    return [viewer_of_image(layout, op.layout) for layout in layouts]


@plans(AvgPool)
def average(op: AvgPool) -> Plan:
    """``plan(x, out)``."""
    (read, write), places, wide = views(op, "x", "out"), Places(op, spatial_of(op)), compute_type(op.x.dtype)
    by = places.divisors(op.count_include_pad, wide)

    def work(x: int, out: int) -> None:
        array = places.padded(read(x).astype(wide), 0)
        write(out)[...] = sum(array[part] for part in places) / by

    return work


@plans(AvgPoolBackward)
def average_backward(op: AvgPoolBackward) -> Plan:
    """``plan(dy, out)``."""
    (read, write), places, wide = views(op, "dy", "out"), Places(op, spatial_of(op)), compute_type(op.dy.dtype)
    by = places.divisors(op.count_include_pad, wide)

    def work(dy: int, out: int) -> None:
        share, target = read(dy).astype(wide) / by, write(out)
        sums = places.padded(np.zeros(target.shape, wide), 0)
        for part in places:
            sums[part] += share
        target[...] = sums[places.inner()]

    return work


def largest(places: Places, x: Array) -> tuple[Array, Array]:
    """The largest elements and where they are; of equal ones, and of several NaN, the first."""
    array = places.padded(x, -np.inf)
    plane = places.padded(np.arange(int(np.prod(places.spatial)), dtype=np.int32).reshape(places.spatial), -1)
    shape = (*x.shape[:2], *places.counts)
    best, at = np.full(shape, -np.inf, x.dtype), np.full(shape, -1, np.int32)
    for part in places:
        value, place = array[part], np.broadcast_to(plane[part], shape)
        better = (place >= 0) & ((at < 0) | (value > best) | (np.isnan(value) & ~np.isnan(best)))
        np.copyto(best, value, where=better)
        np.copyto(at, place, where=better)
    return best, at


@plans(MaxPool)
def maximum(op: MaxPool) -> Plan:
    """``plan(x, out)``."""
    (read, write), places = views(op, "x", "out"), Places(op, spatial_of(op))

    def work(x: int, out: int) -> None:
        write(out)[...] = largest(places, read(x))[0]

    return work


@plans(MaxPoolIndices)
def maximum_indices(op: MaxPoolIndices) -> Plan:
    """``plan(x, out, indices)``."""
    (read, write, mark), places = views(op, "x", "out", "indices"), Places(op, spatial_of(op))

    def work(x: int, out: int, indices: int) -> None:
        write(out)[...], mark(indices)[...] = largest(places, read(x))

    return work


@plans(MaxPoolBackward)
def maximum_backward(op: MaxPoolBackward) -> Plan:
    """``plan(dy, indices, out)``."""
    read, look, write = views(op, "dy", "indices", "out")
    places, wide = Places(op, spatial_of(op)), compute_type(op.dy.dtype)

    def work(dy: int, indices: int, out: int) -> None:
        gradient, at, target = read(dy).astype(wide), look(indices), write(out)
        sums = places.padded(np.zeros(target.shape, wide), 0)
        plane = places.padded(np.arange(int(np.prod(places.spatial)), dtype=np.int32).reshape(places.spatial), -1)
        for part in places:
            sums[part] += np.where(plane[part] == at, gradient, wide(0))
        target[...] = sums[places.inner()]

    return work
