"""Indexing by arrays: what ``x[…]`` and ``x[…] = y`` do where views are not enough, and the functions of that kind."""

from typing import Any, NamedTuple

import numpy as np

from callboard.arrays import elementwise, manipulation, reducing
from callboard.arrays.handles import Ref, axis_of, cast, check_array, device_of, is_scalar, submit
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.ref.views import indexed
from callboard.kernel.array import Cast, Gather, Scatter, TakeAlong
from callboard.kernel.array.checks import INDEX_DTYPES, broadcast_shape
from callboard.kernel.cub import Select
from callboard.kernel.memory import Copy, Fill

__all__ = ["assign", "by_arrays", "take", "take_along_axis"]


def take(x: GpuRef[Mode], indices: Ref, /, *, axis: int | None = None) -> GpuRef[Mode]:
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
    picked = _integers("take", indices, x)
    taken: GpuRef[Mode] = submit(x, Gather(src=manipulation.moveaxis(x, along, 0), indices=(picked,), place=along))
    return taken


def take_along_axis(x: GpuRef[Mode], indices: Ref, /, *, axis: int = -1) -> GpuRef[Mode]:
    """For each line along an axis the elements at its own places: ``indices`` has as many axes as ``x``."""
    check_array("take_along_axis", "x", x)
    along = axis_of("take_along_axis", x, axis)
    taken: GpuRef[Mode] = submit(x, TakeAlong(src=x, indices=_integers("take_along_axis", indices, x), axis=along))
    return taken


# -- x[...] ------------------------------------------------------------------------------------------------------------


class Picking(NamedTuple):
    """An index by arrays, taken apart.

    Attributes:
        base: View of the array whose first axes are indexed.
        indices: One for each of them.
        place: Where their axes stand in the result.
    """

    base: Ref
    indices: tuple[Ref, ...]
    place: int


def by_arrays(x: Ref, index: Any) -> Ref:
    """``x[index]`` where the index holds an array: a copy, as in NumPy.

    Raises:
        IndexError: More indices than axes.
        TypeError: An array of the index has another dtype than bool or an integer one.
    """
    items = _expanded(x, index)
    mask = _only_mask(items)
    if mask is not None:
        return _where_true(x, mask)
    picking = _picking(x, items)
    taken: Ref = submit(x, Gather(src=picking.base, indices=picking.indices, place=picking.place))
    return taken


def assign(x: Ref, index: Any, value: Any) -> None:
    """``x[index] = value``, in place: views of ``x`` see it.

    Args:
        x: Any strides.
        index: As for reading; a mask of bools as well.
        value: A number, or an array that broadcasts to ``x[index]``, converted to the dtype of ``x``.

    Raises:
        TypeError: The value is neither; or it is complex and ``x`` is not.
        ShapeError: It does not broadcast.
    """
    if not is_scalar(value) and not isinstance(value, GpuRef):
        value = device_of(x).asarray(value)
    items = _expanded(x, index)
    mask = _only_mask(items)
    if mask is not None:
        _fill_where(x, mask, value)
        return
    if not any(isinstance(item, GpuRef) for item in items):
        layout, offset = indexed(x.layout, tuple(items))
        _write(x._view(layout, x.offset + offset), value)
        return
    picking = _picking(x, items)
    picked = broadcast_shape("index", [one.shape for one in picking.indices])
    rest = picking.base.shape[len(picking.indices) :]
    shape = (*rest[: picking.place], *picked, *rest[picking.place :])
    given = _array_for(x, value)
    op = Scatter(
        out=picking.base,
        values=manipulation.broadcast_to(_without_ones(given, len(shape)), shape),
        indices=picking.indices,
        place=picking.place,
    )
    submit(x, op)


def _write(target: Ref, value: Any) -> None:
    if is_scalar(value):
        submit(target, Fill(out=target, fill_value=_number(target, value)))
        return
    same = value.allocation is target.allocation
    if same and value.offset == target.offset and value.layout == target.layout:
        return  # x[0] += 1 has written it
    source = manipulation.broadcast_to(_without_ones(value, target.ndim), target.shape)
    if same:  # the two may overlap
        source = submit(target, Copy(src=source))
    if source.dtype is target.dtype:
        submit(target, Copy(src=source, out=target))
    else:
        submit(target, Cast(src=source, dtype=target.dtype.name, out=target))


def _number(target: Ref, value: Any) -> Any:
    """The number as a fill takes it: a float for integers loses its fraction, as in NumPy."""
    if target.dtype.kind == "bool":
        return int(bool(value))
    if target.dtype.is_integer and isinstance(value, float | np.floating):
        return int(value)
    return int(value) if isinstance(value, bool | np.bool_) else value


def _array_for(x: Ref, value: Any) -> Ref:
    if is_scalar(value):
        found: Ref = device_of(x).full((), _number(x, value), dtype=x.dtype)
        return found
    return cast(value, x.dtype)


def _without_ones(value: Ref, ndim: int) -> Ref:
    """Without axes of extent 1 at the front that the target has not: NumPy lets them go in an assignment."""
    while value.ndim > ndim and value.shape[0] == 1:
        value = manipulation.squeeze(value, 0)
    return value


