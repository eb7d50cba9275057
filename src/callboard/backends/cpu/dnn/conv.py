"""Convolutions on the CPU: products of matrices whose columns are the receptive fields of the result.

If PyTorch is installed, large convolutions use it (oneDNN), with the same dtype.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn import by_torch
from callboard.backends.cpu.dnn.accumulating import accumulating
from callboard.backends.cpu.dnn.images import Array, compute_type, viewer_of_image
from callboard.backends.cpu.elementwise.mapped import MapPlan
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
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

__all__ = ["convolution", "data_gradient", "filter_gradient", "transpose"]

MOST = 1 << 21
"""Elements of columns at a time, if one image needs at most as many."""

Plan = Callable[..., None]
Index = tuple[Any, ...]


def offsets(g: Geometry) -> Iterator[tuple[Index, Index]]:
    """Yield the elements of a filter, each as an index with the index of its counterparts in a padded image."""
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


def padded(x: Array, g: Geometry, wide: Any) -> Array:
    """``[n, c, ...]`` as ``[c, n, ...]`` with the padding."""
    if not any(map(any, g.padding)):
        return np.ascontiguousarray(x.swapaxes(0, 1), wide)
    image = np.zeros(padded_shape(g), wide)
    image[inner(g)] = x.swapaxes(0, 1)
    return image


class Columns:
    """The im2col matrix: one column of inputs per output position, for a part of the batch at a time.

    Args:
        g: The convolution.

    Attributes:
        height: Rows of a column: the channels of a group times the elements of a filter.
        results: Channels of the result of a group.
        batches: Slices of the batch, each with few enough columns.
    """

    def __init__(self, g: Geometry) -> None:
        self._g, self._met = g, [met for _, met in offsets(g)]
        self._c = g.image.channels // g.groups
        self._places = math.prod(g.result.spatial)
        self.height, self.results = self._c * len(self._met), g.result.channels // g.groups
        step = max(1, MOST // max(1, g.groups * self.height * self._places))
        self.batches = [slice(at, min(at + step, g.image.batch)) for at in range(0, g.image.batch, step)]

    def _parts(self, batch: slice) -> tuple[int, ...]:
        many = batch.stop - batch.start
        return (self._g.groups, self._c, len(self._met), many, *self._g.result.spatial)

    def gathered(self, image: Array, batch: slice) -> Array:
        """``[groups, height, columns]`` of a padded image."""
        shape = self._parts(batch)
        found = np.empty(shape, image.dtype)
        part = image[:, batch].reshape(*shape[:2], shape[3], *image.shape[2:])
        for i, met in enumerate(self._met):
            found[:, :, i] = part[met]
        return found.reshape(shape[0], self.height, shape[3] * self._places)

    def scattered(self, columns: Array, image: Array, batch: slice) -> None:
        """Add the columns to the image elements that they came from."""
        shape = self._parts(batch)
        parts = columns.reshape(shape)
        whole = image[:, batch].reshape(*shape[:2], shape[3], *image.shape[2:])
        for i, met in enumerate(self._met):
            whole[met] += parts[:, :, i]
        image[:, batch] = whole.reshape(image[:, batch].shape)

    def of_result(self, gradient: Array, batch: slice, wide: Any) -> Array:
        """``[groups, k, columns]`` of ``[n, k, *result]``."""
        part = np.ascontiguousarray(gradient[batch].swapaxes(0, 1), wide)
        return part.reshape(self._g.groups, self.results, (batch.stop - batch.start) * self._places)


def forward(x: Array, w: Array, g: Geometry, wide: Any) -> Array:
    """``[n, k, *result]`` of ``x [n, c, *spatial]`` and ``w [k, c / groups, *window]``."""
    image, columns = padded(x, g, wide), Columns(g)
    filters = np.ascontiguousarray(w, wide).reshape(g.groups, columns.results, columns.height)
    out = np.empty((g.result.channels, g.result.batch, *g.result.spatial), wide)
    for batch in columns.batches:
        out[:, batch] = np.matmul(filters, columns.gathered(image, batch)).reshape(out[:, batch].shape)
    return out.swapaxes(0, 1)


def backward_data(dy: Array, w: Array, g: Geometry, wide: Any) -> Array:
    """``[n, c, *spatial]``: the transpose of :func:`forward` as a function of the image."""
    image, columns = np.zeros(padded_shape(g), wide), Columns(g)
    filters = np.ascontiguousarray(w, wide).reshape(g.groups, columns.results, columns.height).swapaxes(1, 2)
    for batch in columns.batches:
        columns.scattered(np.matmul(filters, columns.of_result(dy, batch, wide)), image, batch)
    return image[inner(g)].swapaxes(0, 1)


def backward_filter(x: Array, dy: Array, g: Geometry, wide: Any) -> Array:
    """``[k, c / groups, *window]``: the transpose of :func:`forward` as a function of the filter."""
    image, columns = padded(x, g, wide), Columns(g)
    filters = np.zeros((g.groups, columns.results, columns.height), wide)
    for batch in columns.batches:
        filters += np.matmul(columns.of_result(dy, batch, wide), columns.gathered(image, batch).swapaxes(1, 2))
    return filters.reshape(g.result.channels, g.image.channels // g.groups, *g.window)


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


@plans(ConvBackwardData, inline=False)
@accumulating
def data_gradient(op: ConvBackwardData) -> Plan:
    """``plan(dy, w, out)``."""
    return _product(op, "backward_data", op.dy, op.w)


@plans(ConvBackwardFilter, inline=False)
@accumulating
def filter_gradient(op: ConvBackwardFilter) -> Plan:
    """``plan(x, dy, out)``."""
    return _product(op, "backward_filter", op.x, op.dy)


@plans(ConvTranspose, inline=False)
@accumulating
def transpose(op: ConvTranspose) -> Plan:
    """``plan(x, w, out)``."""
    return _product(op, "backward_data", op.x, op.w)


def _product(op: Any, kind: str, one: Operand, other: Operand) -> Plan:
    layouts = one.layout, other.layout, _given(op.out, op.infer()["out"])
    views = [viewer_of_image(layout, op.layout) for layout in layouts]
    work = computed(kind, geometry_of(op), compute_type(one.dtype))

    def run(a: int, b: int, out: int) -> None:
        views[2](out)[...] = work(views[0](a), views[1](b))

    return run


@plans(Conv, inline=False)
@accumulating
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
    """Return the plan applied to sums of shape ``[n, k, ...]``; all arrays are viewed in that order."""
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
