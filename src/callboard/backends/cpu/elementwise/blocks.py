"""Iteration over elements in blocks small enough that intermediate values stay in the cache."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

__all__ = ["Walk", "walk_of"]

BYTES = 2 << 20
"""Bytes that one block reads, holds and writes: about a core's second-level cache, of which much is read once."""
LEAST = 2048
"""Elements of a block at least: below that the calls cost more than the cache saves."""


class Walk(NamedTuple):
    """The fewest axes that reach the same elements of several arrays, and how they are cut into blocks.

    Attributes:
        shape: Extents of the axes, the one with the longest steps first.
        steps: For each array, its steps along the axes, in elements.
        blocks: Slices of the axes, and an ellipsis, so that an index by them gives an array.
        groups: Group of each axis.
    """

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    blocks: tuple[tuple[Any, ...], ...]
    groups: tuple[object, ...]


def walk_of(
    shape: Sequence[int],
    steps: Sequence[Sequence[int]],
    per_element: int,
    order: Sequence[int] | None = None,
    groups: Sequence[object] | None = None,
) -> Walk:
    """A walk over a shape that is not empty.

    Args:
        shape: Extents that the arrays have together.
        steps: For each array, its steps along the axes, in elements.
        per_element: Bytes that an element takes in all arrays and buffers; 0 for one block.
        order: Axes, the one whose steps are walked last at first; None: in the order of the last array's memory.
        groups: Group of each axis: axes of different groups are not merged.
    """
    leading = steps[-1]
    order = sorted(range(len(shape)), key=lambda i: -abs(leading[i])) if order is None else order
    extents: list[int] = []
    joined: list[tuple[int, ...]] = []
    kinds: list[object] = []
    for axis in (i for i in order if shape[i] > 1):
        step = tuple(s[axis] for s in steps)
        extent, kind = shape[axis], None if groups is None else groups[axis]
        near = bool(extents) and kinds[-1] == kind
        if near and all(wide == own * extent for wide, own in zip(joined[-1], step, strict=True)):
            extents[-1] *= extent
            joined[-1] = step
        else:
            extents.append(extent)
            joined.append(step)
            kinds.append(kind)
    per_array = tuple(tuple(step[i] for step in joined) for i in range(len(steps)))
    most = max(LEAST, BYTES // per_element) if per_element else math.prod(extents)
    return Walk(tuple(extents), per_array, tuple(_blocks(extents, most)), tuple(kinds))


def _blocks(extents: Sequence[int], most: int) -> Iterator[tuple[Any, ...]]:
    """Boxes of limited size, whole in as many of the last axes as fit."""
    inside = 1
    axis = len(extents)
    while axis and inside * extents[axis - 1] <= most:
        axis -= 1
        inside *= extents[axis]
    if not axis:
        yield (...,)
        return
    cut, extent = axis - 1, extents[axis - 1]
    length = max(1, most // inside)
    length = -(-extent // -(-extent // length))  # all about as long
    starts = range(0, extent, length)
    for index in product(*map(range, extents[:cut])):
        outer = tuple(slice(i, i + 1) for i in index)
        for start in starts:
            yield (*outer, slice(start, min(start + length, extent)), ...)
