"""Activations on a GPU: expressions, compiled as those of ``dev.elementwise``."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.accumulating import accumulating
from callboard.backends.cuda.dnn.kernels import made
from callboard.backends.cuda.elementwise.mapping import MapPlan
from callboard.core.library import plans
from callboard.kernel.dnn.activations import Activation, ActivationBackward, numbers_of, program_of

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Mapped", "backward", "forward"]


class Mapped:
    """A plan that is one expression or reduction of one.

    Args:
        plan: Plan of the expression.
        order: Returns its operands, numbers and result from the arguments of a launch.
    """

    def __init__(self, plan: Any, order: Callable[..., tuple[Any, Any, int]]) -> None:
        self._plan, self._order = plan, order

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> None:
        self._plan(stream, *self._order(*dynamic))

    def close(self) -> None:
        self._plan.close()


@plans(Activation)
@accumulating
def forward(library: "CudaDnn", op: Activation) -> Mapped:
    """A plan: called with ``(x, out)``."""
    numbers, program = numbers_of(op.kind, op.parameter), program_of(op.kind, op.x.dtype, backward=False)
    plan = MapPlan(library, program, op.x.shape, [op.x.layout], [made(op)])
    return Mapped(plan, lambda x, out: ((x,), numbers, out))


@plans(ActivationBackward)
@accumulating
def backward(library: "CudaDnn", op: ActivationBackward) -> Mapped:
    """A plan: called with ``(dy, x, dx)``."""
    numbers, program = numbers_of(op.kind, op.parameter), program_of(op.kind, op.x.dtype, backward=True)
    plan = MapPlan(library, program, op.x.shape, [op.dy.layout, op.x.layout], [made(op, "dx")])
    return Mapped(plan, lambda dy, x, dx: ((dy, x), numbers, dx))
