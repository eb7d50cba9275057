"""Expressions whose operands are rolled, so that a step of a stencil is one pass.

Shifted by the steps of a row-major array, a roll is a view of the array that is continued at both ends by its other
end, except where an axis behind the first wraps: there it is computed again, in boxes at the edges.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from callboard.backends.cpu.elementwise.machine import Numbers
from callboard.backends.cpu.elementwise.mapped import MapPlan
from callboard.backends.cpu.views import array_at
from callboard.core.layout import Layout, c_strides, layout_of
from callboard.kernel.elementwise.program import Program

__all__ = ["RolledPlan", "boxes"]

Shifts = Sequence[Sequence[int]]
KEPT = 4 << 20
"""Bytes of memory that a thread keeps."""
_kept = threading.local()


def boxes(shape: Sequence[int], shifts: Shifts) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The first and last indices (excluded) of the boxes that cover a shape, so that no rolled array wraps inside one.

    Args:
        shape: Extents, each at least 1.
        shifts: For each array, the places by which it is rolled along each axis.
    """
    cuts = [sorted({0, extent, *(by[axis] % extent for by in shifts)}) for axis, extent in enumerate(shape)]
    for spans in product(*(list(pairwise(cut)) for cut in cuts)):
        yield tuple(low for low, _ in spans), tuple(high for _, high in spans)


class RolledPlan:
    """An expression over arrays of one shape.

    Args:
        program: The computation.
        operands: Layouts of the arrays.
        shifts: The places by which each is rolled.
        out: Layout of the result, row-major and not empty.
    """

    def __init__(self, program: Program, operands: Sequence[Layout], shifts: Shifts, out: Layout) -> None:
        self._numbers = Numbers(program)
        self._layouts = operands
        shape, steps = out.shape, c_strides(out.shape)
        near = [[n - e if 2 * n > e else n for n, e in zip(by, shape, strict=True)] for by in shifts]
        self._rolls = [any(by) for by in near]
        row = steps[0]
        self._size = out.size
        self._beyond = row * (1 + max(abs(by[0]) for by in near))  # elements that an array is continued by
        flat = [layout_of(layout.dtype, (out.size,)) for layout in (*operands, out)]
        starts = [-_dot(by, steps) for by in near]
        self._parts = [(MapPlan(program, (out.size,), flat[:-1], flat[-1:]), self._offsets(starts, 0, flat))]
        for low, high in boxes(shape[1:], [by[1:] for by in near]):
            ends = [[(a - n) % e for a, n, e in zip(low, by[1:], shape[1:], strict=True)] for by in near]
            if all(
                end == [a - n for a, n in zip(low, by[1:], strict=True)] for end, by in zip(ends, near, strict=True)
            ):
                continue
            box = shape[0], *(b - a for a, b in zip(low, high, strict=True))
            layouts = [layout_of(layout.dtype, box, steps) for layout in (*operands, out)]
            starts = [_dot(end, steps[1:]) - by[0] * row for end, by in zip(ends, near, strict=True)]
            plan = MapPlan(program, box, layouts[:-1], layouts[-1:])
            self._parts.append((plan, self._offsets(starts, _dot(low, steps[1:]), layouts)))

    def _offsets(self, starts: Sequence[int], out: int, layouts: Sequence[Layout]) -> list[int]:
        """Bytes from the first element of each array, as it is continued, to the first that is read or written."""
        return [at * layout.dtype.itemsize for at, layout in zip((*starts, out), layouts, strict=True)]

    def __call__(self, operands: Sequence[int], scalars: Sequence[Any] | None, out: int) -> None:
        """Compute it; addresses of element 0 of each array."""
        numbers = self._numbers(scalars)
        wanted = [
            (address, layout) if rolls or not layout.contiguous else None
            for address, layout, rolls in zip(operands, self._layouts, self._rolls, strict=True)
        ]
        apart = dict.fromkeys(one for one in wanted if one is not None)
        room, free = self._room(apart), 0
        places: dict[Any, int] = {}
        for one in apart:
            places[one] = self._continued(*one, room[free:])
            free += self._length(one[1])
        first = [places.get(one, address) for one, address in zip(wanted, operands, strict=True)]
        for plan, offsets in self._parts:
            plan.run([at + by for at, by in zip(first, offsets, strict=False)], numbers, (out + offsets[-1],))

    def _length(self, layout: Layout) -> int:
        """Bytes of an array that is continued, in whole cache lines."""
        return -(-(self._size + 2 * self._beyond) * layout.dtype.itemsize // 64) * 64

    def _room(self, wanted: Iterable[tuple[int, Layout]]) -> np.ndarray[Any, Any]:
        """Memory for these; the thread keeps it, if it is small, since fresh pages take as long as the copy."""
        nbytes = sum(self._length(layout) for _, layout in wanted)
        if nbytes > KEPT:
            return np.empty(nbytes, np.uint8)
        room: np.ndarray[Any, Any] | None = getattr(_kept, "room", None)
        if room is None:
            room = _kept.room = np.empty(KEPT, np.uint8)
        return room

    def _continued(self, address: int, layout: Layout, room: np.ndarray[Any, Any]) -> int:
        """The address of element 0 of a copy that is continued at both ends."""
        beyond, size, itemsize = self._beyond, self._size, layout.dtype.itemsize
        array = room[: (size + 2 * beyond) * itemsize].view(layout.dtype.np)
        middle = array[beyond : beyond + size]
        middle.reshape(layout.shape)[...] = array_at(address, layout)
        for start in range(0, beyond, size):  # of a small array more than all of it
            n = min(size, beyond - start)
            array[beyond + size + start : beyond + size + start + n] = middle[:n]
            array[beyond - start - n : beyond - start] = middle[size - n :]
        place: int = array.__array_interface__["data"][0]
        return place + beyond * itemsize


def _dot(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))
