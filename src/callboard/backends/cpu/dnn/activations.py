"""Plans of activations: expressions, computed as those of ``dev.elementwise``."""

from typing import Any

from callboard.backends.cpu.dnn.arrays import Plan, table_of
from callboard.backends.cpu.elementwise.mapping import MapPlan
from callboard.kernel.dnn.activations import Activation, ActivationBackward, number_of, program_of

__all__ = ["TABLE"]


def forward(op: Activation) -> Plan:
    """Called with ``(x, parameter, out)``."""
    out = op.infer()["out"] if op.out is None else op.out.layout
    plan = MapPlan(program_of(op.kind, op.x.dtype, backward=False), op.x.shape, [op.x.layout], [out])

    def work(x: int, parameter: Any, out: int) -> None:
        plan((x,), number_of(op.kind, parameter), (out,))

    return work


def backward(op: ActivationBackward) -> Plan:
    """Called with ``(dy, x, parameter, dx)``."""
    dx = op.infer()["dx"] if op.dx is None else op.dx.layout
    program = program_of(op.kind, op.x.dtype, backward=True)
    plan = MapPlan(program, op.x.shape, [op.dy.layout, op.x.layout], [dx])

    def work(dy: int, x: int, parameter: Any, dx: int) -> None:
        plan((dy, x), number_of(op.kind, parameter), (dx,))

    return work


TABLE = table_of({Activation: forward, ActivationBackward: backward})
