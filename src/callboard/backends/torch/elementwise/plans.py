"""Plans of expressions and of reductions."""

import math
from collections.abc import Sequence
from typing import Any

from callboard.backends.torch.conversion import moved_by
from callboard.backends.torch.elementwise.holding import ORDER, stored
from callboard.backends.torch.elementwise.machine import Machine
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.elementwise import Map, MapMany, Reduce
from callboard.kernel.elementwise.map import program_of, shape_of_operands
from callboard.kernel.elementwise.reduce import axes_of, reduction_of

__all__ = ["map_elements", "reduce"]


@plans(Map, MapMany)
def map_elements(library: TorchLibrary, op: Map | MapMany) -> Plan:
    """Return the results of the statements that are stored."""
    machine = Machine(program_of(op, op.keep if isinstance(op, MapMany) else ()), library.where)
    shape = shape_of_operands(op)
    shifts = op.shifts if isinstance(op, Map) else ()

    def work(operands: Sequence[Tensor], scalars: Sequence[Any]) -> Any:
        if shifts:
            operands = [_rolled(x, by) for x, by in zip(operands, shifts, strict=True)]
        results = [x.expand(shape) for x in machine.stored(operands, scalars)]
        if not isinstance(op, MapMany):
            return results[0]
        return (tuple(x.clone() for x in results),)  # one that is an operand may have to outlive that

    return library.planned(op, work)


def _rolled(x: Tensor, by: tuple[int, ...]) -> Tensor:
    return moved_by(lambda bits: torch.roll(bits, by, tuple(range(x.ndim))), x) if any(by) else x


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
