"""A program on blocks: which buffer each step writes, and the calls of NumPy in order."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.elementwise.erf import erf
from callboard.backends.cpu.elementwise.functions import Array, Compute, computed_in, function
from callboard.core.dtype import DType
from callboard.kernel.elementwise.program import Program
from callboard.kernel.elementwise.tree import Name

__all__ = ["Machine", "Numbers"]

Place = tuple[str, int]
"""The location of a value: ``("buffer", i)``, or ``"operand"``, ``"result"``, ``"number"``, ``"constant"``."""


class Call(NamedTuple):
    compute: Compute
    arguments: tuple[Place, ...]
    out: Place


def held(value: Any, dtype: DType) -> Any:
    """A number as it is held between steps: rounded to its dtype first."""
    return computed_in(dtype).type(dtype.np.type(value))


class Numbers:
    """The values of a call's numbers, as they are held between steps."""

    def __init__(self, program: Program) -> None:
        self._program = program
        steps = [program.steps[at] for at in program.numbers]
        self._dtypes = [step.dtype for step in steps]
        places = {name: at for at, name in enumerate(program.names)}
        plain = all(
            isinstance(step.value, Name) and step.dtype.name in ("f32", "f64") and step.value.name not in program.bools
            for step in steps
        )
        self._plain = [(places[step.value.name], step.dtype.np.type) for step in steps] if plain else None

    def __call__(self, given: Sequence[Any] | None) -> list[Any]:
        if self._plain is not None:  # the usual ones: a number where it stands
            return [type_(float((given or ())[at])) for at, type_ in self._plain]
        return [held(value, dtype) for value, dtype in zip(self._program.values(given), self._dtypes, strict=True)]


class Machine:
    """A program, made ready for blocks.

    Args:
        program: The computation.
        apart: True if no result shares memory with an operand: results are then computed in their final memory.
        exact: True if the program's bits are to be those of its machine code: no SciPy, for which C has no equal.

    Attributes:
        buffers: Types of the buffers that a block needs.
        calls: Number of calls of NumPy for each block.
        run: Computes a block. It is called with its elements of each operand, those of each result, the numbers as
            they are held, and buffers of the block's shape.
    """

    def __init__(self, program: Program, apart: bool, exact: bool = False) -> None:
        steps = program.steps
        self._last = _last_uses(program)
        self._places: dict[int, Place] = {}
        self._free: dict[np.dtype[Any], list[int]] = {}
        self._calls: list[Call] = []
        self._constants: list[Any] = []
        self.buffers: list[np.dtype[Any]] = []
        numbers = {at: i for i, at in enumerate(program.numbers)}
        stores: list[Call] = []
        results: dict[int, list[int]] = {}
        for i, at in enumerate(program.results):
            results.setdefault(at, []).append(i)
        for at, step in enumerate(steps):
            kept = computed_in(step.dtype)
            if step.function == "operand":
                self._places[at] = ("operand", step.value)
                if kept != step.dtype.np or (not apart and at in results and len(program.results) > 1):
                    out = self._take(kept, ())
                    self._calls.append(Call(_copy, (("operand", step.value),), out))
                    self._places[at] = out
            elif step.function == "constant":
                self._places[at] = ("constant", len(self._constants))
                self._constants.append(held(step.value, step.dtype))
            elif step.function == "number":
                self._places[at] = ("number", numbers[at])
            else:
                compute: Compute = erf
                if not (exact and step.function == "erf" and kept == step.dtype.np == np.float32):
                    compute = function(step.function, tuple(steps[a].dtype for a in step.arguments), step.dtype)
                arguments = tuple(self._places[a] for a in step.arguments)
                here = results.get(at)
                dying = [a for a in dict.fromkeys(step.arguments) if self._last[a] == at]
                if here and apart and kept == step.dtype.np:
                    out = ("result", here.pop(0))
                    self._release(dying)
                elif isinstance(compute, np.ufunc):
                    self._release(dying)  # NumPy allows the place of an argument for the result
                    out = self._take(kept, arguments)
                else:
                    out = self._take(kept, ())
                    self._release(dying)
                self._calls.append(Call(compute, arguments, out))
                self._places[at] = out
            stores += [Call(_copy, (self._places[at],), ("result", i)) for i in results.get(at, ())]
        self._calls += stores
        self.run = self._written_out()

    @property
    def calls(self) -> int:
        return len(self._calls)

    def _written_out(self) -> Callable[..., None]:
        """The calls as one function: a loop over them takes as long as NumPy takes for a small block."""
        given: dict[str, Any] = {f"f{i}": call.compute for i, call in enumerate(self._calls)}
        given["constant"] = self._constants
        lines = ["def run(operand, result, number, buffer):"]
        for i, (_, arguments, out) in enumerate(self._calls):
            places = ", ".join(f"{kind}[{at}]" for kind, at in arguments)
            lines.append(f" f{i}({places}, out={out[0]}[{out[1]}])")
        exec("\n".join(lines), given)  # of names that are made here, and nothing else
        run: Callable[..., None] = given["run"]
        return run

    def _take(self, dtype: "np.dtype[Any]", wanted: Sequence[Place]) -> Place:
        free = self._free.setdefault(dtype, [])
        if free:
            same = [i for kind, i in wanted if kind == "buffer" and i in free]
            at = same[0] if same else free[-1]
            free.remove(at)
            return ("buffer", at)
        self.buffers.append(dtype)
        return ("buffer", len(self.buffers) - 1)

    def _release(self, steps: Sequence[int]) -> None:
        for step in steps:
            kind, at = self._places[step]
            if kind == "buffer":
                self._free.setdefault(self.buffers[at], []).append(at)


def _last_uses(program: Program) -> list[int]:
    """For each step the last one that reads it; beyond all where it is stored."""
    last = list(range(len(program.steps)))
    for at, step in enumerate(program.steps):
        for argument in step.arguments:
            last[argument] = at
    for at in program.results:
        last[at] = len(program.steps)
    return last


def _copy(x: Any, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")
