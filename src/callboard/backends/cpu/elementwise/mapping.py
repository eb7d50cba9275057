"""Plans of expressions on elements."""

from typing import Any

from callboard.backends.cpu.elementwise.mapped import MapPlan
from callboard.backends.cpu.elementwise.rolling import RolledPlan
from callboard.core.layout import layout_of
from callboard.core.library import plans
from callboard.kernel.elementwise import Map, MapMany
from callboard.kernel.elementwise.map import program_of, shape_of_operands

__all__ = ["map_many", "map_one"]


@plans(Map)
def map_one(op: Map) -> Any:
    """Called with ``(operands, scalars, out)``."""
    program = program_of(op)
    shape = shape_of_operands(op)
    made = layout_of(program.steps[program.results[0]].dtype, shape)
    layout = made if op.out is None else op.out.layout
    layouts = [operand.layout for operand in op.operands]
    if op.shifts and layout.size:
        return RolledPlan(program, layouts, op.shifts, layout)
    plan = MapPlan(program, shape, layouts, [layout])
    return lambda operands, scalars, out: plan(operands, scalars, (out,))


@plans(MapMany)
def map_many(op: MapMany) -> Any:
    """Called with ``(operands, scalars, outs)``."""
    operands, outs = ([one.layout for one in many] for many in (op.operands, op.outs))
    return MapPlan(program_of(op, op.keep), shape_of_operands(op), operands, outs)
