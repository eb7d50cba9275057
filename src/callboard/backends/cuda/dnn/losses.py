"""Losses on a GPU: cross-entropy by kernels for rows, squared errors by expressions."""

import math
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.activations import Mapped
from callboard.backends.cuda.dnn.kernels import STORED, Launch, aligned, arguments, faults, kernel, made, types
from callboard.backends.cuda.dnn.rows import RowShape, RowsIn, RowsOut, moved_last, pack_of
from callboard.backends.cuda.elementwise import reducing
from callboard.backends.cuda.elementwise.mapping import MapPlan
from callboard.backends.cuda.plans import PlanMemory, Work, nothing
from callboard.core.library import plans
from callboard.core.operand import Placeholder
from callboard.kernel.dnn.losses import CrossEntropy, CrossEntropyBackward, Mse, MseBackward, wrong_class
from callboard.kernel.dnn.operands import INDICES, accumulator
from callboard.kernel.elementwise import Reduce
from callboard.kernel.elementwise.program import compiled

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["LossArgs", "cross_entropy", "cross_entropy_backward", "mse", "mse_backward"]

LossArgs = arguments(
    "Args",
    p="x dloss shares classes_at weight loss dx log_sum losses weights totals fault",
    i="rows packs classes x_row shares_row dx_row ignored",
    d="smoothing",
)
"""``Args`` of ``data/dnn_losses.cu``."""

PACKS = 4
"""Packs of a row that a thread should have."""
LONGEST = 512
"""Threads of a row."""
WHOLE = 1024
"""Threads of the block that adds up."""


