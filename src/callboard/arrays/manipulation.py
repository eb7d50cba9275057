"""Arrays in other shapes: views if the memory allows it, copies if it does not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.arrays.dtypes import result_type
from callboard.arrays.handles import Ref, axes_of, axis_of, check_array, device_of, submit, view
from callboard.arrays.indexing.rolling import rolled
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of, shape_of
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.ref.hostarrays import refuse_masked
from callboard.core.ref.views import reshaped
from callboard.kernel.array import Cast
from callboard.kernel.array.checks import broadcast, broadcast_shape
from callboard.kernel.memory import Copy, Empty

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]


def reshape(x: GpuRef[Mode], /, shape: int | Sequence[int], *, copy: bool | None = None) -> GpuRef[Mode]:
    """``x`` in another shape, row by row; one extent may be -1.

    Args:
        x: Any strides.
        shape: The new shape, of the same size.
        copy: True: always a copy. False: a view. None: a view if the strides allow one, else a copy.

    Raises:
        ShapeError: Another size, or ``copy=False`` and there is no such view.
    """
    check_array("reshape", "x", x)
    if not copy:
        return x.reshape(shape_of(shape), copy=copy)
    layout = reshaped(layout_of(x.dtype, x.shape), shape_of(shape))  # refuses another size before anything is copied
    copied: GpuRef[Mode] = submit(x, Copy(src=x))
    return copied._view(layout, copied.offset)


def permute_dims(x: GpuRef[Mode], /, axes: tuple[int, ...]) -> GpuRef[Mode]:
    """The view with its axes in another order: axis ``i`` of the result is axis ``axes[i]`` of ``x``."""
    check_array("permute_dims", "x", x)
    order = axes_of("permute_dims", x, tuple(axes))
    if len(order) != x.ndim:
        raise ShapeError(f"xp.permute_dims: axes is {axes!r}; x is {x.layout!r}: name each of its axes once")
    return view(x, [x.shape[a] for a in order], [x.strides[a] for a in order])


def matrix_transpose(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The view with its last two axes exchanged."""
    check_array("matrix_transpose", "x", x)
    if x.ndim < 2:
        raise ShapeError(f"xp.matrix_transpose: x is {x.layout!r}; it must have 2 axes or more")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def moveaxis(x: GpuRef[Mode], source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> GpuRef[Mode]:
    """The view with some axes at other places; the others keep their order."""
    check_array("moveaxis", "x", x)
    here, there = axes_of("moveaxis", x, source), axes_of("moveaxis", x, destination)
    if len(here) != len(there):
        raise ShapeError(f"xp.moveaxis: source is {source!r} and destination is {destination!r}; name as many")
    order = [a for a in range(x.ndim) if a not in here]
    for place, axis in sorted(zip(there, here, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))


def expand_dims(x: GpuRef[Mode], /, axis: int | tuple[int, ...] = 0) -> GpuRef[Mode]:
    """The view with axes of extent 1 at the places ``axis`` of the result."""
    check_array("expand_dims", "x", x)
    given = axis if isinstance(axis, tuple) else (axis,)
    places = [axis_of("expand_dims", x, one, x.ndim + len(given)) for one in given]
    if len(set(places)) < len(places):
        raise ShapeError(f"xp.expand_dims: axis is {axis!r}, which names a place twice")
    shape, strides = list(x.shape), list(x.strides)
    for place in sorted(places):
        shape.insert(place, 1)
        strides.insert(place, 0)
    return view(x, shape, strides)


def squeeze(x: GpuRef[Mode], /, axis: int | tuple[int, ...]) -> GpuRef[Mode]:
    """The view without these axes, which have the extent 1.

    Raises:
        ShapeError: One of them has another extent.
    """
    check_array("squeeze", "x", x)
    gone = axes_of("squeeze", x, axis)
    wide = [a for a in gone if x.shape[a] != 1]
    if wide:
        raise ShapeError(f"xp.squeeze: axis is {axis!r}, and x is {x.layout!r}: the extent of axis {wide[0]} is not 1")
    kept = [a for a in range(x.ndim) if a not in gone]
    return view(x, [x.shape[a] for a in kept], [x.strides[a] for a in kept])


def broadcast_to(x: GpuRef[Mode], /, shape: int | Sequence[int]) -> GpuRef[Mode]:
    """The view repeated to a shape, with steps of 0. It can be read, not written.

    Raises:
        ShapeError: ``x`` does not broadcast to it.
    """
    check_array("broadcast_to", "x", x)
    wanted = shape_of(shape)
    if len(wanted) < x.ndim or broadcast_shape("xp.broadcast_to", [x.shape, wanted]) != wanted:
        raise ShapeError(f"xp.broadcast_to: x is {x.layout!r}, which does not broadcast to {wanted}")
    return x._view(broadcast(x.layout, wanted), x.offset)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these shapes broadcast to."""
    return broadcast_shape("xp.broadcast_shapes", [shape_of(shape) for shape in shapes])


def broadcast_arrays(*arrays: GpuRef[Mode]) -> tuple[GpuRef[Mode], ...]:
    """Views of the arrays, all of the shape that they broadcast to."""
    for i, x in enumerate(arrays):
        check_array("broadcast_arrays", f"arrays[{i}]", x)
    shape = broadcast_shape("xp.broadcast_arrays", [x.shape for x in arrays])
    return tuple(broadcast_to(x, shape) for x in arrays)


def flip(x: GpuRef[Mode], /, *, axis: int | tuple[int, ...] | None = None) -> GpuRef[Mode]:
    """The view with these axes backwards; all of them when None."""
    check_array("flip", "x", x)
    back = axes_of("flip", x, axis)
    return x[tuple(slice(None, None, -1) if a in back else slice(None) for a in range(x.ndim))] if x.ndim else x


def roll(
    x: GpuRef[Mode], /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None
) -> GpuRef[Mode]:
    """A copy whose elements are shifted by ``shift`` along ``axis``; elements beyond the end reappear at the start.

    Args:
        x: Any strides.
        shift: Number of places; a tuple has one number for each axis, an int applies to all of them.
        axis: None: the elements are shifted row by row, and the shape is kept.
    """
    check_array("roll", "x", x)
    if axis is None:
        if not isinstance(shift, int):
            raise TypeError(f"xp.roll: shift is {shift!r}; without axis it is an int")
        return roll(reshape(x, (-1,)), shift, axis=0).reshape(x.shape) if x.size else submit(x, Copy(src=x))
    axes = axes_of("roll", x, axis) if not isinstance(axis, tuple) else tuple(axis_of("roll", x, a) for a in axis)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(f"xp.roll: shift is {shift!r} and axis is {axis!r}; give as many")
    by = [0] * x.ndim
    for one, a in zip(shifts, axes, strict=True):
        by[a] += one
    later: GpuRef[Mode] | None = rolled(x, tuple(by))
    if later is not None:
        return later
    out: GpuRef[Mode] = submit(x, Empty(shape=x.shape, dtype=x.dtype.name))
    for here, there in _rolled(x.shape, by):
        out = _onto(x[here], out, there)
    return out


def _rolled(shape: tuple[int, ...], by: list[int]) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Source and target slices of a roll: two parts along each axis that moves."""
    parts: list[tuple[tuple[slice, ...], tuple[slice, ...]]] = [((), ())]
    for extent, shift in zip(shape, by, strict=True):
        moved = shift % extent if extent else 0
        pairs = [(slice(None), slice(None))]
        if moved:
            behind = extent - moved
            pairs = [(slice(None, behind), slice(moved, None)), (slice(behind, None), slice(None, moved))]
        parts = [((*h, a), (*t, b)) for h, t in parts for a, b in pairs]
    return parts


def _onto(src: Ref, out: Ref, place: Any) -> Any:
    """Write ``src`` to a view of ``out``, converted; returns ``out``, pending on this op."""
    target = out[place]
    op = Copy(src=src, out=target) if src.dtype is out.dtype else Cast(src=src, dtype=out.dtype.name, out=target)
    written: Ref = submit(out, op)
    return written._view(out.layout, out.offset)


def concat(arrays: Sequence[GpuRef[Mode]], /, *, axis: int | None = 0) -> GpuRef[Mode]:
    """The arrays joined along an axis, in the dtype that they promote to.

    Args:
        arrays: At least one array; all have equal extents on the other axes.
        axis: None: of the arrays row by row.
    """
    if not arrays:
        raise ShapeError("xp.concat: arrays is empty; pass at least one")
    for i, x in enumerate(arrays):
        check_array("concat", f"arrays[{i}]", x)
    if axis is None:
        arrays, axis = [reshape(x, (-1,)) for x in arrays], 0
    first = arrays[0]
    along = axis_of("concat", first, axis)
    for i, x in enumerate(arrays):
        if (*x.shape[:along], *x.shape[along + 1 :]) != (*first.shape[:along], *first.shape[along + 1 :]):
            raise ShapeError(
                f"xp.concat: arrays[0] is {first.layout!r} and arrays[{i}] is {x.layout!r}: they may differ along "
                f"axis {along} only"
            )
    dtype = result_type(*arrays)
    total = sum(x.shape[along] for x in arrays)
    shape = (*first.shape[:along], total, *first.shape[along + 1 :])
    out: GpuRef[Mode] = submit(first, Empty(shape=shape, dtype=dtype.name))
    at = 0
    for x in arrays:
        n = x.shape[along]
        if x.size:
            out = _onto(x, out, (*(slice(None),) * along, slice(at, at + n)))
        at += n
    return out


def stack(arrays: Sequence[GpuRef[Mode]], /, *, axis: int = 0) -> GpuRef[Mode]:
    """The arrays, of one shape, side by side along a new axis."""
    if not arrays:
        raise ShapeError("xp.stack: arrays is empty; pass at least one")
    for i, x in enumerate(arrays):
        check_array("stack", f"arrays[{i}]", x)
        if x.shape != arrays[0].shape:
            raise ShapeError(f"xp.stack: arrays[0] is {arrays[0].layout!r} and arrays[{i}] is {x.layout!r}")
    return concat([expand_dims(x, axis=axis) for x in arrays], axis=axis)


def unstack(x: GpuRef[Mode], /, *, axis: int = 0) -> tuple[GpuRef[Mode], ...]:
    """Views along an axis."""
    check_array("unstack", "x", x)
    along = axis_of("unstack", x, axis)
    return tuple(x[(*(slice(None),) * along, i)] for i in range(x.shape[along]))


def repeat(x: GpuRef[Mode], repeats: int | Ref | Sequence[int], /, *, axis: int | None = None) -> GpuRef[Mode]:
    """Each element (each line along ``axis``) several times in a row.

    Args:
        x: Any strides.
        repeats: The number of repetitions; or a sequence with the number for each element, which is read on the host
            because the shape of the result depends on it. A ref is read first on a ``cb.sync`` device.
        axis: None: of the elements row by row.
    """
    from callboard.arrays.indexing.access import take

    check_array("repeat", "x", x)
    if axis is None:
        return repeat(reshape(x, (-1,)), repeats, axis=0)
    along = axis_of("repeat", x, axis)
    n = x.shape[along]
    if isinstance(repeats, GpuRef) and not x._port.services.blocking:
        raise TypeError(
            f"xp.repeat: repeats is {repeats._told()}, and the shape of the result depends on it: "
            "pass (await repeats.get())"
        )
    refuse_masked(repeats, "xp.repeat")
    counts = np.asarray(repeats.get() if isinstance(repeats, GpuRef) else repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts < 0).any():
        raise ShapeError(f"xp.repeat: repeats is {repeats!r}; it must be integers >= 0")
    if counts.size == 1:
        times = int(counts.reshape(()))
        wide = broadcast_to(expand_dims(x, axis=along + 1), (*x.shape[: along + 1], times, *x.shape[along + 1 :]))
        shape = (*x.shape[:along], n * times, *x.shape[along + 1 :])
        return reshape(wide, shape, copy=True)
    if counts.shape != (n,):
        raise ShapeError(f"xp.repeat: repeats has {counts.size} numbers, and axis {along} of {x.layout!r} has {n}")
    return take(x, device_of(x).asarray(np.repeat(np.arange(n), counts.astype(np.int64))), axis=along)


def tile(x: GpuRef[Mode], repetitions: tuple[int, ...], /) -> GpuRef[Mode]:
    """A copy that holds ``x`` several times along each axis."""
    check_array("tile", "x", x)
    times = shape_of(repetitions)
    axes = max(x.ndim, len(times))
    times = (*(1,) * (axes - len(times)), *times)
    shape = (*(1,) * (axes - x.ndim), *x.shape)
    if min(times, default=0) < 0:
        raise ShapeError(f"xp.tile: repetitions is {repetitions!r}; they must be >= 0")
    spread = [e for pair in zip(times, shape, strict=True) for e in pair]
    one = [e for extent in shape for e in (1, extent)]
    wide = broadcast_to(reshape(x, one), spread)
    return reshape(wide, [t * e for t, e in zip(times, shape, strict=True)], copy=True)
