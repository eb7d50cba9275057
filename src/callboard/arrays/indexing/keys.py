"""The key of ``x[key]`` taken apart: which axes are views, which are picked by arrays, and what masks stand for."""

from typing import Any, NamedTuple

import numpy as np

from callboard.arrays.handles import IndexRangeError, Ref, check_array, device_of
from callboard.arrays.manipulation import permute_dims
from callboard.core.errors import ShapeError
from callboard.core.ref import GpuRef
from callboard.core.ref.hostarrays import refuse_masked
from callboard.core.ref.views import indexed
from callboard.kernel.array.checks import INDEX_DTYPES

__all__ = ["Key", "Picking", "integers", "only_mask", "picking", "taken_apart"]


class Key(NamedTuple):
    """An index of as many items as the array has axes, ``None`` aside.

    Attributes:
        x: View of the array, with an axis of extent 1 more for each single bool of the index.
        items: Integers, slices, ``None``, refs and host arrays; a mask stands for all its axes. ``...`` where it stands
            for no axis: it still separates the arrays around it.
    """

    x: Ref
    items: list[Any]

    @property
    def basic(self) -> bool:
        """Without arrays, so that it gives a view."""
        return not any(_is_array(item) for item in self.items)


class Picking(NamedTuple):
    """An index by arrays, as gathers and scatters take it.

    Attributes:
        base: View of the array whose first axes are indexed.
        indices: One for each of them.
        place: Where their axes stand in the result.
        checked: None of them is out of range.
    """

    base: Ref
    indices: tuple[Ref, ...]
    place: int
    checked: bool


def taken_apart(x: Ref, index: Any) -> Key:
    """The items of an index for the axes of ``x``. A single bool is a mask over an axis of its own, as in NumPy.

    Raises:
        IndexError: More indices than axes, or a second ``...``.
    """
    items = [_normal(item) for item in (index if isinstance(index, tuple) else (index,))]
    used = sum(_axes(item) for item in items)
    if sum(item is ... for item in items) > 1:
        raise IndexError("an index may hold '...' only once")
    if used > x.ndim:
        raise IndexError(f"{used} indices for {x.layout!r}, which has {x.ndim} axes")
    rest = [slice(None)] * (x.ndim - used)
    at = next((i for i, item in enumerate(items) if item is ...), None)
    if at is None:
        items += rest
    elif rest:
        items[at : at + 1] = rest
    view: list[Any] = []
    for i, item in enumerate(items):
        if _is_mask(item) and item.ndim == 0:
            view.append(None)
            items[i] = item.reshape((1,))
        else:
            view += [slice(None)] * _axes(item)
    items = _without_empty_masks(x.shape, items)
    layout, offset = indexed(x.layout, tuple(view))
    return Key(x._view(layout, x.offset + offset) if None in view else x, items)


def _without_empty_masks(shape: tuple[int, ...], items: list[Any]) -> list[Any]:
    """Masks of extents 0, which may stand for axes of any extent, as indices that pick nothing."""
    found: list[Any] = []
    axis = 0
    for item in items:
        if _is_mask(item) and not item.size:
            own = shape[axis : axis + item.ndim]
            if tuple(item.shape) != own and all(n in (0, e) for n, e in zip(item.shape, own, strict=True)):
                found += [np.zeros(0, np.int64)] * item.ndim
                axis += item.ndim
                continue
        found.append(item)
        axis += _axes(item)
    return found


def only_mask(key: Key) -> Any:
    """The mask, where the index is one mask over the first axes and nothing else; else None."""
    if not key.items or not _is_mask(key.items[0]):
        return None
    if any(item is not ... and not (isinstance(item, slice) and item == slice(None)) for item in key.items[1:]):
        return None
    mask = key.items[0]
    _check_mask(key.x, mask, 0)
    return mask


