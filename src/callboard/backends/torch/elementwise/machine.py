"""A program of an expression, step by step."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.torch.elementwise.functions import function
from callboard.backends.torch.elementwise.holding import held, number, stored
from callboard.backends.torch.vendor import Tensor
from callboard.kernel.elementwise.program import Program

__all__ = ["Machine"]


class Machine:
    """A program whose steps are calls of PyTorch."""

    def __init__(self, program: Program, where: Any) -> None:
        self._program = program
        self._where = where
        steps = program.steps
        self._calls = [
            None
            if step.function in ("operand", "constant", "number")
            else function(step.function, [steps[a].dtype for a in step.arguments], step.dtype)
            for step in steps
        ]
        self._constants = {
            at: number(step.value, step.dtype, where) for at, step in enumerate(steps) if step.function == "constant"
        }

    def __call__(self, operands: Sequence[Tensor], scalars: Sequence[Any]) -> list[Tensor]:
        """The results, held."""
        program = self._program
        given = dict(zip(program.numbers, program.values(scalars), strict=True))
        values: list[Tensor] = []
        for at, (step, call) in enumerate(zip(program.steps, self._calls, strict=True)):
            if call is not None:
                values.append(call(*(values[a] for a in step.arguments)))
            elif step.function == "operand":
                values.append(held(operands[step.value], step.dtype))
            elif step.function == "constant":
                values.append(self._constants[at])
            else:
                values.append(number(given[at], step.dtype, self._where))
        return [values[at] for at in program.results]

    def stored(self, operands: Sequence[Tensor], scalars: Sequence[Any]) -> list[Tensor]:
        """The results, as arrays have them."""
        dtypes = [self._program.steps[at].dtype for at in self._program.results]
        return [stored(x, dtype) for x, dtype in zip(self(operands, scalars), dtypes, strict=True)]
