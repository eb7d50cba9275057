"""Convolutions on the CPU: a matrix product for each element of the filter, so no memory beside the operands' size.

Where PyTorch is installed, large convolutions are its own (oneDNN), in the same type.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn import by_torch
from callboard.backends.cpu.dnn.images import Array, compute_type, viewer_of_image
from callboard.backends.cpu.elementwise.mapping import MapPlan
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.library import Entry
from callboard.core.operand import Operand
from callboard.kernel.dnn.conv import (
    Conv,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvTranspose,
    Geometry,
    geometry_of,
)
from callboard.kernel.dnn.epilogues import epilogue_of
from callboard.kernel.dnn.layouts import channels_first, of_channels

__all__ = ["TABLE"]

Plan = Callable[..., None]
Index = tuple[Any, ...]


def offsets(g: Geometry) -> Iterator[tuple[Index, Index]]:
    """The elements of a filter, as an index of it, each with what it meets in a padded image, as an index of that."""
    for place in itertools.product(*map(range, g.window)):
        met = zip(place, g.dilation, g.stride, g.result.spatial, strict=True)
        yield (..., *place), (..., *(slice(q * d, q * d + (many - 1) * s + 1, s) for q, d, s, many in met))


def padded_shape(g: Geometry) -> tuple[int, ...]:
    """``[c, n, *spatial]`` with the padding."""
    spatial = tuple(n + sum(pair) for n, pair in zip(g.image.spatial, g.padding, strict=True))
    return (g.image.channels, g.image.batch, *spatial)


def inner(g: Geometry) -> Index:
    """The image within the padded one."""
    pairs = zip(g.image.spatial, g.padding, strict=True)
    return (slice(None), slice(None), *(slice(before, before + n) for n, (before, _) in pairs))


def channels_major(array: Array, wide: Any) -> Array:
    """``[n, c, ...]`` as ``[c, n, ...]``, without gaps."""
    return np.ascontiguousarray(array.swapaxes(0, 1), wide)


def forward(x: Array, w: Array, g: Geometry, wide: Any) -> Array:
    """``[n, k, *result]`` of ``x [n, c, *spatial]`` and ``w [k, c / groups, *window]``."""
    image = np.zeros(padded_shape(g), wide)
    image[inner(g)] = x.swapaxes(0, 1)
    groups, k = g.groups, g.result.channels // g.groups
    filters = w.reshape(groups, k, *w.shape[1:]).astype(wide)
    many = g.result.batch * int(np.prod(g.result.spatial))
    sums = np.zeros((groups, k, many), wide)
    for place, met in offsets(g):
        part = image[met].reshape(groups, -1, many)
        sums += np.matmul(filters[place], part)
    return sums.reshape(g.result.channels, g.result.batch, *g.result.spatial).swapaxes(0, 1)


def backward_data(dy: Array, w: Array, g: Geometry, wide: Any) -> Array:
    """``[n, c, *spatial]``: the transpose of :func:`forward` as a function of the image."""
    groups, k = g.groups, g.result.channels // g.groups
    filters = w.reshape(groups, k, *w.shape[1:]).astype(wide)
    many = g.result.batch * int(np.prod(g.result.spatial))
    gradient = channels_major(dy, wide).reshape(groups, k, many)
    image = np.zeros(padded_shape(g), wide)
    shape = (g.image.channels, g.result.batch, *g.result.spatial)
    for place, met in offsets(g):
        image[met] += np.matmul(filters[place].swapaxes(1, 2), gradient).reshape(shape)
    return image[inner(g)].swapaxes(0, 1)


def backward_filter(x: Array, dy: Array, g: Geometry, wide: Any) -> Array:
    """``[k, c / groups, *window]``: the transpose of :func:`forward` as a function of the filter."""
    image = np.zeros(padded_shape(g), wide)
    image[inner(g)] = x.swapaxes(0, 1)
    groups, k = g.groups, g.result.channels // g.groups
    many = g.result.batch * int(np.prod(g.result.spatial))
    gradient = channels_major(dy, wide).reshape(groups, k, many)
    filters = np.empty((groups, k, g.image.channels // groups, *g.window), wide)
    for place, met in offsets(g):
        part = image[met].reshape(groups, -1, many)
        filters[place] = np.matmul(gradient, part.swapaxes(1, 2))
    return filters.reshape(g.result.channels, -1, *g.window)


COMPUTED: dict[str, Callable[[Array, Array, Geometry, Any], Array]] = {
    "forward": forward,
    "backward_data": backward_data,
    "backward_filter": backward_filter,
}


def computed(kind: str, g: Geometry, wide: Any) -> Callable[[Array, Array], Array]:
    """The work of a kind, by NumPy or by PyTorch."""
    if by_torch.is_better(g, wide):
        return by_torch.convolution(kind, g)
    work = COMPUTED[kind]
    return lambda one, other: work(one, other, g, wide)


def gradient(kind: str, first: str, second: str) -> Callable[[Any], Plan]:
    """``plan(first, second, out)``, with operands under their names."""

    def make(op: Any) -> Plan:
        one, other = getattr(op, first).layout, getattr(op, second).layout
        views = [viewer_of_image(layout, op.layout) for layout in (one, other, _given(op.out, op.infer()["out"]))]
        work = computed(kind, geometry_of(op), compute_type(one.dtype))

        def run(a: int, b: int, out: int) -> None:
            views[2](out)[...] = work(views[0](a), views[1](b))

        return run

    return make


def convolution(op: Conv) -> Plan:
    """``plan(x, w, out, bias, residual)``."""
    made = _given(op.out, op.infer()["out"])
    read_x, read_w = viewer_of_image(op.x.layout, op.layout), viewer_of_image(op.w.layout, op.layout)
    is_i8 = op.x.dtype.name == "i8"
    wide: Any = np.float64 if is_i8 else compute_type(op.x.dtype)  # f64 holds sums of products of i8 exactly
    work = computed("forward", geometry_of(op), wide)
    if op.bias is None and op.residual is None and op.activation is None and op.scale is None:
        write = viewer_of_image(made, op.layout)

        def plain(x: int, w: int, out: int, bias: int | None, residual: int | None) -> None:
            write(out)[...] = work(read_x(x), read_w(w))

        return plain
    finish = _finishing(op, made, DTYPES["f64" if wide is np.float64 else "f32"])

    def finished(x: int, w: int, out: int, bias: int | None, residual: int | None) -> None:
        sums = np.ascontiguousarray(work(read_x(x), read_w(w)))
        finish([sums.ctypes.data, *(at for at in (bias, residual) if at is not None)], None, [out])

    return finished


def _finishing(op: Conv, made: Layout, sums: DType) -> MapPlan:
    """What follows, on sums that lie ``[n, k, ...]``; all arrays are looked at in that order."""
    out = channels_first(made, op.layout)
    operands = [layout_of(sums, out.shape)]
    if op.bias is not None:
        operands.append(of_channels(op.bias.layout, out.ndim))
    if op.residual is not None:
        operands.append(channels_first(op.residual.layout, op.layout))
    program = epilogue_of(
        sums, made.dtype, bias=None if op.bias is None else op.bias.dtype,
        residual=None if op.residual is None else op.residual.dtype, activation=op.activation, scale=op.scale,
    )  # fmt: skip
    return MapPlan(program, out.shape, operands, [out])


def _given(out: Operand | None, made: Layout) -> Layout:
    return made if out is None else out.layout


TABLE = {
    Conv: Entry(lambda _, op: convolution(op)),
    ConvBackwardData: Entry(lambda _, op: gradient("backward_data", "dy", "w")(op)),
    ConvBackwardFilter: Entry(lambda _, op: gradient("backward_filter", "x", "dy")(op)),
    ConvTranspose: Entry(lambda _, op: gradient("backward_data", "x", "w")(op)),
}
