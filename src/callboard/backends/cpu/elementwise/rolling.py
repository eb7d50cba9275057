"""Expressions whose operands are rolled, so that a step of a stencil is one pass.

Shifted by the steps of a row-major array, a roll is a view of the array that is continued at both ends by its other
end, except where an axis behind the first wraps: there it is computed again, in boxes at the edges.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from callboard.backends.cpu.elementwise.machine import numbers_as_held
from callboard.backends.cpu.elementwise.mapped import MapPlan
from callboard.backends.cpu.views import array_at
from callboard.core.layout import Layout, c_strides, layout_of
from callboard.kernel.elementwise.program import Program

__all__ = ["RolledPlan", "boxes"]

Shifts = Sequence[Sequence[int]]


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
        self._program = program
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
        numbers = numbers_as_held(self._program, scalars)
        kept: dict[tuple[int, Layout], np.ndarray[Any, Any]] = {}
        first = [
            self._continued(address, layout, kept) if rolls or not layout.contiguous else address
            for address, layout, rolls in zip(operands, self._layouts, self._rolls, strict=True)
        ]
        for plan, offsets in self._parts:
            plan.run([at + by for at, by in zip(first, offsets, strict=False)], numbers, (out + offsets[-1],))

    def _continued(self, address: int, layout: Layout, kept: dict[tuple[int, Layout], Any]) -> int:
        """The address of element 0 of a copy that is continued at both ends."""
        array = kept.get((address, layout))
        beyond, size = self._beyond, self._size
        if array is None:
            array = kept[address, layout] = np.empty(size + 2 * beyond, layout.dtype.np)
            middle = array[beyond : beyond + size]
            middle.reshape(layout.shape)[...] = array_at(address, layout)
            for start in range(0, beyond, size):  # of a small array more than all of it
                n = min(size, beyond - start)
                array[beyond + size + start : beyond + size + start + n] = middle[:n]
                array[beyond - start - n : beyond - start] = middle[size - n :]
        return int(array.ctypes.data) + beyond * layout.dtype.itemsize


def _dot(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))