def _expanded(x: Ref, index: Any) -> list[Any]:
    """The items of an index, one for each axis of ``x`` but for ``None`` and masks; arrays are refs."""
    items = list(index) if isinstance(index, tuple) else [index]
    found: list[Any] = []
    used = 0
    for item in items:
        if isinstance(item, list | np.ndarray):
            item = device_of(x).asarray(np.asarray(item, None if len(item) else np.int64))
        if isinstance(item, bool | np.bool_):
            raise TypeError(f"index {item!r}: a bool is not an index; use a mask array, or None for a new axis")
        if isinstance(item, GpuRef):
            used += item.ndim if item.dtype.kind == "bool" else 1
        elif item is not None and item is not ...:
            used += 1
        found.append(item)
    if sum(item is ... for item in found) > 1:
        raise IndexError("an index may hold '...' only once")
    if used > x.ndim:
        raise IndexError(f"{used} indices for {x.layout!r}, which has {x.ndim} axes")
    at = next((i for i, item in enumerate(found) if item is ...), None)
    if at is None:
        return [*found, *[slice(None)] * (x.ndim - used)]
    return [*found[:at], *[slice(None)] * (x.ndim - used), *found[at + 1 :]]


def _only_mask(items: list[Any]) -> Ref | None:
    """The mask, where the index is one mask over the first axes and nothing else."""
    masks = [item for item in items if isinstance(item, GpuRef) and item.dtype.kind == "bool"]
    if not masks:
        return None
    others = [item for item in items if item is not masks[0] and not (isinstance(item, slice) and item == slice(None))]
    if others or items[0] is not masks[0]:
        raise TypeError(
            "a mask of bools is the only index, over the first axes: for other combinations take xp.nonzero(mask)"
        )
    found: Ref | None = masks[0]
    return found


def _picking(x: Ref, items: list[Any]) -> Picking:
    """Basic items first, by a view; then the axes of the arrays to the front."""
    advanced = [i for i, item in enumerate(items) if isinstance(item, GpuRef) or _is_integer(item)]
    adjacent = advanced == list(range(advanced[0], advanced[-1] + 1))
    layout, offset = indexed(x.layout, tuple(slice(None) if isinstance(item, GpuRef) else item for item in items))
    base = x._view(layout, x.offset + offset)
    arrays: list[tuple[int, Ref]] = []
    axis = place = 0
    for i, item in enumerate(items):
        if isinstance(item, GpuRef):
            arrays.append((axis, _integers("indexing", item, x)))
        elif _is_integer(item):
            continue
        elif i < advanced[0]:
            place += 1
        axis += 1
    front = [a for a, _ in arrays]
    rest = [a for a in range(base.ndim) if a not in front]
    base = manipulation.permute_dims(base, tuple(front + rest))
    return Picking(base, tuple(one for _, one in arrays), place if adjacent else 0)


def _is_integer(item: Any) -> bool:
    return not isinstance(item, slice | GpuRef) and item is not None


def _integers(function: str, indices: Any, x: Ref) -> Ref:
    check_array(function, "indices", indices)
    if indices.dtype not in INDEX_DTYPES:
        raise TypeError(f"xp.{function}: an index is {indices.layout!r}; indices are integers, or bools as a mask")
    found: Ref = indices
    return found


# -- masks -------------------------------------------------------------------------------------------------------------


def _check_mask(x: Ref, mask: Ref) -> None:
    if mask.shape != x.shape[: mask.ndim]:
        raise IndexError(
            f"a mask is {mask.layout!r}, and the array is {x.layout!r}: its first axes must have that shape"
        )


def _where_true(x: Ref, mask: Ref) -> Ref:
    """The elements (the lines) where the mask holds, row by row; how many depends on the data."""
    _check_mask(x, mask)
    if mask.ndim == x.ndim:
        flat, flags = (manipulation.reshape(one, (x.size,)) for one in (x, mask))
        kept: Ref = submit(x, Select(x=flat, flags=flags))
        return kept
    if mask.ndim == 0:  # as if there were one more axis, of one element
        return _where_true(manipulation.expand_dims(x, axis=0), manipulation.reshape(mask, (1,)))
    if not x._port.services.blocking:
        raise ShapeError(
            f"a mask is {mask.layout!r}, and the array is {x.layout!r}: the shape of these lines depends on the data; "
            "take them in two steps, `i, = xp.nonzero(mask); x[await i]`"
        )
    return by_arrays(x, device_of(x).nonzero(mask))


def _fill_where(x: Ref, mask: Ref, value: Any) -> None:
    """Write where the mask holds: a number, or the values (the lines) of an array one after the other."""
    _check_mask(x, mask)
    missing = x.ndim - mask.ndim
    over = mask.reshape((*mask.shape, *(1,) * missing)) if missing else mask
    if is_scalar(value):
        elementwise.apply("where(c, v, x)", x, c=over, v=_typed(x, value), x=x)
        return
    values = cast(value, x.dtype)
    if values.ndim and values.ndim > missing and values.shape[0] != 1:
        values = _one_for_each(x, mask, values)
    elementwise.apply("where(c, v, x)", x, c=over, v=_without_ones(values, x.ndim), x=x)


def _typed(x: Ref, value: Any) -> Any:
    number = _number(x, value)
    return bool(number) if x.dtype.kind == "bool" else number


def _one_for_each(x: Ref, mask: Ref, values: Ref) -> Ref:
    """The values spread over the places where the mask holds, in their order."""
    if values.shape[1:] != x.shape[mask.ndim :]:
        raise ShapeError(
            f"the value is {values.layout!r}; behind its first axis it must have the shape {x.shape[mask.ndim :]}"
        )
    if not values.size:
        nothing: Ref = device_of(x).zeros((1,) * x.ndim, dtype=x.dtype)
        return nothing  # there is no place, or the lines have no elements
    counted = reducing.scanned("indexing", manipulation.reshape(mask, (mask.size,)), 0, "sum", DTYPES["i64"])
    places = elementwise.apply("maximum(n - 1, 0)", n=counted)
    return take(values, places.reshape(mask.shape), axis=0)
