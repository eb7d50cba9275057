"""Plans of activations: expressions, computed as those of ``dev.elementwise``."""

from callboard.backends.cpu.dnn.accumulating import accumulating
from callboard.backends.cpu.dnn.arrays import Plan
from callboard.backends.cpu.elementwise.mapped import MapPlan
from callboard.core.library import plans
from callboard.kernel.dnn.activations import Activation, ActivationBackward, numbers_of, program_of

__all__ = ["backward", "forward"]


@plans(Activation)
@accumulating
def forward(op: Activation) -> Plan:
    """Called with ``(x, out)``."""
    out = op.infer()["out"] if op.out is None else op.out.layout
    plan = MapPlan(program_of(op.kind, op.x.dtype, backward=False), op.x.shape, [op.x.layout], [out])

    numbers = numbers_of(op.kind, op.parameter)
    return lambda x, out: plan((x,), numbers, (out,))


@plans(ActivationBackward)
@accumulating
def backward(op: ActivationBackward) -> Plan:
    """Called with ``(dy, x, dx)``."""
    dx = op.infer()["dx"] if op.dx is None else op.dx.layout
    program = program_of(op.kind, op.x.dtype, backward=True)
    plan = MapPlan(program, op.x.shape, [op.dy.layout, op.x.layout], [dx])

    numbers = numbers_of(op.kind, op.parameter)
    return lambda dy, x, dx: plan((dy, x), numbers, (dx,))
