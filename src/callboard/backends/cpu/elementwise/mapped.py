"""``MapPlan``: an expression over arrays of certain layouts, block by block."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.elementwise.blocks import Walk, walk_of
from callboard.backends.cpu.elementwise.machine import Machine, Numbers
from callboard.backends.cpu.elementwise.native import Native, compiler
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout, layout_of
from callboard.kernel.elementwise.program import Program
from callboard.kernel.elementwise.shapes import spread

__all__ = ["MapPlan"]

FEW_CALLS, FEW_ELEMENTS = 2, 128
"""Below that NumPy is as fast as machine code, ``erf`` excepted."""


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
        self._numbers = Numbers(program)
        large = math.prod(shape) >= FEW_ELEMENTS
        erf = large and compiler() is not None and _has_erf(program)
        self._apart = Machine(program, apart=True, exact=erf)
        self._together = Machine(program, apart=False, exact=erf)
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
        often = large and (erf or self._apart.calls >= FEW_CALLS)
        self._native = Native(program, self._walk, [one.dtype.itemsize for one in arrays], erf) if often else None

    def __call__(self, operands: Sequence[int], scalars: Sequence[Any] | None, results: Sequence[int]) -> None:
        """Compute it; addresses of element 0 of each array."""
        if not self._empty:
            self.run(operands, self._numbers(scalars), results)

    def run(self, operands: Sequence[int], numbers: Sequence[Any], results: Sequence[int]) -> None:
        """Compute it with numbers as they are held; the arrays are not empty."""
        together = set(operands).intersection(results)
        if self._native is not None and not together and self._native.run((*operands, *results), numbers):
            return
        machine = self._together if together else self._apart
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


def _has_erf(program: Program) -> bool:
    """Whether it has ``erf`` of f32, for which machine code is several times as fast as SciPy."""
    return any(step.function == "erf" and step.dtype.name == "f32" for step in program.steps)
