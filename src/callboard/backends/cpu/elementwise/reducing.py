"""Plans of reductions: blocks are computed, reduced by NumPy, and joined."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.elementwise.blocks import walk_of
from callboard.backends.cpu.elementwise.functions import Array, computed_in
from callboard.backends.cpu.elementwise.machine import Machine, Numbers
from callboard.backends.cpu.elementwise.native import Native
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
from callboard.kernel.elementwise import Reduce
from callboard.kernel.elementwise.map import shape_of_operands
from callboard.kernel.elementwise.reduce import axes_of, reduction_of
from callboard.kernel.elementwise.shapes import spread

__all__ = ["reduce"]

JOINS: Mapping[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "any": np.logical_or,
    "all": np.logical_and,
}
WIDER = {"f": np.dtype("d"), "F": np.dtype("D")}
"""The dtype in which the sums and products of blocks are combined: there may be many blocks."""


def steps_of_out(layout: Layout, axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Steps of a result along the axes of the operands; 0 along those that are reduced."""
    if layout.ndim == ndim:
        return tuple(0 if axis in axes else step for axis, step in enumerate(layout.strides))
    kept = iter(layout.strides)
    return tuple(0 if axis in axes else next(kept) for axis in range(ndim))


@plans(Reduce)
def reduce(op: Reduce) -> Any:
    """Called with ``(operands, scalars, out)``."""
    shape = shape_of_operands(op)
    axes = axes_of(op, len(shape))
    out = op.infer()["out"] if op.out is None else op.out.layout
    if out.size == 0:
        return lambda operands, scalars, out: None
    return ReducePlan(op, shape, axes, out)


