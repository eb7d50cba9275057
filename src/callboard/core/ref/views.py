"""Views: the layout and byte offset that an index or a new shape gives."""

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import SupportsIndex

from callboard.core.dtype import DType
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, c_strides, layout_of, shape_of

__all__ = ["BasicIndex", "Index", "indexed", "reinterpreted", "reshaped"]

BasicIndex = SupportsIndex | slice | EllipsisType | None
Index = BasicIndex | tuple[BasicIndex, ...]


def indexed(layout: Layout, index: Index) -> tuple[Layout, int]:
    """NumPy's basic indexing: the view's layout, and the bytes from the old element 0 to the new one.

    Raises:
        IndexError: Out of range, or more indices than axes.
        TypeError: Fancy indexing, which needs a copy.
    """
    items = index if isinstance(index, tuple) else (index,)
    used = sum(i is not None and i is not ... for i in items)
    if used > layout.ndim:
        raise IndexError(f"{used} indices for {layout!r}, which has {layout.ndim} axes")
    ellipses = sum(i is ... for i in items)  # not `in`: an array compares itself element by element
    if ellipses > 1:
        raise IndexError("an index may hold '...' only once")
    if not ellipses:
        items = (*items, ...)
    shape: list[int] = []
    strides: list[int] = []
    offset = axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            strides.append(0)
        elif item is ...:
            rest = layout.ndim - used
            shape += layout.shape[axis : axis + rest]
            strides += layout.strides[axis : axis + rest]
            axis += rest
        else:
            extent, stride = layout.shape[axis], layout.strides[axis]
            if isinstance(item, slice):
                start, stop, step = item.indices(extent)
                n = len(range(start, stop, step))
                offset += start * stride if n else 0
                shape.append(n)
                strides.append(stride * step if n > 1 else stride)  # a step may be larger than any stride
            else:
                try:
                    i = operator.index(item)
                except TypeError:
                    raise TypeError(f"index {item!r:.80}: a view takes integers, slices, '...' and None") from None
                if not -extent <= i < extent:
                    raise IndexError(f"index {i} is out of range for axis {axis} of {layout!r}")
                offset += (i % extent) * stride
            axis += 1
    if 0 in shape:
        offset = 0  # an empty array may have any offset, preferably one inside the allocation
    return layout_of(layout.dtype, tuple(shape), tuple(strides)), offset * layout.dtype.itemsize


def reshaped(layout: Layout, shape: int | Sequence[int]) -> Layout:
    """The layout of a view of another shape; one extent may be -1. Groups of axes without gaps can be split and merged.

    Raises:
        ShapeError: Another size, or no view of these strides has that shape.
    """
    shape = shape_of(shape)
    unknown = [i for i, n in enumerate(shape) if n == -1]
    known = 1
    for n in shape:
        known *= n if n != -1 else 1
    if len(unknown) > 1 or any(n < -1 for n in shape):
        raise ShapeError(f"shape {shape}: extents are >= 0, and one may be -1")
    if unknown and known and layout.size % known == 0:
        shape = tuple(layout.size // known if n == -1 else n for n in shape)
        known = layout.size
    if known != layout.size or -1 in shape:
        raise ShapeError(f"{layout!r} has {layout.size} elements and cannot be viewed as {shape}")
    if layout.contiguous:
        return layout_of(layout.dtype, shape)
    old = [(n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if n != 1]
    strides = list(c_strides(shape))
    i = j = 0
    while i < len(old):
        n_old, n_new, start = old[i][0], 1, j
        last = i
        while n_old != n_new or (j < len(shape) and shape[j] == 1):
            if n_new < n_old or (n_new == n_old and shape[j] == 1):
                n_new *= shape[j]
                j += 1
            else:
                last += 1
                n_old *= old[last][0]
        for a in range(i, last):
            if old[a][1] != old[a + 1][0] * old[a + 1][1]:
                raise ShapeError(f"{layout!r} has gaps and cannot be viewed as {shape}; copy it first (dev.copy)")
        step = old[last][1]
        for b in range(j - 1, start - 1, -1):
            strides[b] = step
            step *= shape[b]
        i = last + 1
    return layout_of(layout.dtype, shape, tuple(strides))


def reinterpreted(layout: Layout, dtype: DType, offset: int = 0) -> Layout:
    """The layout of the same bytes taken as another dtype, by the rules of NumPy's ``ndarray.view``.

    Strides count elements, so unlike NumPy's they must stay whole when elements get larger.

    Args:
        layout: Layout of the array.
        dtype: The dtype of the result.
        offset: Bytes from the start of the allocation to element 0, which stays where it is.

    Raises:
        ShapeError: The layouts do not fit; names the reason.
    """
    old, new = layout.dtype.itemsize, dtype.itemsize
    if offset % new:
        raise ShapeError(f"{layout!r} begins {offset} bytes into its buffer, and {dtype} needs a multiple of {new}")
    if old == new:
        return layout_of(dtype, layout.shape, layout.strides)
    if not layout.ndim:
        raise ShapeError(
            f"{layout!r} cannot be viewed as {dtype}: a 0-d array has no axis to rescale (reshape(1) first)"
        )
    extent = layout.shape[-1]
    if layout.size > 1 and extent != 1 and layout.strides[-1] != 1:
        raise ShapeError(f"{layout!r} cannot be viewed as {dtype}: its last axis has gaps; copy it first (dev.copy)")
    if extent * old % new:
        raise ShapeError(
            f"{layout!r} cannot be viewed as {dtype}: {extent * old} bytes of the last axis are not a multiple of {new}"
        )
    steps = [s * old for s in layout.strides[:-1]]
    for axis, step in enumerate(steps):
        if step % new and layout.size and layout.shape[axis] > 1:
            raise ShapeError(
                f"{layout!r} cannot be viewed as {dtype}: axis {axis} has a step of {step} bytes, not a "
                f"multiple of {new}"
            )
    shape = (*layout.shape[:-1], extent * old // new)
    if layout.contiguous:
        return layout_of(dtype, shape)
    return layout_of(dtype, shape, (*(step // new for step in steps), 1))
