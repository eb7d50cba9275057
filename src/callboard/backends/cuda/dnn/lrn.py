"""Local response normalisation on a GPU: windows of any size, where cuDNN's have at most 16 channels, and no bf16."""

import math
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.kernels import arguments, kernel, made, types
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory, Work, nothing
from callboard.core.library import plans
from callboard.kernel.dnn.lrn import Lrn, LrnBackward
from callboard.kernel.dnn.operands import accumulator

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["LrnArgs", "backward", "forward"]

LrnArgs = arguments("Args", p="x dy out kept", i="count channels inner before behind", d="alpha beta k")
"""``Args`` of ``data/dnn_lrn.cu``."""

THREADS = 256


def _args(op: Any) -> Any:
    shape, axis = op.x.shape, op.axis % op.x.ndim
    channels = shape[axis]
    before = op.size // 2
    return LrnArgs(
        count=op.x.size, channels=channels, inner=math.prod(shape[axis + 1 :]), before=min(before, channels),
        behind=min(op.size - 1 - before, channels), alpha=op.alpha / op.size, beta=op.beta, k=op.k,
    )  # fmt: skip


@plans(Lrn)
def forward(library: "CudaDnn", op: Lrn) -> Work:
    """A plan: called with ``(x, out)``."""
    steps, args = PlanMemory(library), _args(op)
    if not op.x.size:
        return steps.work(nothing)
    bring, delivery = steps.brought(op.x.layout), steps.delivered(made(op))
    defined = types(op.x.dtype, 1)
    run = kernel(steps.device, "dnn_lrn", defined, "forward", args, linear_grid(op.x.size), THREADS)

    def enqueue(native: int, x: int, out: int) -> None:
        args.x, args.out = bring(native, x), delivery.target(out)
        run(native)
        delivery.finish(native, out)

    return steps.work(enqueue)


@plans(LrnBackward)
def backward(library: "CudaDnn", op: LrnBackward) -> Work:
    """A plan: called with ``(dy, x, dx)``."""
    steps, args = PlanMemory(library), _args(op)
    if not op.x.size:
        return steps.work(nothing)
    bring, delivery = [steps.brought(one.layout) for one in (op.dy, op.x)], steps.delivered(made(op, "dx"))
    kept, defined = steps.take_items(op.x.size, accumulator(op.x.dtype).np), types(op.x.dtype, 1)
    grid = linear_grid(op.x.size)
    prepare, run = (
        kernel(steps.device, "dnn_lrn", defined, name, args, grid, THREADS) for name in ("prepare", "backward")
    )

    def enqueue(native: int, dy: int, x: int, dx: int) -> None:
        args.dy, args.x, args.out, args.kept = bring[0](native, dy), bring[1](native, x), delivery.target(dx), kept.ptr
        prepare(native)
        run(native)
        delivery.finish(native, dx)

    return steps.work(enqueue)
