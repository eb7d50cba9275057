"""Plans of expressions on elements."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.elementwise.blocks import Walk, walk_of
from callboard.backends.cpu.elementwise.machine import Machine, numbers_as_held
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
from callboard.kernel.elementwise import Map, MapMany
from callboard.kernel.elementwise.map import program_of, shape_of_operands
from callboard.kernel.elementwise.program import Program
from callboard.kernel.elementwise.shapes import spread

__all__ = ["map_many", "map_one"]


class MapPlan:
    """An expression over arrays of these layouts.

    Args:
        program: The computation.
        shape: Shape of the results.
        operands, results: Layouts of the arrays.
    """

    def __init__(
        self, program: Program, shape: tuple[int, ...], operands: Sequence[Layout], results: Sequence[Layout]
    ) -> None:
        self._program = program
        self._apart = Machine(program, apart=True)
        self._together = Machine(program, apart=False)
        self._empty = 0 in shape
        if self._empty:
            return
        arrays = [*operands, *results]
        held = sum(dtype.itemsize for dtype in self._apart.buffers)
        size = sum(layout.dtype.itemsize for layout in arrays) + held
        if self._apart.calls == 1 and not held:
            size = 0  # one pass of NumPy, which needs no cache in between
        self._walk: Walk = walk_of(shape, [spread(layout, shape) for layout in arrays], size)
        self._views = [
            viewer(layout_of(layout.dtype, self._walk.shape, steps))
            for layout, steps in zip(arrays, self._walk.steps, strict=True)
        ]

    def __call__(self, operands: Sequence[int], scalars: Sequence[Any] | None, results: Sequence[int]) -> None:
        """Compute it; addresses of element 0 of each array."""
        if self._empty:
            return
        numbers = numbers_as_held(self._program, scalars)
        machine = self._together if set(operands).intersection(results) else self._apart
        arrays = [view(address) for view, address in zip(self._views, (*operands, *results), strict=True)]
        inputs, outputs = arrays[: len(operands)], arrays[len(operands) :]
        blocks, run = self._walk.blocks, machine.run
        if len(blocks) == 1:
            run(inputs, outputs, numbers, [np.empty(outputs[0].shape, dtype) for dtype in machine.buffers])
            return
        room: list[np.ndarray[Any, Any]] = []
        shape: tuple[int, ...] | None = None
        for block in blocks:
            there = [array[block] for array in outputs]
            if there[0].shape != shape:
                shape = there[0].shape
                room = [np.empty(shape, dtype) for dtype in machine.buffers]
            run([array[block] for array in inputs], there, numbers, room)


@plans(Map)
def map_one(op: Map) -> Any:
    """Called with ``(operands, scalars, out)``."""
    program = program_of(op)
    shape = shape_of_operands(op)
    made = layout_of(program.steps[program.results[0]].dtype, shape)
    layout = made if op.out is None else op.out.layout
    plan = MapPlan(program, shape, [operand.layout for operand in op.operands], [layout])
    return lambda operands, scalars, out: plan(operands, scalars, (out,))


@plans(MapMany)
def map_many(op: MapMany) -> Any:
    """Called with ``(operands, scalars, outs)``."""
    operands, outs = ([one.layout for one in many] for many in (op.operands, op.outs))
    return MapPlan(program_of(op, op.keep), shape_of_operands(op), operands, outs)
