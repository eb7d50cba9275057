"""Softmax and its logarithm on a GPU: kernels for rows, and for lines that are strided in memory."""

import math
from typing import TYPE_CHECKING

from callboard.backends.cuda.dnn.accumulating import accumulating
from callboard.backends.cuda.dnn.kernels import Launch, aligned, arguments, kernel, made, types
from callboard.backends.cuda.dnn.rows import RowsIn, RowsOut, moved_last, pack_of, row_shape, row_step
from callboard.backends.cuda.plans import PlanMemory, Work, nothing
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel.dnn.softmax import LogSoftmax, LogSoftmaxBackward, Softmax, SoftmaxBackward

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["SoftmaxArgs", "backward", "forward"]

SoftmaxArgs = arguments("Args", p="x dy out", i="rows packs length x_row dy_row out_row outer inner")
"""``Args`` of ``data/dnn_softmax.cu``."""

ACROSS = 256
"""Threads of a block for strided lines."""


def _kept(pack: int, itemsize: int, arrays: int) -> tuple[int, int]:
    """Packs that a thread should keep, and can: of all arrays 64 and 128 bytes."""
    size = max(pack * itemsize, 4) * arrays
    return max(1, min(16, 64 // size)), max(1, min(16, 128 // size))


@plans(LogSoftmax, Softmax)
@accumulating
def forward(library: "CudaDnn", op: Softmax | LogSoftmax) -> Work:
    """A plan: called with ``(x, out)``."""
    work = _plan(library, [op.x.layout], made(op), op.axis % op.x.ndim, isinstance(op, LogSoftmax))
    return PlanMemory(library).work(nothing) if work is None else work


@plans(LogSoftmaxBackward, SoftmaxBackward)
@accumulating
def backward(library: "CudaDnn", op: SoftmaxBackward | LogSoftmaxBackward) -> Work:
    """A plan: called with ``(dy, y, dx)``."""
    layouts = [op.dy.layout, op.y.layout]
    work = _plan(library, layouts, made(op, "dx"), op.axis % op.y.ndim, isinstance(op, LogSoftmaxBackward))
    return PlanMemory(library).work(nothing) if work is None else work


def _plan(library: "CudaDnn", operands: list[Layout], out: Layout, axis: int, log: bool) -> Work | None:
    if not out.size:
        return None
    steps = PlanMemory(library)
    across = out.shape[axis + 1 :]
    rows = [moved_last(layout, axis) for layout in (*operands, out)]
    if math.prod(across) > 1 and any(row_step(layout, 1) is None for layout in rows):
        return _lying_across(steps, operands, out, axis, log)
    return _by_rows(steps, rows, log)


def _by_rows(steps: PlanMemory, layouts: list[Layout], log: bool) -> Work:
    *operands, result = layouts
    name = "forward" if len(operands) == 1 else "backward"
    given, out = [RowsIn(steps, layout) for layout in operands], RowsOut(steps, result)
    length, item = result.shape[-1], result.dtype.itemsize
    rows = result.size // length
    args = SoftmaxArgs(rows=rows, length=length, x_row=given[-1].step, dy_row=given[0].step, out_row=out.step)
    whole = pack_of(item, length, [*(one.step for one in given), out.step])
    masks = [item * whole - 1] * len(layouts)
    packs: list[tuple[int, Launch]] = []
    for pack in dict.fromkeys((whole, 1)):
        shape = row_shape(length // pack, *_kept(pack, item, len(operands)), 1024)
        defined = {**types(result.dtype, pack), "LANES": shape.lanes, "ROWS": shape.rows, "PACKS": shape.packs}
        defined["LOG"] = int(log)
        run = kernel(steps.device, "dnn_softmax", defined, name, args, shape.blocks(rows), shape.threads)
        packs.append((length // pack, run))

    def enqueue(native: int, *addresses: int) -> None:
        at = [one.bring(native, address) for one, address in zip(given, addresses, strict=False)]
        args.dy, args.x, args.out = at[0], at[-1], out.target(addresses[-1])
        args.packs, run = packs[0 if aligned((*at, args.out), masks) else -1]
        run(native)
        out.finish(native, addresses[-1])

    return steps.work(enqueue)


def _lying_across(steps: PlanMemory, operands: list[Layout], out: Layout, axis: int, log: bool) -> Work:
    """Neighbouring threads take neighbouring lines of row-major arrays."""
    bring, delivery = [steps.brought(layout) for layout in operands], steps.delivered(out)
    outer, length, inner = math.prod(out.shape[:axis]), out.shape[axis], math.prod(out.shape[axis + 1 :])
    args = SoftmaxArgs(length=length, outer=outer, inner=inner)
    defined = {**types(out.dtype, 1), "LANES": 32, "ROWS": 1, "PACKS": 1, "LOG": int(log)}
    name = "forward_across" if len(operands) == 1 else "backward_across"
    run = kernel(steps.device, "dnn_softmax", defined, name, args, outer * -(-inner // 32), ACROSS)

    def enqueue(native: int, *addresses: int) -> None:
        at = [one(native, address) for one, address in zip(bring, addresses, strict=False)]
        args.dy, args.x, args.out = at[0], at[-1], delivery.target(addresses[-1])
        run(native)
        delivery.finish(native, addresses[-1])

    return steps.work(enqueue)
