"""Batch norm, instance norm and group norm on a GPU: statistics of chunks are joined, then a pass over elements."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.kernels import STORED, Launch, aligned, arguments, divider_args, kernel, made, types
from callboard.backends.cuda.dnn.rows import moved_last, pack_of, row_shape
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory, Work, nothing
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.dnn.channel_norms import (
    BatchNorm,
    BatchNormBackward,
    BatchNormTraining,
    GroupNorm,
    GroupNormBackward,
    GroupNormTraining,
    InstanceNorm,
    InstanceNormBackward,
    InstanceNormTraining,
)
from callboard.kernel.dnn.operands import accumulator

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["ChannelArgs", "backward", "forward", "inference"]

ChannelArgs = arguments(
    "Args",
    p="x dy scale bias out mean inverse variance running_mean running_variance partial sums dscale dbias",
    i="outer channels length splits chunk results terms inside groups per_item packs line_packs",
    d="epsilon momentum",
    v="by_line by_channels by_length by_inside by_item",
)
"""``Args`` of ``data/dnn_channels.cu``."""

KEPT = 64
"""Bytes of a chunk that a thread keeps."""
THREADS = 256
"""Threads of a chunk, at most."""
ROWS = 64
"""Rows of a chunk of columns at least, and as many chunks as these keep a large GPU busy."""
BUSY = 1056
WIDE = 1 << 31
ITEMS_TOGETHER = (BatchNorm, BatchNormTraining, BatchNormBackward)


class Channels:
    """An array by channels, and the kernels over it.

    Its elements are taken as ``[outer, channels, length]``, or as ``[outer, length, channels]`` if the channels are
    adjacent; other layouts are copied.
    """

    def __init__(self, steps: PlanMemory, op: Any, out: Layout, *, constant: bool = False) -> None:
        self.steps, layout, dtype = steps, op.x.layout, op.x.dtype
        self.axis = axis = op.axis % layout.ndim
        batch, shape = isinstance(op, ITEMS_TOGETHER), layout.shape
        groups = None if batch else op.group_count()
        across = not layout.contiguous and moved_last(layout, axis).contiguous
        self.columns = across or math.prod(shape[axis + 1 :]) == 1
        channels = shape[axis]
        if self.columns:
            outer = 1 if batch else shape[0]
            length = layout.size // channels // outer
        else:
            outer, length = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        item, line = dtype.itemsize, channels if self.columns else length
        self.whole = pack_of(item, line, ())
        while self.columns and self.whole > 1 and channels < 32 * self.whole:
            self.whole //= 2  # a pack for each of 32 threads
        self.mask = item * self.whole - 1
        if self.columns:
            chunk = max(ROWS, -(-length * -(-channels // (32 * self.whole)) * outer // (4 * BUSY)))
        else:
            packs = max(1, KEPT // (item * self.whole))
            chunk = min(length, THREADS * packs * self.whole)
        splits = -(-length // chunk)
        per_item = 1 if batch else outer // shape[0]
        self.results = channels if batch else shape[0] * (groups or 1)
        self.args = args = ChannelArgs(
            outer=outer, channels=channels, length=length, splits=splits, chunk=chunk, results=self.results,
            terms=(outer if batch else per_item) * splits, inside=1 if groups is None else channels // groups,
            groups=channels if groups is None else groups, per_item=per_item, epsilon=getattr(op, "epsilon", 0.0),
        )  # fmt: skip
        for name, number in (
            ("by_channels", channels), ("by_length", length), ("by_inside", args.inside), ("by_item", per_item)
        ):  # fmt: skip
            setattr(args, name, divider_args(min(number, WIDE - 1)))
        self.scale, self.bias = op.scale, getattr(op, "bias", None)
        parameter = next((one.dtype for one in (self.scale, self.bias) if one is not None), dtype)
        self._settings = {
            "PARAM": STORED[parameter.name], "COLUMNS": int(self.columns), "BATCH": int(batch),
            "SCALED": int(self.scale is not None), "SHIFTED": int(self.bias is not None), "CONSTANT": int(constant),
        }  # fmt: skip
        self._dtype, self._size = dtype, layout.size
        self.wide = accumulator(dtype).np
        self._line = line
        self._given = {name: self.brought(name, getattr(op, name)) for name in ("scale", "bias") if hasattr(op, name)}
        self.delivery = steps.delivered(self.ordered(out))

    def ordered(self, layout: Layout) -> Layout:
        """Return a layout with its axes in the order in which elements are taken."""
        return moved_last(layout, self.axis) if self.columns else layout

    def brought(self, name: str, operand: Operand | None) -> Callable[[int, int | None], None]:
        """Return the step that copies a small operand if needed and sets its address in the arguments."""
        if operand is None:
            return lambda native, at: setattr(self.args, name, None)
        bring = self.steps.brought(operand.layout)
        return lambda native, at: setattr(self.args, name, bring(native, at or 0))

    def array(self, operand: Operand) -> Callable[[int, int], int]:
        """Return the step that makes an array of the shape of ``x`` contiguous."""
        return self.steps.brought(self.ordered(operand.layout))

    def kernels(self, name: str, grid: str) -> list[tuple[int, Launch]]:
        """A kernel by packs and by elements, with the packs of the array.

        Args:
            name: Name of the kernel.
            grid: Unit of the grid: ``"chunks"``, ``"elements"``, ``"results"``, ``"channels"``.
        """
        found = []
        for pack in dict.fromkeys((self.whole, 1)):
            chunk_packs = max(1, self.args.chunk // pack)
            shape = row_shape(chunk_packs, max(1, KEPT // (self._dtype.itemsize * pack)), 1 << 30, THREADS)
            defined = {
                **types(self._dtype, pack), **self._settings, "LANES": shape.lanes, "ROWS": shape.rows,
                "PACKS": shape.packs, "WIDE": int(self._size // pack >= WIDE),
            }  # fmt: skip
            args, packs = self.args, self._size // pack
            threads = {"results": 128, "channels": 128}.get(grid, 256)
            if grid == "chunks" and self.columns:
                blocks = args.outer * args.splits * -(-(args.channels // pack) // 32)
            elif grid == "chunks":
                blocks, threads = shape.blocks(args.outer * args.channels * args.splits), shape.threads
            elif grid == "elements":
                blocks = linear_grid(packs)
            else:
                blocks = -(-(self.results if grid == "results" else args.channels) // 4)
            found.append((pack, kernel(self.steps.device, "dnn_channels", defined, name, args, blocks, threads)))
        return found

    def launch(self, native: int, kernels: list[tuple[int, Launch]], *addresses: int | None) -> None:
        """Enqueue the one that the addresses of the arrays allow."""
        pack, run = kernels[0 if aligned(addresses, [self.mask] * len(addresses)) else -1]
        self.args.packs, self.args.line_packs = self._size // pack, self._line // pack
        self.args.by_line = divider_args(min(max(1, self._line // pack), WIDE - 1))
        run(native)

    def parameters(self, native: int, scale: int | None, bias: int | None = None) -> None:
        """Enqueue the copies of scale and bias."""
        self._given["scale"](native, scale)
        if "bias" in self._given:
            self._given["bias"](native, bias)


@plans(BatchNorm)
def inference(library: "CudaDnn", op: BatchNorm) -> Work:
    """A plan: called with ``(x, mean, variance, scale, bias, out)``."""
    steps = PlanMemory(library)
    if not op.x.size:
        return steps.work(nothing)
    channels = Channels(steps, op, made(op))
    args, bring = channels.args, channels.array(op.x)
    mean_of, variance_of = channels.brought("mean", op.mean), channels.brought("variance", op.variance)
    inverse = steps.take_items(args.channels, channels.wide)
    invert, apply = channels.kernels("invert", "channels"), channels.kernels("apply", "elements")

    def enqueue(native: int, x: int, mean: int, variance: int, scale: Any, bias: Any, out: int) -> None:
        channels.parameters(native, scale, bias)
        mean_of(native, mean)
        variance_of(native, variance)
        args.inverse, args.x, args.out = inverse.ptr, bring(native, x), channels.delivery.target(out)
        channels.launch(native, invert)
        channels.launch(native, apply, args.x, args.out)
        channels.delivery.finish(native, out)

    return steps.work(enqueue)


class Statistics:
    """Mean and inverse deviation: results of the op, or of the plan alone."""

    def __init__(self, channels: Channels, op: Any) -> None:
        steps, self._args = channels.steps, channels.args
        kept = "mean" in type(op).__struct_fields__
        self._deliver = [steps.delivered(made(op, name)) for name in ("mean", "inverse")] if kept else []
        self._own = None if kept else steps.take_items(2 * channels.results, channels.wide)
        self._half = channels.results * channels.wide.itemsize

    def put(self, kept: tuple[int, ...]) -> None:
        """Set the output addresses."""
        if self._own is not None:
            self._args.mean, self._args.inverse = self._own.ptr, self._own.ptr + self._half
        else:
            self._args.mean, self._args.inverse = (d.target(at) for d, at in zip(self._deliver, kept, strict=True))

    def finish(self, native: int, kept: tuple[int, ...]) -> None:
        """Enqueue the copies to their places."""
        for delivery, at in zip(self._deliver, kept, strict=False):
            delivery.finish(native, at)


@plans(BatchNormTraining, GroupNorm, GroupNormTraining, InstanceNorm, InstanceNormTraining)
def forward(library: "CudaDnn", op: Any) -> Work:
    """A plan: called with the fields of the message; statistics follow from ``x``."""
    steps = PlanMemory(library)
    if not op.x.size:
        return steps.work(nothing)
    channels = Channels(steps, op, made(op))
    args, bring, statistics = channels.args, channels.array(op.x), Statistics(channels, op)
    batch = isinstance(op, BatchNormTraining)
    running = [steps.delivered(one.layout) for one in _running(op)]
    partial = steps.take_items(2 * args.outer * args.splits * args.channels, channels.wide)
    moments = channels.kernels("moments", "chunks")
    join, apply = channels.kernels("join_moments", "results"), channels.kernels("apply", "elements")

    def enqueue(native: int, x: int, scale: int | None, bias: int | None, *rest: Any) -> None:
        ours: tuple[Any, ...] = ()
        if batch:
            ours, args.momentum, rest = rest[:2], float(rest[2]), rest[3:]
        out, *kept = rest
        channels.parameters(native, scale, bias)
        args.x, args.out, args.partial = bring(native, x), channels.delivery.target(out), partial.ptr
        statistics.put(tuple(kept))
        places = [delivery.kept(native, at) for delivery, at in zip(running, ours, strict=False)]
        args.running_mean, args.running_variance = places or (None, None)
        channels.launch(native, moments, args.x)
        channels.launch(native, join)
        channels.launch(native, apply, args.x, args.out)
        for delivery, at in zip(running, ours, strict=False):
            delivery.finish(native, at)
        statistics.finish(native, tuple(kept))
        channels.delivery.finish(native, out)

    return steps.work(enqueue)


def _running(op: Any) -> list[Operand]:
    given = getattr(op, "running_mean", None), getattr(op, "running_variance", None)
    return [one for one in given if one is not None]


@plans(BatchNormBackward, GroupNormBackward, InstanceNormBackward)
def backward(library: "CudaDnn", op: Any) -> Work:
    """A plan: called with ``(dy, x, mean, inverse, scale, dx, dscale, dbias)``."""
    steps = PlanMemory(library)
    outs = [(name, made(op, name)) for name in ("dscale", "dbias")] if op.scale is not None else []
    gradients = [(name, steps.delivered(layout), layout.nbytes) for name, layout in outs]
    if not op.x.size:
        return steps.work(_zeros(steps, gradients))
    constant = isinstance(op, BatchNormBackward) and not op.training
    channels = Channels(steps, op, made(op, "dx"), constant=constant)
    args, dy_of, x_of = channels.args, channels.array(op.dy), channels.array(op.x)
    mean_of, inverse_of = channels.brought("mean", op.mean), channels.brought("inverse", op.inverse)
    partial = steps.take_items(2 * args.outer * args.splits * args.channels, channels.wide)
    sums = steps.take_items(2 * channels.results, channels.wide)
    chunks, apply = channels.kernels("gradients", "chunks"), channels.kernels("apply_back", "elements")
    join = channels.kernels("join_gradients", "results")
    join_parameters = channels.kernels("join_parameters", "channels") if gradients else []

    def enqueue(native: int, dy: int, x: int, mean: int, inverse: int, scale: Any, dx: int, *own: int) -> None:
        channels.parameters(native, scale)
        mean_of(native, mean)
        inverse_of(native, inverse)
        args.dy, args.x, args.out = dy_of(native, dy), x_of(native, x), channels.delivery.target(dx)
        args.partial, args.sums = partial.ptr, sums.ptr
        for (name, delivery, _), at in zip(gradients, own, strict=False):
            setattr(args, name, delivery.target(at))
        if gradients or not constant:
            channels.launch(native, chunks, args.x, args.dy)
        if not constant:
            channels.launch(native, join)
        if gradients:
            channels.launch(native, join_parameters)
        channels.launch(native, apply, args.x, args.dy, args.out)
        channels.delivery.finish(native, dx)
        for (_, delivery, _), at in zip(gradients, own, strict=False):
            delivery.finish(native, at)

    return steps.work(enqueue)


def _zeros(steps: PlanMemory, gradients: list[Any]) -> Callable[..., None]:
    """Return a launch that sets the gradients with respect to the parameters to 0, for arrays without elements."""
    driver = steps.device.driver

    def enqueue(native: int, *dynamic: Any) -> None:
        for (_, delivery, nbytes), at in zip(gradients, dynamic[6:], strict=False):
            if nbytes:
                driver.check(driver.memset_8(delivery.target(at), 0, nbytes, native), "cuMemsetD8Async")
            delivery.finish(native, at)

    return enqueue
