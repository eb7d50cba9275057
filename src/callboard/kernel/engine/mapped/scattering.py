"""Operators that write or read at places: scatter, gather of tuples, sequences of other lengths."""

import math
from typing import Any

import numpy as np

from callboard.core.operand import Operand
from callboard.kernel.engine.mapped.tools import Tools, Value, name_of, operator
from callboard.kernel.memory import Copy

__all__: list[str] = []


def _open(shape: tuple[int, ...]) -> list["np.ndarray[Any, Any]"]:
    """The places of an array of this shape along each axis."""
    return [np.broadcast_to(each, shape) for each in np.indices(shape, sparse=True)]


def _written(t: Tools, x: Value, places: tuple[Any, ...], updates: Value, reduction: bytes) -> Value:
    """A copy of ``x`` with ``updates`` at the places."""
    if reduction != b"none":
        raise t.refusal(f"the reduction {reduction.decode()} is not mapped")
    x = t.ref(x)
    found = t.submit(Copy(src=x))
    found[tuple(t.ref(place) for place in places)] = t.ref(updates)
    return found


@operator("ScatterElements", "Scatter", since=9)
def scatter_elements(
    t: Tools, x: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: bytes = b"none"
) -> Value:
    axis = t.axis(axis, x.ndim)
    t.expect(indices, "indices", *[None] * x.ndim)
    t.expect(updates, "updates", *indices.shape)
    places: list[Any] = _open(tuple(indices.shape))
    places[axis] = indices
    return _written(t, x, tuple(places), updates, reduction)


@operator("ScatterND", since=11)
def scatter_nd(t: Tools, x: Value, indices: Value, updates: Value, *, reduction: bytes = b"none") -> Value:
    if not indices.ndim or indices.shape[-1] > x.ndim:
        raise t.misfit(f"indices has the shape {list(indices.shape)}, for {x.ndim} axes")
    t.expect(updates, "updates", *indices.shape[:-1], *x.shape[indices.shape[-1] :])
    return _written(t, x, tuple(indices[..., at] for at in range(indices.shape[-1])), updates, reduction)


@operator("GatherND", since=11)
def gather_nd(t: Tools, x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    if not indices.ndim:
        raise t.misfit("indices has no axis")
    depth, lead = indices.shape[-1], tuple(x.shape[:batch_dims])
    t.expect(indices, "indices", *lead, *[None] * (indices.ndim - batch_dims))
    if batch_dims + depth > x.ndim:
        raise t.misfit(f"indices has tuples of {depth}, for {x.ndim - batch_dims} axes")
    middle = tuple(indices.shape[batch_dims:-1])
    t.sized((*lead, *middle, *x.shape[batch_dims + depth :]), x, indices)
    places: list[Any] = []
    for at in range(batch_dims):
        shape = [1] * (batch_dims + len(middle))
        shape[at] = lead[at]
        places.append(np.broadcast_to(np.arange(lead[at]).reshape(shape), (*lead, *middle)))
    places += [indices[..., at] for at in range(depth)]
    if not isinstance(x, Operand) and not isinstance(indices, Operand):
        return x[tuple(places)]
    if not lead and not middle:  # one tuple: an element, or a part
        places = [t.xp(place).reshape(place, (1,)) for place in places]
        found = t.ref(x)[tuple(t.ref(place) for place in places)]
        return t.xp(found).reshape(found, tuple(x.shape[depth:]))
    return t.ref(x)[tuple(t.ref(place) for place in places)]


@operator("TensorScatter")
def tensor_scatter(
    t: Tools, x: Value, update: Value, starts: Value = None, *, axis: int = -2, mode: bytes = b"linear"
) -> Value:
    axis = t.axis(axis, x.ndim)
    first = np.zeros(x.shape[0], np.int64) if starts is None else t.host(starts, "write_indices")
    t.expect(first, "write_indices", x.shape[0])
    t.expect(update, "update", *(None if at == axis else n for at, n in enumerate(x.shape)))
    places: list[Any] = _open(tuple(update.shape))
    where = places[axis] + first.reshape(-1, *[1] * (x.ndim - 1))
    if mode == b"circular":
        if first.size and int(first.min()) < 0:
            raise t.misfit(f"write_indices holds {int(first.min())}")
        where = where % x.shape[axis]
    elif where.size and not 0 <= int(where.min()) <= int(where.max()) < x.shape[axis]:
        raise t.misfit(
            f"places are {int(where.min())} to {int(where.max())}, axis {axis} has the extent {x.shape[axis]}"
        )
    places[axis] = where
    return _written(t, x, tuple(places), update, b"none")


@operator("ReverseSequence", since=10)
def reverse_sequence(t: Tools, x: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0) -> Value:
    extent, batch = x.shape[time_axis], x.shape[batch_axis]
    counts = t.counts(lengths, "sequence_lens", extent, (batch,)).astype(np.int64).reshape(-1, 1)
    steps = np.arange(extent)
    order = np.where(steps < counts, counts - 1 - steps, steps)
    order = order if batch_axis == 0 else order.T
    places = np.broadcast_to(order.reshape(*order.shape, *[1] * (x.ndim - 2)), x.shape)
    xp, (a, i) = t.both(x, places)
    return xp.take_along_axis(a, i, axis=time_axis)


@operator("CumProd")
def cumulative_product(t: Tools, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    xp, along = t.xp(x), t.axis(t.ints(axis, "axis")[0], x.ndim)
    x = xp.flip(x, axis=along) if reverse else x
    if exclusive:
        ones = xp.ones_like(x[(slice(None),) * along + (slice(0, 1),)])
        x = xp.concat((ones, x[(slice(None),) * along + (slice(0, -1),)]), axis=along)
    found = xp.cumulative_prod(x, axis=along, dtype=x.dtype)
    return xp.flip(found, axis=along) if reverse else found


@operator("Col2Im")
def col_to_image(
    t: Tools,
    x: Value,
    image: Value,
    block: Value,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    extents, kernel = t.ints(image, "image_shape"), t.ints(block, "block_shape")
    n, taps = len(extents), math.prod(kernel)
    around = pads or [0] * (2 * n)
    reach, step = dilations or [1] * n, strides or [1] * n
    if taps < 1 or x.shape[1] % taps:
        raise t.misfit(f"block_shape is {kernel}, which does not divide {x.shape[1]} columns")
    channels = x.shape[1] // taps
    t.sized((taps, taps))
    t.sized((x.shape[0], channels, *extents), x)
    # A transposed convolution whose filter passes each tap to its place.
    w = np.eye(taps, dtype=np.float32).reshape(taps, 1, *kernel)
    padded = [extents[at] + around[at] + around[at + n] for at in range(n)]
    blocks = [(padded[at] - (kernel[at] - 1) * reach[at] - 1) // step[at] + 1 for at in range(n)]
    xp = t.xp(x)
    lines = xp.reshape(t.ref(x), (x.shape[0] * channels, taps, *blocks))
    spare = [padded[at] - ((blocks[at] - 1) * step[at] + (kernel[at] - 1) * reach[at] + 1) for at in range(n)]
    found = t.dnn.conv_transpose(
        lines,
        t.ref(t.cast(w, name_of(x))),
        stride=tuple(step),
        dilation=tuple(reach),
        padding=tuple((around[at], around[at + n]) for at in range(n)),
        output_padding=tuple(spare),
    )
    return t.xp(found).reshape(found, (x.shape[0], channels, *extents))
