"""Resizing along axes: each axis is a selection, or a product with a matrix of weights that the host computes.

The weights are those of ONNX's reference (`onnx/reference/ops/op_resize.py`): cubic ones by Keys, "Cubic convolution
interpolation for digital image processing", 1981.
"""

import math
from typing import Any

import numpy as np

from callboard.kernel.engine.mapped.tools import Tools, Value, name_of, operator

__all__: list[str] = []

Array = np.ndarray[Any, Any]


@operator("Resize", since=11)
def resize(
    t: Tools,
    x: Value,
    roi: Value = None,
    scales: Value = None,
    sizes: Value = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: bytes = b"half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: bytes = b"stretch",
    mode: bytes = b"nearest",
    nearest_mode: bytes = b"round_prefer_floor",
) -> Value:
    along = [t.axis(axis, x.ndim) for axis in (axes if axes is not None else range(x.ndim))]
    policy = keep_aspect_ratio_policy if sizes is not None else b"stretch"
    factors, extents = _extents(t, x, along, scales, sizes, policy)
    corners = _corners(t, roi, len(along)) if coordinate_transformation_mode == b"tf_crop_and_resize" else {}
    dtype, shape = name_of(x), list(x.shape)
    for axis, length in zip(along, extents, strict=True):
        shape[axis] = length
        t.sized(shape, x)
        t.sized([length])  # its places, on the host
    for at, axis in enumerate(along):
        if extents[at] == x.shape[axis] and factors[at] == 1.0 and corners.get(at, (0.0, 1.0)) == (0.0, 1.0):
            continue
        places, outside = _places(
            x.shape[axis], extents[at], factors[at], coordinate_transformation_mode, corners.get(at)
        )
        if mode == b"nearest":
            nearest = np.clip(_nearest(places, nearest_mode), 0, x.shape[axis] - 1).astype(np.int64)
            xp, (a, i) = t.both(x, nearest)
            x = xp.take(a, i, axis=axis)
        else:
            weights = _weights(
                t, places, x.shape[axis], factors[at], mode == b"cubic", bool(antialias), cubic_coeff_a, exclude_outside
            )
            weights[outside] = 0.0
            x = _product(t, x, axis, weights)
        if outside.any():
            shape = [-1 if other == axis else 1 for other in range(x.ndim)]
            fill = t.cast(np.array(extrapolation_value), name_of(x))
            xp, (c, a, b) = t.both(outside.reshape(shape), fill, x)
            x = xp.where(c, a, b)
    return t.cast(x, dtype)


@operator("Upsample", since=9)
def upsample(t: Tools, x: Value, scales: Value, *, mode: bytes = b"nearest") -> Value:
    return resize(t, x, None, scales, mode=mode, nearest_mode=b"floor", coordinate_transformation_mode=b"asymmetric")


def _extents(
    t: Tools, x: Value, along: list[int], scales: Value, sizes: Value, policy: bytes
) -> tuple[list[float], list[int]]:
    """Factor and extent of each axis."""
    if sizes is None:
        factors = [float(each) for each in t.host(scales, "scales").ravel()]
        return factors, [math.floor(n * x.shape[axis]) for n, axis in zip(factors, along, strict=True)]
    extents = t.ints(sizes, "sizes")
    factors = [n / x.shape[axis] for n, axis in zip(extents, along, strict=True)]
    if policy == b"stretch":
        return factors, extents
    one = min(factors) if policy == b"not_larger" else max(factors)
    return [one] * len(along), [int(one * x.shape[axis] + 0.5) for axis in along]


def _corners(t: Tools, roi: Value, count: int) -> dict[int, tuple[float, float]]:
    """The region of interest along each axis, as parts of its extent."""
    numbers = [float(each) for each in t.host(roi, "roi").ravel()]
    return {at: (numbers[at], numbers[at + count]) for at in range(count)}


