"""Row iteration of kernels: strides between rows, packs of neighbours, threads and registers per row."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from callboard.backends.cuda.plans import PlanMemory, nothing
from callboard.core.layout import Layout, c_strides, layout_of

__all__ = ["RowShape", "RowsIn", "RowsOut", "moved_last", "pack_of", "row_shape", "row_step"]

PACK = 16
"""Bytes of a pack at most."""


def moved_last(layout: Layout, axis: int) -> Layout:
    """The same elements with an axis after the others."""
    order = [i for i in range(layout.ndim) if i != axis % layout.ndim] + [axis % layout.ndim]
    return layout_of(layout.dtype, tuple(layout.shape[i] for i in order), tuple(layout.strides[i] for i in order))


def row_step(layout: Layout, axes: int) -> int | None:
    """The step from row to row, where the last axes are rows without gaps and all rows are equally far apart."""
    split = layout.ndim - axes
    inner, steps = layout.shape[split:], layout.strides[split:]
    if any(n > 1 and step != dense for n, step, dense in zip(inner, steps, c_strides(inner), strict=True)):
        return None
    found, reach = None, 0
    for n, step in zip(reversed(layout.shape[:split]), reversed(layout.strides[:split]), strict=True):
        if n == 1:
            continue
        if found is None:
            found, reach = step, step * n
        elif step != reach:
            return None
        else:
            reach = step * n
    return math.prod(inner) if found is None else found


class RowsIn:
    """An operand as rows: as it is, or copied if its rows are not equally far apart.

    Attributes:
        step: Distance between neighbouring rows, in elements.
        bring: ``bring(native stream, address)``: enqueues the copy, if one is needed, and gives the rows' address.
    """

    def __init__(self, memory: PlanMemory, layout: Layout, axes: int = 1) -> None:
        step = row_step(layout, axes)
        self.step = math.prod(layout.shape[layout.ndim - axes :]) if step is None else step
        self.bring: Callable[[int, int], int] = _as_it_is if step is not None else memory.brought(layout)


class RowsOut:
    """A result as rows: in its place, or written beside and copied there.

    Attributes:
        step: Distance between neighbouring rows, in elements.
        target: ``target(address)``: where the rows are written.
        finish: ``finish(native stream, address)``: enqueues the copy to their place, if one is needed.
    """

    def __init__(self, memory: PlanMemory, layout: Layout, axes: int = 1) -> None:
        step = row_step(layout, axes)
        self.step = math.prod(layout.shape[layout.ndim - axes :]) if step is None else step
        if step is not None:
            self.target: Callable[[int], int] = _same
            self.finish: Callable[[int, int], None] = nothing
        else:
            delivery = memory.delivered(layout)
            self.target, self.finish = delivery.target, delivery.finish


def _as_it_is(native: int, address: int) -> int:
    return address


def _same(address: int) -> int:
    return address


def pack_of(itemsize: int, length: int, steps: Sequence[int]) -> int:
    """Elements of a pack: as many as each row has a whole number of, and as rows are a multiple of apart."""
    pack = PACK // itemsize
    while pack > 1 and any(n % pack for n in (length, *steps)):
        pack //= 2
    return pack


class RowShape(NamedTuple):
    """The threads of a row.

    Attributes:
        lanes: Threads of a row: a power of two up to 32, or a multiple of 32.
        rows: Rows of a block.
        packs: Packs of a row that a thread keeps in registers; 0 if a row is too long for that.
    """

    lanes: int
    rows: int
    packs: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.rows

    def blocks(self, rows: int) -> int:
        """The number of blocks for ``rows`` rows."""
        return max(1, -(-rows // self.rows))


THREADS = 128
"""Threads of a block of short rows."""


def row_shape(packs: int, wanted: int, most: int, most_lanes: int, long_lanes: int = 512) -> RowShape:
    """Return the threads for rows of ``packs`` packs; equal arguments give equal threads.

    Args:
        packs: Packs of a row, > 0.
        wanted: Packs of a thread if a row has enough.
        most: Packs that a thread can keep.
        most_lanes: Threads of a row.
        long_lanes: Threads of a row that does not fit into registers.
    """
    lanes = -(-packs // wanted)
    if lanes > most_lanes:
        lanes = max(most_lanes, -(-packs // most))
    if lanes > most_lanes:
        return RowShape(long_lanes, 1, 0)
    lanes = 1 << (lanes - 1).bit_length() if lanes <= 32 else -(-lanes // 32) * 32
    return RowShape(lanes, max(1, THREADS // lanes), -(-packs // lanes))