def _shape(packs: int) -> RowShape:
    lanes = min(LONGEST, max(1, packs // PACKS))
    lanes = 1 << (lanes - 1).bit_length() if lanes <= 32 else -(-lanes // 32) * 32
    return RowShape(lanes, max(1, 128 // lanes), 0)


class Rows:
    """Base of both directions: logits and targets as rows, weights, a fault, and the kernels by pack size.

    Args:
        steps: PlanMemory of the plan.
        op: The message.
        out: The rows that are written; None in the forward pass.
        names: Names of the kernels: the one for rows, and the one that sums.
    """

    def __init__(self, steps: PlanMemory, op: Any, out: RowsOut | None, names: tuple[str, str]) -> None:
        dtype = op.x.dtype
        x, self.soft = moved_last(op.x.layout, op.axis), op.target.dtype not in INDICES
        self.x = RowsIn(steps, x)
        self.count, classes = math.prod(x.shape[:-1]), x.shape[-1]
        self.args = args = LossArgs(
            rows=self.count, classes=classes, ignored=op.ignore_index, smoothing=op.label_smoothing, x_row=self.x.step
        )
        rows_apart = [self.x.step]
        if self.soft:
            self.target: Any = RowsIn(steps, moved_last(op.target.layout, op.axis))
            args.shares_row = self.target.step
            rows_apart.append(self.target.step)
            self._bring_target = self.target.bring
        else:
            self._bring_target = steps.brought(op.target.layout)
        if out is not None:
            args.dx_row = out.step
            rows_apart.append(out.step)
        self._bring_weight = None if op.weight is None else steps.brought(op.weight.layout)
        weight = op.x.dtype if op.weight is None else op.weight.dtype
        settings = {
            "SOFT": int(self.soft), "INDEX": "int" if op.target.dtype.name == "i32" else "long long",
            "WEIGHTED": int(op.weight is not None), "PARAM": STORED[weight.name],
            "SMOOTH": int(op.label_smoothing > 0), "MEAN": int(op.reduction == "mean"),
            "EACH": int(op.reduction == "none"),
        }  # fmt: skip
        whole = pack_of(dtype.itemsize, classes, rows_apart)
        self._mask = dtype.itemsize * whole - 1
        self._packs: list[tuple[int, Launch]] = []
        self.total: Launch
        for pack in dict.fromkeys((whole, 1)):
            shape = _shape(classes // pack)
            defined = {**types(dtype, pack), **settings, "LANES": shape.lanes, "ROWS": shape.rows}
            blocks, threads = shape.blocks(self.count), shape.threads
            run = kernel(steps.device, "dnn_losses", defined, names[0], args, blocks, threads)
            self._packs.append((classes // pack, run))
            self.total = kernel(steps.device, "dnn_losses", defined, names[1], args, 1, WHOLE)
        self.fault = None
        if not self.soft:
            tag, count = type(op).__struct_config__.tag, self.count
            self.fault = faults(steps.device, lambda value, wrong: wrong_class(tag, value, wrong, count, classes))
            args.fault = self.fault.address

    def bring(self, native: int, x: int, target: int, weight: int | None) -> None:
        """Enqueue the copies of the operands."""
        args = self.args
        args.x = self.x.bring(native, x)
        at = self._bring_target(native, target)
        args.shares, args.classes_at = (at, None) if self.soft else (None, at)
        args.weight = None if self._bring_weight is None or weight is None else self._bring_weight(native, weight)

    def __call__(self, native: int) -> None:
        """Enqueue the kernel for rows."""
        args = self.args
        args.packs, run = self._packs[0 if aligned((args.x, args.shares, args.dx), [self._mask] * 3) else -1]
        run(native)


@plans(CrossEntropy)
def cross_entropy(library: "CudaDnn", op: CrossEntropy) -> Any:
    """A plan: called with ``(x, target, weight, loss, log_sum)``."""
    steps = PlanMemory(library)
    if not op.x.size:
        return _of_no_items(library, op)
    rows = Rows(steps, op, None, ("forward", "total"))
    args, each = rows.args, op.reduction == "none"
    log_sum_out, loss_out = steps.delivered(made(op, "log_sum")), steps.delivered(made(op, "loss"))
    wide = accumulator(op.x.dtype).np
    losses = None if each else steps.take_items(2 * rows.count, wide)

    def enqueue(native: int, x: int, target: int, weight: int | None, loss: int, log_sum: int) -> None:
        rows.bring(native, x, target, weight)
        args.log_sum, args.loss = log_sum_out.target(log_sum), loss_out.target(loss)
        if losses is not None:
            args.losses, args.weights = losses.ptr, losses.ptr + rows.count * wide.itemsize
        rows(native)
        if not each:
            rows.total(native)
        log_sum_out.finish(native, log_sum)
        loss_out.finish(native, loss)

    return steps.work(enqueue, rows.fault)


def _of_no_items(library: "CudaDnn", op: CrossEntropy) -> Any:
    """The sum of no losses is 0, their mean NaN."""
    loss = made(op, "loss")
    if not loss.size:
        return PlanMemory(library).work(nothing)
    text = f"{op.x.dtype}({op.reduction}(x))"
    plan = reducing.reduce(
        library,
        Reduce(expression=text, operands=(Placeholder(op.x.layout),), axes=None, out=Placeholder(loss)),
    )
    return lambda stream, x, target, weight, loss, log_sum: plan(stream, (x,), None, loss)


@plans(CrossEntropyBackward)
def cross_entropy_backward(library: "CudaDnn", op: CrossEntropyBackward) -> Work:
    """A plan: called with ``(dloss, x, target, log_sum, weight, dx)``."""
    steps = PlanMemory(library)
    if not op.x.size:
        return steps.work(nothing)
    dx_out = RowsOut(steps, moved_last(made(op, "dx"), op.axis))
    rows = Rows(steps, op, dx_out, ("backward", "weigh"))
    args = rows.args
    bring_dloss, bring_log_sum = steps.brought(op.dloss.layout), steps.brought(op.log_sum.layout)
    totals = steps.take_items(2, accumulator(op.x.dtype).np)

    def enqueue(native: int, dloss: int, x: int, target: int, log_sum: int, weight: int | None, dx: int) -> None:
        rows.bring(native, x, target, weight)
        args.dloss, args.log_sum = bring_dloss(native, dloss), bring_log_sum(native, log_sum)
        args.dx, args.totals = dx_out.target(dx), totals.ptr
        rows.total(native)
        rows(native)
        dx_out.finish(native, dx)

    return steps.work(enqueue, rows.fault)


@plans(Mse)
def mse(library: "CudaDnn", op: Mse) -> Any:
    """A plan: called with ``(x, target, loss)``."""
    dtype, loss = op.x.dtype, made(op, "loss")
    wide, layouts = accumulator(dtype), [op.x.layout, op.target.layout]
    away = f"{wide}(x) - {wide}(t)"
    if op.reduction == "none":
        plan = MapPlan(library, compiled(f"{dtype}(square({away}))", (dtype,) * 2), op.x.shape, layouts, [loss])
        return Mapped(plan, lambda x, target, loss: ((x, target), None, loss))
    text = f"{dtype}({op.reduction}(square({away})))"
    operands = tuple(map(Placeholder, layouts))
    reduced = reducing.reduce(library, Reduce(expression=text, operands=operands, out=Placeholder(loss)))
    return Mapped(reduced, lambda x, target, loss: ((x, target), None, loss))


@plans(MseBackward)
def mse_backward(library: "CudaDnn", op: MseBackward) -> Mapped:
    """A plan: called with ``(dloss, x, target, dx)``."""
    dtype, share = op.x.dtype, 2 / max(op.x.size, 1) if op.reduction == "mean" else 2.0
    wide = accumulator(dtype)
    text = f"out = {wide}(d) * (n * ({wide}(x) - {wide}(t))); out = {dtype}(out)"
    program = compiled(text, (dtype,) * 3, (("n", "float"),))
    layouts = [op.dloss.layout, op.x.layout, op.target.layout]
    plan = MapPlan(library, program, op.x.shape, layouts, [made(op, "dx")])
    return Mapped(plan, lambda dloss, x, target, dx: ((dloss, x, target), (share,), dx))
