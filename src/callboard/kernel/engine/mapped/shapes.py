"""Operators that move elements, and those that compute shapes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.operand import Operand
from callboard.kernel.elementwise.shapes import broadcast
from callboard.kernel.engine.mapped.tools import Tools, Value, is_float, name_of, operator

__all__: list[str] = []


@operator("Constant", since=1)
def constant(
    t: Tools,
    *,
    value: Any = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
) -> Value:
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            raise t.refusal("constants of this dtype are not mapped")
        return value
    whole = value_int if value_int is not None else value_ints
    if whole is not None:
        return np.array(whole, np.int64)
    number = value_float if value_float is not None else value_floats
    if number is None:
        raise t.refusal("this kind of constant is not mapped")
    return np.array(number, np.float32)


@operator("ConstantOfShape", since=9)
def constant_of_shape(t: Tools, shape: Value, *, value: Any = None) -> Value:
    extents = t.sized(t.ints(shape, "shape"))
    return np.broadcast_to(np.zeros(1, np.float32) if value is None else value, extents)


@operator("Shape", since=1)
def shape_of(t: Tools, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    return np.array(x.shape[start:end], np.int64)


@operator("Size", since=1)
def size(t: Tools, x: Value) -> Value:
    return np.array(math.prod(x.shape), np.int64)


@operator("Range", since=11)
def arange(t: Tools, start: Value, limit: Value, delta: Value, *, stash_type: int = 1) -> Value:
    first, last, step = (t.host(each, "an operand").reshape(())[()] for each in (start, limit, delta))
    if step == 0 or not all(map(math.isfinite, (first, last, step))):
        raise t.misfit(f"there are no numbers from {first} to {last} in steps of {step}")
    # Of integers in Python's, which do not overflow.
    span = [each.item() for each in (first, last, step)]
    (count,) = t.sized([max(math.ceil((span[1] - span[0]) / span[2]), 0)])
    return (first + np.arange(count) * step).astype(first.dtype)


@operator("Reshape", since=5)
def reshape(t: Tools, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    extents = t.ints(shape, "shape")
    if not allowzero:
        if any(n == 0 for n in extents[x.ndim :]):
            raise t.misfit(f"the shape is {extents}: a 0 keeps an extent, and there are {x.ndim} axes")
        extents = [x.shape[at] if n == 0 else n for at, n in enumerate(extents)]
    if extents.count(-1) > 1 or min(extents, default=0) < -1:
        raise t.misfit(f"the shape is {extents}: one extent can be -1, and none can be less")
    given = list(extents)
    if -1 in extents:
        rest = math.prod(n for n in extents if n != -1)
        extents[extents.index(-1)] = math.prod(x.shape) // rest if rest else 0
    if math.prod(extents) != math.prod(x.shape):
        raise t.misfit(f"the shape {list(x.shape)} does not fit {given}")
    return t.xp(x).reshape(x, tuple(extents))


@operator("Flatten", since=9)
def flatten(t: Tools, x: Value, *, axis: int = 1) -> Value:
    axis = axis + x.ndim if axis < 0 else axis
    return t.xp(x).reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose", since=1)
def transpose(t: Tools, x: Value, *, perm: list[int] | None = None) -> Value:
    return t.xp(x).permute_dims(x, tuple(perm if perm is not None else range(x.ndim)[::-1]))


@operator("Squeeze", since=1)
def squeeze(t: Tools, x: Value, given: Value = None, *, axes: list[int] | None = None) -> Value:
    along = t.ints(given, "axes") if given is not None else axes
    if along is None:
        along = [at for at, n in enumerate(x.shape) if n == 1]
    return t.xp(x).squeeze(x, axis=tuple(along)) if along else x


@operator("Unsqueeze", since=1)
def unsqueeze(t: Tools, x: Value, places: Value = None, *, axes: list[int] | None = None) -> Value:
    given = t.ints(places, "axes") if places is not None else list(axes or ())
    rank = x.ndim + len(given)
    along = {axis % rank for axis in given}
    if len(along) != len(given) or any(not -rank <= axis < rank for axis in given):
        raise t.misfit(f"axes is {given}, for {x.ndim} axes")
    extents = iter(x.shape)
    return t.xp(x).reshape(x, tuple(1 if axis in along else next(extents) for axis in range(rank)))


@operator("Concat", since=4)
def concat(t: Tools, *values: Value, axis: int) -> Value:
    return _joined(t, values, axis)


def _joined(t: Tools, values: Sequence[Value], axis: int) -> Value:
    shape = list(values[0].shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    t.sized(shape, *values)
    xp, given = t.both(*values)
    return xp.concat(given, axis=axis)


@operator("Split", since=2)
def splits(
    t: Tools,
    x: Value,
    sizes: Value = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    split: list[int] | None = None,
) -> Any:
    count, extent = num_outputs or t.outputs, x.shape[axis]
    lengths = list(split or ()) if sizes is None else t.ints(sizes, "split")
    if not lengths:
        step = -(-extent // count)
        if (num_outputs is None and extent % count) or (count - 1) * step > extent:
            raise t.misfit(f"the extent {extent} is not split into {count} parts")
        lengths = [min(step, extent - at * step) for at in range(count)]
    if sum(lengths) != extent or len(lengths) != t.outputs:
        raise t.misfit(f"split is {lengths}, for {t.outputs} outputs of the extent {extent}")
    found, at = [], 0
    for length in lengths:
        where = [slice(None)] * x.ndim
        where[t.axis(axis, x.ndim)] = slice(at, at + length)
        found.append(x[tuple(where)])
        at += length
    return tuple(found)


@operator("Slice", since=10)
def slices(t: Tools, x: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None) -> Value:
    first, last = t.ints(starts, "starts"), t.ints(ends, "ends")
    along = list(range(len(first))) if axes is None else t.ints(axes, "axes")
    step = [1] * len(first) if steps is None else t.ints(steps, "steps")
    where = [slice(None)] * x.ndim
    for begin, end, axis, by in zip(first, last, along, step, strict=True):
        extent = x.shape[axis]
        if by > 0:
            where[t.axis(axis, x.ndim)] = slice(*slice(begin, end, by).indices(extent))
            continue
        low, high, _ = slice(begin, end, by).indices(extent)
        where[t.axis(axis, x.ndim)] = slice(low, None if high < 0 else high, by) if low > high else slice(0, 0)
    return x[tuple(where)]


@operator("Gather", since=1)
def gather(t: Tools, x: Value, indices: Value, *, axis: int = 0) -> Value:
    axis = t.axis(axis, x.ndim)
    if not isinstance(indices, Operand):
        indices = np.asarray(indices)
        if (wrong := indices[(indices < -x.shape[axis]) | (indices >= x.shape[axis])]).size:
            extent = x.shape[axis]
            raise t.misfit(f"an index is {wrong[0]}, axis {axis} takes {-extent} to {extent - 1}")
        indices = np.where(indices < 0, indices + x.shape[axis], indices)
        if indices.ndim == 0 and isinstance(x, Operand):
            return t.ref(x)[(slice(None),) * axis + (int(indices),)]
    t.sized((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x, indices)
    xp, (a, i) = t.both(x, indices)
    flat = xp.reshape(i, (math.prod(i.shape),))
    return xp.reshape(xp.take(a, flat, axis=axis), (*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]))


@operator("GatherElements", since=11)
def gather_elements(t: Tools, x: Value, indices: Value, *, axis: int = 0) -> Value:
    xp, (a, i) = t.both(x, indices)
    if any(n != m for at, (n, m) in enumerate(zip(x.shape, i.shape, strict=True)) if at != t.axis(axis, x.ndim)):
        raise t.misfit(f"indices of the shape {i.shape} for {x.shape} are not mapped")
    return xp.take_along_axis(a, i, axis=axis)


@operator("Expand", since=8)
def expand(t: Tools, x: Value, shape: Value) -> Value:
    wanted = t.ints(shape, "shape")
    extents = broadcast([tuple(x.shape), tuple(wanted)])
    if extents is None:
        raise t.misfit(f"the shape {list(x.shape)} does not expand to {wanted}")
    return t.xp(x).broadcast_to(x, t.sized(extents, x))


@operator("Tile", since=6)
def tile(t: Tools, x: Value, repeats: Value) -> Value:
    times = t.ints(repeats, "repeats")
    if len(times) != x.ndim or min(times, default=0) < 0:
        raise t.misfit(f"repeats is {times}, for {x.ndim} axes")
    t.sized((n * k for n, k in zip(x.shape, times, strict=True)), x)
    return t.xp(x).tile(x, tuple(times))


@operator("Pad", since=11)
def pad(
    t: Tools, x: Value, pads: Value, value: Value = None, axes: Value = None, *, mode: bytes = b"constant"
) -> Value:
    widths = t.ints(pads, "pads")
    along = [t.axis(axis, x.ndim) for axis in (range(x.ndim) if axes is None else t.ints(axes, "axes"))]
    count = len(along)
    if len(widths) != 2 * count:
        raise t.misfit(f"pads has {len(widths)} numbers for {count} axes")
    padded = list(x.shape)
    for at, axis in enumerate(along):
        padded[axis] += widths[at] + widths[at + count]
    t.sized(padded, x)
    for at, axis in enumerate(along):
        before, after = widths[at], widths[at + count]
        if before or after:
            x = _padded(t, x, axis, before, after, value, mode)
    return x


def _padded(t: Tools, x: Value, axis: int, before: int, after: int, value: Value, mode: bytes) -> Value:
    """One axis padded; negative widths cut."""
    extent = x.shape[axis]

    def part(begin: int | None, end: int | None, step: int = 1) -> Value:
        return x[(slice(None),) * axis + (slice(begin, end, step),)]

    middle = part(max(-before, 0), extent - max(-after, 0))
    parts = [middle]
    if mode == b"constant":
        fill = np.zeros((), DTYPES[name_of(x)].np) if value is None else value

        def filled(n: int) -> Value:
            shape = t.sized((*x.shape[:axis], n, *x.shape[axis + 1 :]), x)
            xp, (one,) = t.both(fill)
            return xp.broadcast_to(xp.reshape(one, (1,) * x.ndim), shape)

        parts = [filled(before)] * (before > 0) + parts + [filled(after)] * (after > 0)
    elif mode in (b"edge", b"reflect", b"wrap") and before >= 0 and after >= 0:
        t.sized([before + extent + after])
        place = np.arange(-before, extent + after)
        if mode == b"edge":
            place = np.clip(place, 0, extent - 1)
        elif mode == b"wrap":
            place = place % extent
        else:
            if max(before, after) >= extent:
                raise t.misfit(f"reflections of {max(before, after)} of the extent {extent} are not mapped")
            place = np.abs(place)
            place = np.where(place >= extent, 2 * (extent - 1) - place, place)
        return gather(t, x, place, axis=axis)
    else:
        raise t.refusal(f"the mode {mode.decode()} is not mapped")
    return middle if len(parts) == 1 else _joined(t, parts, axis)


@operator("Trilu")
def trilu(t: Tools, x: Value, k: Value = None, *, upper: int = 1) -> Value:
    offset = 0 if k is None else t.ints(k, "k")[0]
    xp = t.xp(x)
    return (xp.triu if upper else xp.tril)(x, k=offset)


@operator("EyeLike", since=9)
def eye_like(t: Tools, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    name = name_of(x) if dtype is None else t.element(dtype)
    rows, columns = t.sized(x.shape)
    return np.eye(rows, columns, k, DTYPES[name].np)


@operator("OneHot", since=9)
def one_hot(t: Tools, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    count = t.ints(depth, "depth")[0]
    place = axis % (indices.ndim + 1)
    t.sized([count])
    t.sized((*indices.shape[:place], count, *indices.shape[place:]), indices, values)
    if is_float(indices) or name_of(indices) not in ("i32", "i64"):
        indices = t.cast(indices, "i64")
    steps = np.arange(count).reshape([-1 if at == place else 1 for at in range(indices.ndim + 1)])
    xp, (i, s, v) = t.both(indices, steps.astype(DTYPES[name_of(indices)].np), values)
    spread = xp.expand_dims(i, axis=place)
    hit = xp.logical_or(xp.equal(spread, s), xp.equal(xp.add(spread, count), s))
    return xp.where(hit, v[1], v[0])


@operator("DepthToSpace", since=1)
def depth_to_space(t: Tools, x: Value, *, blocksize: int, mode: bytes = b"DCR") -> Value:
    xp, (n, c, h, w), b = t.xp(x), x.shape, blocksize
    if mode == b"DCR":
        parts, order = (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
    return xp.reshape(xp.permute_dims(xp.reshape(x, parts), order), (n, c // (b * b), h * b, w * b))


@operator("SpaceToDepth", since=1)
def space_to_depth(t: Tools, x: Value, *, blocksize: int, mode: bytes = b"DCR") -> Value:
    xp, (n, c, h, w), b = t.xp(x), x.shape, blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == b"DCR" else (0, 1, 3, 5, 2, 4)
    parts = xp.permute_dims(xp.reshape(x, (n, c, h // b, b, w // b, b)), order)
    return xp.reshape(parts, (n, c * b * b, h // b, w // b))
