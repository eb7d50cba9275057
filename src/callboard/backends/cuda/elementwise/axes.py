"""Iteration of a kernel over its arrays: merged axes, packs of neighbours, the width of an index."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from callboard.backends.cuda.axes import is_wide, merged_axes
from callboard.core.errors import UnsupportedOp

__all__ = ["MAX_AXES", "Walk", "divider", "rolled_walk", "walk_of"]

MAX_AXES = 16
"""Axes that cannot be merged; each is a division in the kernel."""
PACK = 16
"""Bytes of the smallest element's pack at most."""
WIDEST = 32
"""Bytes of the largest element's pack at most."""


class Walk(NamedTuple):
    """The fewest axes that reach the same elements of several arrays.

    Attributes:
        extents: Extent of each axis; the last one in packs.
        steps: For each array, its steps in elements; along the last axis the step between neighbouring packs.
        pack: Elements that a thread takes at once: neighbours in every array that is not repeated.
        tail: Elements beyond the last whole pack; only of a single axis.
        wide: 32 bits do not hold every index and every offset.
        repeated: For each array, whether all elements of a pack are the same element.
        rolls: For each array the places by which it is rolled along each axis, empty if it is not; empty if none is.
    """

    extents: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    pack: int
    tail: int
    wide: bool
    repeated: tuple[bool, ...]
    rolls: tuple[tuple[int, ...], ...] = ()

    @property
    def packs(self) -> int:
        """Whole packs."""
        return math.prod(self.extents)


def walk_of(
    shape: Sequence[int],
    steps: Sequence[Sequence[int]],
    itemsizes: Sequence[int],
    first: int,
    packed: bool = True,
    ordered: bool = False,
    beside: Sequence[Sequence[int]] = (),
) -> Walk:
    """A walk over a shape without an extent of 0.

    Args:
        shape: Extents.
        steps: For each array, its steps along the axes, in elements.
        itemsizes: Bytes of an element of each array.
        first: The array in whose memory's order elements are taken.
        packed: True if packs of more than one element are wanted, which need aligned addresses.
        ordered: True if elements are taken in row-major order of the shape instead.
        beside: Steps of each array that are added to this walk's.

    Raises:
        UnsupportedOp: Too many axes remain.
    """
    order = [first, *(i for i in range(len(steps)) if i != first)]
    extents, merged = merged_axes(shape, *(steps[i] for i in order), ordered=ordered)
    _refuse_many(len(extents))
    found = [merged[order.index(i)] for i in range(len(steps))]
    pack = _pack(extents, found, itemsizes, first, beside) if packed else 1
    jumps = tuple((*step[:-1], step[-1] * pack) for step in found)
    return Walk(
        (*extents[:-1], extents[-1] // pack),
        jumps,
        pack,
        extents[-1] % pack,
        is_wide(extents, *found),
        tuple(step[-1] == 0 for step in found),
    )


def rolled_walk(shape: Sequence[int], steps: Sequence[Sequence[int]], shifts: Sequence[Sequence[int]]) -> Walk:
    """A walk over a shape without an extent of 0, some of whose arrays are rolled: along all axes, one by one.

    Args:
        shape: Extents.
        steps: For each array, its steps along the axes, in elements.
        shifts: For each of the first arrays the places by which it is rolled along each axis.

    Raises:
        UnsupportedOp: Too many axes.
    """
    _refuse_many(len(shape))
    places = [tuple(by % n for by, n in zip(one, shape, strict=True)) for one in shifts]
    rolls = [one if any(one) else () for one in places] + [()] * (len(steps) - len(places))
    wide, one_by_one = is_wide(shape, *steps), (False,) * len(steps)
    return Walk(tuple(shape), tuple(map(tuple, steps)), 1, 0, wide, one_by_one, tuple(rolls))


def _refuse_many(axes: int) -> None:
    if axes > MAX_AXES:
        raise UnsupportedOp(
            f"{axes} axes that cannot be merged; at most {MAX_AXES} (copy the operands first: dev.copy)"
        )


def _pack(
    extents: Sequence[int],
    steps: Sequence[Sequence[int]],
    itemsizes: Sequence[int],
    first: int,
    beside: Sequence[Sequence[int]],
) -> int:
    """Elements of a pack: neighbours wherever an array is not repeated, each pack at a multiple of its size."""
    if steps[first][-1] != 1 or any(step[-1] not in (0, 1) for step in steps):
        return 1
    pack = max(1, min(PACK // min(itemsizes), WIDEST // max(itemsizes)))
    apart = [n for i, step in enumerate(steps) if step[-1] == 1 for n in (*step[:-1], *(beside[i] if beside else ()))]
    if len(extents) > 1:
        apart.append(extents[-1])
    while pack > 1 and any(n % pack for n in apart):
        pack //= 2
    return pack


def divider(divisor: int) -> tuple[int, int, int]:
    """The fields of the kernels' ``Divider``; right for numbers below 2**31."""
    shift = (divisor - 1).bit_length()
    return divisor, ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1, shift
