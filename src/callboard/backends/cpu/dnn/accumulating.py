"""Plans of ops whose result is scaled and added to an array."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.arrays import Plan
from callboard.backends.cpu.elementwise.mapped import MapPlan
from callboard.core.layout import layout_of
from callboard.kernel.dnn.accumulation import accumulation_of, is_accumulated, place_of_result, without_addend

__all__ = ["accumulating"]


def accumulating(make: Callable[[Any], Plan]) -> Callable[[Any], Plan]:
    """Serve ops with an ``addend`` and factors by the plan of the op alone.

    The plan is called with the addend first.
    """

    @functools.wraps(make)
    def made(op: Any) -> Plan:
        if not is_accumulated(op):
            alone = make(op.alone())
            return lambda addend, *dynamic: alone(*dynamic)
        (name,), given = op.returns, getattr(op, op.returns[0])
        out = op.infer()[name] if given is None else given.layout
        result = layout_of(out.dtype, out.shape)
        plan = make(without_addend(op, result))
        program, layouts, factors = accumulation_of(op, result)
        finish, at = MapPlan(program, out.shape, layouts, [out]), place_of_result(op)

        def run(addend: int | None, *dynamic: Any) -> None:
            room = np.empty(out.shape, out.dtype.np)
            plan(*dynamic[:at], room.ctypes.data, *dynamic[at + 1 :])
            operands = [room.ctypes.data] if addend is None or len(layouts) == 1 else [room.ctypes.data, addend]
            finish(operands, factors, (dynamic[at],))

        return run

    return made
