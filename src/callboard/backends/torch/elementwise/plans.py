"""Plans of expressions and of reductions."""

import math
from collections.abc import Sequence
from typing import Any

from callboard.backends.torch.elementwise.functions import function
from callboard.backends.torch.elementwise.holding import ORDER, held, number, stored
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.elementwise import Map, MapMany, Reduce
from callboard.kernel.elementwise.map import program_of, shape_of_operands
from callboard.kernel.elementwise.program import Program
from callboard.kernel.elementwise.reduce import axes_of, reduction_of

__all__ = ["map_elements", "reduce"]


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

    def dtypes(self) -> list[DType]:
        """The dtypes of the results."""
        return [self._program.steps[at].dtype for at in self._program.results]


@plans(Map, MapMany)
def map_elements(library: TorchLibrary, op: Map | MapMany) -> Plan:
    """Return the results of the statements that are stored."""
    machine = Machine(program_of(op, op.keep if isinstance(op, MapMany) else ()), library.where)
    shape, dtypes = shape_of_operands(op), machine.dtypes()

    def work(operands: Sequence[Tensor], scalars: Sequence[Any]) -> Any:
        found = machine(operands, scalars)
        results = [stored(x, dtype).expand(shape) for x, dtype in zip(found, dtypes, strict=True)]
        if not isinstance(op, MapMany):
            return results[0]
        return (tuple(x.clone() for x in results),)  # one that is an operand may have to outlive that

    return library.planned(op, work)


@plans(Reduce)
def reduce(library: TorchLibrary, op: Reduce) -> Plan:
    """Return the total, finished."""
    reduction = reduction_of(op)
    each, finish = Machine(reduction.each, library.where), Machine(reduction.finish, library.where)
    shape = shape_of_operands(op)
    axes = axes_of(op, len(shape))
    out = op.infer()["out"]
    count = math.prod(shape[axis] for axis in axes)

    def work(operands: Sequence[Tensor], scalars: Sequence[Any]) -> Tensor:
        values = each(operands, scalars)[0].expand(shape)
        total = _total(reduction.function, values, axes, reduction.accumulator)
        total = stored(total, reduction.total).reshape(out.shape)
        return stored(finish([total], (*scalars, float(count)))[0], out.dtype)

    return library.planned(op, work)


def _total(name: str, x: Tensor, axes: Sequence[int], dtype: DType) -> Tensor:
    order = ORDER if dtype.name == "u64" and name in ("min", "max", "argmin", "argmax") else 0
    x = x + order if order else x
    if name.startswith("arg"):
        x = x.to(torch.uint8) if x.dtype == torch.bool else x
        return getattr(torch, name)(x, axes[0]) if len(axes) == 1 < x.ndim else getattr(torch, name)(x.reshape(-1))
    if not axes:
        return x - order if order else x
    if name == "prod":
        for axis in reversed(axes):
            x = torch.prod(x, axis, dtype=x.dtype)
        return x
    if name == "sum":
        return torch.sum(x, axes, dtype=x.dtype)
    found = getattr(torch, {"min": "amin", "max": "amax"}.get(name, name))(x, axes)
    return found - order if order else found