def picking(key: Key) -> Picking:
    """Basic items first, by a view; then the axes of the arrays to the front.

    Raises:
        IndexError: An integer is out of range, or a mask has another shape than its axes.
        TypeError: An array has another dtype than bool or an integer one.
        ShapeError: A mask on the device, whose indices an asyncio program has to await.
    """
    x = key.x
    basic: list[Any] = []
    advanced: list[int] = []  # positions in `basic`: arrays, and integers beside them
    arrays: list[tuple[int, Ref]] = []  # the axis of the view, the indices
    gap = -1
    axis = kept = 0  # axes of the array, axes of the view
    for item in key.items:
        if item is ...:
            gap = len(basic)
        elif _is_array(item):
            for one in _indices(x, item, axis):
                advanced.append(len(basic))
                arrays.append((kept, one))
                basic.append(slice(None))
                axis, kept = axis + 1, kept + 1
        else:
            if item is None or isinstance(item, slice):
                kept += 1
            else:
                advanced.append(len(basic))
            axis += item is not None
            basic.append(item)
    first, last = advanced[0], advanced[-1]
    together = len(advanced) == last - first + 1 and not first < gap <= last
    layout, offset = indexed(x.layout, tuple(basic))
    base = x._view(layout, x.offset + offset)
    front = [a for a, _ in arrays]
    base = permute_dims(base, tuple(front + [a for a in range(base.ndim) if a not in front]))
    checked = all(not isinstance(item, GpuRef) or _is_mask(item) for item in key.items)
    return Picking(base, tuple(one for _, one in arrays), first if together else 0, checked)


def integers(function: str, indices: Any, x: Ref) -> Ref:
    """Indices, checked.

    Raises:
        TypeError: No array of integers.
    """
    check_array(function, "indices", indices)
    if indices.dtype not in INDEX_DTYPES:
        raise TypeError(f"xp.{function}: an index is {indices.layout!r}; indices are integers, or bools as a mask")
    found: Ref = indices
    return found


def _normal(item: Any) -> Any:
    """Lists as arrays, bools as masks without axes, arrays of one integer without axes as that integer."""
    refuse_masked(item, "indexing")
    if isinstance(item, list):
        item = np.asarray(item)
        item = item if item.size else item.astype(np.int64)
    if isinstance(item, bool | np.bool_):
        return np.asarray(item)
    if isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype.kind != "b":
        return item.item()
    return item


def _is_array(item: Any) -> bool:
    return isinstance(item, GpuRef | np.ndarray)


def _is_mask(item: Any) -> bool:
    if isinstance(item, GpuRef):
        return item.dtype.kind == "bool"
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def _axes(item: Any) -> int:
    """How many axes of the array an item stands for."""
    if item is None or item is ...:
        return 0
    return int(item.ndim) if _is_mask(item) else 1


def _indices(x: Ref, item: Any, axis: int) -> tuple[Ref, ...]:
    """The indices along the axes of ``x`` that an array of the index stands for."""
    device = device_of(x)
    if not _is_mask(item):
        found: Ref = integers("indexing", device.asarray(item), x)
        if isinstance(item, np.ndarray):
            _check_range(x, item, axis)
        return (found,)
    _check_mask(x, item, axis)
    if isinstance(item, np.ndarray):
        return tuple(device.asarray(one) for one in np.nonzero(item))
    if not x._port.services.blocking:
        raise ShapeError(
            f"a mask is {item.layout!r}, and the array is {x.layout!r}: the shape of these lines depends on the data; "
            "take them in two steps, `i, = xp.nonzero(mask); x[await i]`"
        )
    places: tuple[Ref, ...] = device.nonzero(item)
    return places


def _check_range(x: Ref, item: Any, axis: int) -> None:
    extent = x.shape[axis]
    wrong = item[(item < -extent) | (item >= extent)]
    if wrong.size:
        raise IndexRangeError(
            f"index {wrong.flat[0]} is out of range for axis {axis} of {x.layout!r} ({wrong.size} of {item.size} are)"
        )


def _check_mask(x: Ref, mask: Any, axis: int) -> None:
    if tuple(mask.shape) != x.shape[axis : axis + mask.ndim]:
        where = f"axes from {axis} on" if axis else "first axes"
        raise IndexError(
            f"a mask is bool{list(mask.shape)}, and the array is {x.layout!r}: its {where} must have that shape"
        )