def _places(
    extent: int, length: int, factor: float, mode: bytes, corner: tuple[float, float] | None
) -> tuple[Array, Array]:
    """Where each output lies among the inputs, and which lie outside of the region of interest's image."""
    out = np.arange(length, dtype=np.float64)
    wide = factor * extent
    inside = np.zeros(length, bool)
    if mode == b"align_corners":
        return (out * 0.0 if wide == 1 else out * (extent - 1) / (wide - 1)), inside
    if mode == b"asymmetric":
        return out / factor, inside
    if corner is not None:
        first, last = corner
        if wide == 1:
            places = np.full(length, (last - first) * (extent - 1) / 2)
        else:
            places = out * (last - first) * (extent - 1) / (wide - 1)
        places = places + first * (extent - 1)
        return places, (places < 0) | (places > extent - 1)
    if mode == b"pytorch_half_pixel" and wide == 1:
        return np.full(length, -0.5), inside
    places = (out + 0.5) / factor - 0.5
    if mode == b"half_pixel_symmetric":
        places = places + extent / 2 * (1 - length / wide)
    return places, inside


def _nearest(places: Array, mode: bytes) -> Array:
    if mode == b"floor":
        return np.floor(places)
    if mode == b"ceil":
        return np.ceil(places)
    return np.ceil(places - 0.5) if mode == b"round_prefer_floor" else np.floor(places + 0.5)


def _weights(
    t: Tools, places: Array, extent: int, factor: float, cubic: bool, antialias: bool, a: float, exclude: int
) -> Array:
    """The matrix [outputs, inputs] of an axis."""
    shrink = min(factor, 1.0) if antialias else 1.0
    reach = math.ceil((2 if cubic else 1) / shrink)
    for columns in (extent, 2 * reach):
        t.sized((len(places), columns))
    base = np.ceil(places).astype(np.int64) - 1  # of whole numbers the lower neighbour, as in the reference
    near = base[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(near - places[:, None]) * shrink
    if cubic:
        one = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        two = ((distance - 5) * distance + 8) * distance * a - 4 * a
        found = np.where(distance <= 1, one, np.where(distance < 2, two, 0.0))
    else:
        found = np.clip(1 - distance, 0, 1)
    if exclude:
        found = np.where((near < 0) | (near >= extent), 0.0, found)
    if exclude or antialias:
        found = found / found.sum(axis=1, keepdims=True)
    matrix = np.zeros((len(places), extent))
    rows = np.broadcast_to(np.arange(len(places))[:, None], near.shape)
    np.add.at(matrix, (rows, np.clip(near, 0, extent - 1)), found)
    return matrix


def _product(t: Tools, x: Value, axis: int, weights: Array) -> Value:
    """The matrix times the lines along an axis."""
    dtype = name_of(x) if name_of(x) in ("f32", "f64") else "f32"
    xp, (a, w) = t.both(t.cast(x, dtype), t.cast(weights, dtype))
    moved = xp.matmul(xp.moveaxis(a, axis, -1), xp.matrix_transpose(w))
    return xp.moveaxis(moved, -1, axis)


@operator("CenterCropPad")
def center_crop_pad(t: Tools, x: Value, shape: Value, *, axes: list[int] | None = None) -> Value:
    along = [t.axis(axis, x.ndim) for axis in (axes if axes is not None else range(x.ndim))]
    for axis, wanted in zip(along, t.ints(shape, "shape"), strict=True):
        t.sized((*x.shape[:axis], wanted, *x.shape[axis + 1 :]), x)
        extent = x.shape[axis]
        if wanted <= extent:
            first = (extent - wanted) // 2
            x = x[(slice(None),) * axis + (slice(first, first + wanted),)]
            continue
        first = (wanted - extent) // 2
        parts = [
            t.cast(np.zeros(t.sized((*x.shape[:axis], length, *x.shape[axis + 1 :]))), name_of(x))
            for length in (first, wanted - extent - first)
        ]
        xp, given = t.both(*[part for part in (parts[0], x, parts[1]) if part.shape[axis]])
        x = xp.concat(given, axis=axis)
    return x
