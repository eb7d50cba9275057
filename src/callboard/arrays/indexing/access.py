"""Indexing by arrays: what ``x[…]`` and ``x[…] = y`` do where views are not enough, and the functions of that kind."""

from typing import Any

from callboard.arrays import manipulation
from callboard.arrays.handles import Ref, axis_of, cast, check_array, device_of, is_scalar, submit
from callboard.arrays.indexing.filling import assign_where, number_for, without_ones
from callboard.arrays.indexing.keys import integers, only_mask, picking, taken_apart
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.ref.views import indexed
from callboard.kernel.array import Cast, Gather, Scatter, TakeAlong
from callboard.kernel.array.checks import broadcast_shape
from callboard.kernel.cub import Select
from callboard.kernel.memory import Copy, Fill
from callboard.kernel.recording import recorder

__all__ = ["assign", "by_arrays", "take", "take_along_axis"]


def take(x: GpuRef[Mode], indices: GpuRef[Mode], /, *, axis: int | None = None) -> GpuRef[Mode]:
    """The elements (the lines) of ``x`` at these places along an axis: a copy.

    Args:
        x: Any strides.
        indices: Integers of any shape; negative ones count from the end. Those out of range fail the result with
            ``ShapeError`` when it is awaited.
        axis: May be left out where ``x`` has one.
    """
    check_array("take", "x", x)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"xp.take: x is {x.layout!r}; say along which axis")
        axis = 0
    along = axis_of("take", x, axis)
    picked = integers("take", indices, x)
    taken: GpuRef[Mode] = submit(x, Gather(src=manipulation.moveaxis(x, along, 0), indices=(picked,), place=along))
    return taken


def take_along_axis(x: GpuRef[Mode], indices: GpuRef[Mode], /, *, axis: int = -1) -> GpuRef[Mode]:
    """For each line along an axis the elements at its own places: ``indices`` has as many axes as ``x``."""
    check_array("take_along_axis", "x", x)
    along = axis_of("take_along_axis", x, axis)
    taken: GpuRef[Mode] = submit(x, TakeAlong(src=x, indices=integers("take_along_axis", indices, x), axis=along))
    return taken


# -- x[...] ------------------------------------------------------------------------------------------------------------


def by_arrays(x: Ref, index: Any) -> Ref:
    """``x[index]`` where the index holds an array: a copy, as in NumPy.

    Raises:
        IndexError: More indices than axes.
        TypeError: An array of the index has another dtype than bool or an integer one.
    """
    key = taken_apart(x, index)
    mask = only_mask(key)
    if mask is not None and mask.ndim == key.x.ndim:
        return _where_true(key.x, device_of(x).asarray(mask))
    if key.basic:  # arrays of one integer without axes
        layout, offset = indexed(x.layout, tuple(key.items))
        view: Ref = x._view(layout, x.offset + offset)
        return view
    found = picking(key)
    taken: Ref = submit(x, Gather(src=found.base, indices=found.indices, place=found.place))
    return taken


def assign(x: Ref, index: Any, value: Any) -> None:
    """``x[index] = value``, in place: views of ``x`` see it.

    Args:
        x: Any strides.
        index: As for reading; a mask of bools as well.
        value: A number, or an array that broadcasts to ``x[index]``, converted to the dtype of ``x``.

    Raises:
        TypeError: The value is neither; or it is complex and ``x`` is not.
        ShapeError: It does not broadcast, or a mask selects another number of elements. ``x`` is as it was.
        IndexError: An index is out of range. ``x`` is as it was. In asyncio, where the indices (the mask) are on the
            device, the next op that reads ``x`` fails instead, with ``ShapeError``.
    """
    if not is_scalar(value) and not isinstance(value, GpuRef):
        value = device_of(x).asarray(value)
    key = taken_apart(x, index)
    mask = only_mask(key)
    if mask is not None and (isinstance(mask, GpuRef) or mask.ndim == key.x.ndim):
        assign_where(key.x, _apart(x, mask), _apart(x, value))
        return
    if key.basic:
        layout, offset = indexed(x.layout, tuple(key.items))
        _write(x._view(layout, x.offset + offset), value)
        return
    found = picking(key)
    picked = broadcast_shape("index", [one.shape for one in found.indices])
    rest = found.base.shape[len(found.indices) :]
    shape = (*rest[: found.place], *picked, *rest[found.place :])
    given = _array_for(x, _apart(x, value))
    waits = not found.checked and x._port.services.blocking and recorder.get() is None
    op = Scatter(
        out=found.base,
        values=manipulation.broadcast_to(without_ones(given, len(shape)), shape),
        indices=tuple(_apart(x, one) for one in found.indices),
        place=found.place,
        awaited=waits,
    )
    written = submit(x, op)
    if waits:
        written.result()


def _apart(x: Ref, value: Any) -> Any:
    """The value, copied where it shares memory with the array that is written."""
    if not isinstance(value, GpuRef) or value.allocation is not x.allocation:
        return value
    return submit(x, Copy(src=value))


def _write(target: Ref, value: Any) -> None:
    if is_scalar(value):
        submit(target, Fill(out=target, fill_value=number_for(target, value)))
        return
    if value.allocation is target.allocation and value.offset == target.offset and value.layout == target.layout:
        return  # x[0] += 1 has written it
    source = _apart(target, manipulation.broadcast_to(without_ones(value, target.ndim), target.shape))
    if source.dtype is target.dtype:
        submit(target, Copy(src=source, out=target))
    else:
        submit(target, Cast(src=source, dtype=target.dtype.name, out=target))


def _array_for(x: Ref, value: Any) -> Ref:
    if is_scalar(value):
        found: Ref = device_of(x).full((), number_for(x, value), dtype=x.dtype)
        return found
    return cast(value, x.dtype)


# -- masks -------------------------------------------------------------------------------------------------------------


def _where_true(x: Ref, mask: Ref) -> Ref:
    """The elements where the mask holds, row by row; how many depends on the data."""
    flat, flags = (manipulation.reshape(one, (x.size,)) for one in (x, mask))
    kept: Ref = submit(x, Select(x=flat, flags=flags))
    return kept