class ReducePlan:
    """A reduction over arrays of these layouts."""

    def __init__(self, op: Reduce, shape: tuple[int, ...], axes: tuple[int, ...], out: Layout) -> None:
        self._reduction = reduction = reduction_of(op)
        self._machine = Machine(reduction.each, apart=True)
        self._finish = Machine(reduction.finish, apart=True)
        self._numbers, self._numbers_of_finish = Numbers(reduction.each), Numbers(reduction.finish)
        layouts = [one.layout for one in op.operands]
        steps = [*(spread(layout, shape) for layout in layouts), steps_of_out(out, axes, len(shape))]
        groups = ["reduced" if axis in axes else "kept" for axis in range(len(shape))]
        self._count = math.prod(shape[axis] for axis in axes)
        self._where = reduction.function.startswith("arg")
        held_dtype = computed_in(reduction.accumulator)
        held = sum(dtype.itemsize for dtype in self._machine.buffers) + held_dtype.itemsize
        size = held + sum(layout.dtype.itemsize for layout in layouts)
        self._direct = len(reduction.each.steps) == 1 and not self._machine.buffers  # an operand as it is
        if self._direct:
            size = 0
        if self._where:  # positions are those of row-major order
            order = sorted(range(len(shape)), key=lambda axis: (groups[axis] == "reduced", axis))
        else:
            largest = max(range(len(layouts)), key=lambda i: layouts[i].size)
            order = sorted(range(len(shape)), key=lambda axis: -abs(steps[largest][axis]))
        extents = [n or 1 for n in shape]  # of nothing there are no blocks to walk
        self._walk = walk_of(extents, steps, size, order, groups)
        self._reduced = tuple(i for i, kind in enumerate(self._walk.groups) if kind == "reduced")
        self._kept = tuple(1 if i in self._reduced else n for i, n in enumerate(self._walk.shape))
        self._views = [
            viewer(layout_of(layout.dtype, self._walk.shape, step))
            for layout, step in zip(layouts, self._walk.steps, strict=False)
        ]
        values = layout_of(reduction.each.steps[reduction.each.results[0]].dtype, self._walk.shape)
        whole = len(self._walk.blocks) == 1 and self._machine.calls > 1 and values.dtype.np == held_dtype
        self._native = None
        if whole:
            walk = self._walk._replace(steps=(*self._walk.steps[:-1], values.strides))
            sizes = [one.dtype.itemsize for one in (*layouts, values)]
            self._native = Native(reduction.each, walk, sizes)
        self._view_out = viewer(layout_of(out.dtype, self._kept, self._walk.steps[-1]))

    def __call__(self, operands: Sequence[int], scalars: Sequence[Any] | None, out: int) -> None:
        """Compute it; addresses of element 0 of each array."""
        reduction = self._reduction
        total = self._joined(operands, scalars)
        into = self._view_out(out)
        if reduction.plain:
            np.copyto(into, total, casting="unsafe")
            return
        given = total.astype(computed_in(reduction.total), copy=False)
        if computed_in(reduction.total) != reduction.total.np:
            given = given.astype(reduction.total.np)
        numbers = self._numbers_of_finish((*(scalars or ()), float(self._count)))
        room = [np.empty(into.shape, dtype) for dtype in self._finish.buffers]
        self._finish.run([given], [into], numbers, room)

    def _joined(self, operands: Sequence[int], scalars: Sequence[Any] | None) -> Array:
        """Return the total, with the result's extents and 1 along the reduced axes."""
        reduction = self._reduction
        held = computed_in(reduction.accumulator)
        if self._where:
            return self._positions(operands, scalars)
        join = JOINS[reduction.function]
        if not self._count:
            return np.full(self._kept, join.identity, held)
        wide = WIDER.get(held.char, held) if join in (np.add, np.multiply) else held
        if len(self._walk.blocks) == 1:
            wide = held
        total: Array | None = None
        started = np.zeros(self._kept, bool)
        for block, values in self._blocks(operands, scalars):
            part = join.reduce(values, axis=self._reduced, keepdims=True, dtype=held) if self._reduced else values
            if len(self._walk.blocks) == 1:
                return np.array(part)
            if total is None:
                total = np.empty(self._kept, wide)
            kept = tuple(slice(None) if i in self._reduced else s for i, s in enumerate(block))
            here, fresh = total[kept], started[kept]
            if fresh.flat[0]:
                join(here, part, out=here)
            else:
                here[...] = part
                fresh[...] = True
        assert total is not None
        return total

    def _blocks(self, operands: Sequence[int], scalars: Sequence[Any] | None) -> Any:
        arrays = [view(address) for view, address in zip(self._views, operands, strict=True)]
        reduction, machine = self._reduction, self._machine
        if self._direct:
            array = arrays[reduction.each.steps[0].value]
            for block in self._walk.blocks:
                yield block, array[block]
            return
        numbers = self._numbers(scalars)
        held = computed_in(reduction.accumulator)
        if self._native is not None:
            values = np.empty(self._walk.shape, held)
            if self._native.run((*operands, values.ctypes.data), numbers):
                yield self._walk.blocks[0], values
                return
        rooms: dict[tuple[int, ...], tuple[Array, list[Array]]] = {}
        for block in self._walk.blocks:
            inputs = [array[block] for array in arrays]
            shape = inputs[0].shape
            if shape not in rooms:
                rooms[shape] = np.empty(shape, held), [np.empty(shape, dtype) for dtype in machine.buffers]
            values, room = rooms[shape]
            machine.run(inputs, [values], numbers, room)
            yield block, values

    def _positions(self, operands: Sequence[int], scalars: Sequence[Any] | None) -> Array:
        """The position of the largest or smallest element, and the first of equal ones."""
        least = self._reduction.function == "argmin"
        find, better = (np.argmin, np.less) if least else (np.argmax, np.greater)
        extents = [self._walk.shape[i] for i in self._reduced]
        weights = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
        first = len(self._walk.shape) - len(extents)  # the reduced axes come last
        best: Array | None = None
        found = np.zeros(self._kept, np.int64)
        started = np.zeros(self._kept, bool)
        for block, values in self._blocks(operands, scalars):
            flat = values.reshape(*values.shape[:first], -1)
            own = np.asarray(find(flat, axis=-1))
            if len(self._walk.blocks) == 1:
                return own.astype(np.int64, copy=False).reshape(self._kept)
            value = np.take_along_axis(flat, own[..., None], -1)
            starts = [s.start or 0 for s in block[first:-1]]
            position = own[..., None] + sum(s * w for s, w in zip(starts, weights, strict=False))
            shape = (*value.shape[:-1], *[1] * len(extents)) if extents else value.shape[:-1]
            value, position = value.reshape(shape), position.reshape(shape)
            if best is None:
                best = np.zeros(self._kept, value.dtype)
            kept = (*(s for s in block[:first] if s is not ...), ...)
            here = best[kept]
            wins = ~started[kept] | better(value, here) | ((value != value) & (here == here))
            np.copyto(here, value, where=wins)
            np.copyto(found[kept], position, where=wins)
            started[kept] = True
        return found
