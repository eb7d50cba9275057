"""Layer norm and RMS norm on a GPU: kernels for rows, which read each array once if a row fits into registers.

cuDNN's norms are graphs that need row-major arrays of whole packs; these kernels take any width and step of rows.
"""

import math
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.kernels import STORED, Launch, aligned, arguments, kernel, made, types
from callboard.backends.cuda.dnn.rows import RowShape, RowsIn, RowsOut, pack_of, row_shape
from callboard.backends.cuda.plans import PlanMemory, Work, nothing
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.dnn.layer_norm import (
    LayerNorm,
    LayerNormBackward,
    LayerNormTraining,
    RmsNorm,
    RmsNormBackward,
    RmsNormTraining,
)
from callboard.kernel.dnn.operands import accumulator

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["RowArgs", "backward", "forward"]

RowArgs = arguments(
    "Args",
    p="x dy scale bias out mean inverse partial dscale dbias",
    i="rows packs length x_row dy_row out_row slots share",
    d="epsilon",
)
"""``Args`` of ``data/dnn_rows.cu``."""

BUSY = 396
"""Blocks that keep a large GPU busy while each keeps sums: three for each of 132 multiprocessors."""
SHARE = 64
"""Rows below which dividing the sums of columns further costs more than it gains."""


def _kept(pack: int, itemsize: int) -> tuple[int, int]:
    """Packs that a thread of the forward pass should keep, and can: 64 and 128 bytes."""
    size = max(pack * itemsize, 4)
    return max(1, min(16, 64 // size)), max(1, min(16, 128 // size))


def _summed(pack: int, itemsize: int) -> tuple[int, int]:
    """Packs of both operands beside their sums that a thread of the backward pass should keep, and can."""
    wanted, most = {2: (16, 32), 4: (16, 16), 8: (8, 8)}[itemsize]
    return max(1, wanted // pack), max(1, most // pack)


def _parameter_type(op: Any) -> DType:
    given = op.scale if op.scale is not None else getattr(op, "bias", None)
    dtype: DType = op.x.dtype if given is None else given.dtype
    return dtype


class Forward:
    """The launches of one forward pass, by packs where addresses allow it."""

    def __init__(self, steps: PlanMemory, op: Any, keeps: bool, x: RowsIn, out: RowsOut) -> None:
        centred = isinstance(op, LayerNorm | LayerNormTraining)
        length, rows = math.prod(op.parts()[1]), math.prod(op.parts()[0])
        bias = getattr(op, "bias", None)
        dtype, parameter = op.x.dtype, _parameter_type(op)
        self.args = RowArgs(
            rows=rows, length=length, x_row=x.step, out_row=out.step, epsilon=op.epsilon
        )  # fmt: skip
        settings = {
            "PARAM": STORED[parameter.name], "CENTRED": int(centred), "SCALED": int(op.scale is not None),
            "SHIFTED": int(bias is not None), "KEEPS": int(keeps), "BACKWARD": 0,
        }  # fmt: skip
        whole = pack_of(dtype.itemsize, length, (x.step, out.step))
        self.masks = [dtype.itemsize * whole - 1] * 2 + [min(16, parameter.itemsize * whole) - 1] * 2
        self.packs: list[tuple[int, Launch]] = []
        for pack in dict.fromkeys((whole, 1)):
            shape = row_shape(length // pack, *_kept(pack, dtype.itemsize), 1024)
            defined = {**types(dtype, pack), **settings, **_threads(shape)}
            run = kernel(steps.device, "dnn_rows", defined, "forward", self.args, shape.blocks(rows), shape.threads)
            self.packs.append((length // pack, run))

    def __call__(self, native: int, x: int, scale: int | None, bias: int | None, out: int) -> None:
        args = self.args
        args.x, args.scale, args.bias, args.out = x, scale, bias, out
        args.packs, run = self.packs[0 if aligned((x, out, scale, bias), self.masks) else -1]
        run(native)


def _threads(shape: RowShape) -> dict[str, object]:
    return {"LANES": shape.lanes, "ROWS": shape.rows, "PACKS": shape.packs}


@plans(LayerNorm, LayerNormTraining, RmsNorm, RmsNormTraining)
def forward(library: "CudaDnn", op: Any) -> Work:
    """A plan: called with the fields of the message."""
    steps = PlanMemory(library)
    centred = isinstance(op, LayerNorm | LayerNormTraining)
    keeps = isinstance(op, LayerNormTraining | RmsNormTraining)
    if not op.x.size:
        return steps.work(nothing)
    x, out = RowsIn(steps, op.x.layout, op.axes), RowsOut(steps, made(op), op.axes)
    scale_of = None if op.scale is None else steps.brought(op.scale.layout)
    bias = getattr(op, "bias", None)
    bias_of = None if bias is None else steps.brought(bias.layout)
    deliver_mean = steps.delivered(made(op, "mean")) if keeps and centred else None
    deliver_inverse = steps.delivered(made(op, "inverse")) if keeps else None
    launch = Forward(steps, op, keeps, x, out)

    def run(native: int, at: int, scale: int | None, result: int, *rest: Any) -> None:
        own_bias, rest = (rest[0], rest[1:]) if centred else (None, rest)
        if deliver_inverse is not None:
            launch.args.inverse = deliver_inverse.target(rest[-1])
        if deliver_mean is not None:
            launch.args.mean = deliver_mean.target(rest[0])
        launch(
            native,
            x.bring(native, at),
            None if scale_of is None or scale is None else scale_of(native, scale),
            None if bias_of is None or own_bias is None else bias_of(native, own_bias),
            out.target(result),
        )
        out.finish(native, result)
        if deliver_inverse is not None:
            deliver_inverse.finish(native, rest[-1])
        if deliver_mean is not None:
            deliver_mean.finish(native, rest[0])

    return steps.work(run)


class Backward:
    """The launches of one backward pass: the gradient by the array, and sums of columns for those by scale and bias."""

    def __init__(self, steps: PlanMemory, op: Any, dy: RowsIn, x: RowsIn, dx: RowsOut) -> None:
        centred = isinstance(op, LayerNormBackward)
        length, rows = math.prod(op.parts()[1]), math.prod(op.parts()[0])
        dtype, parameter, scaled = op.x.dtype, _parameter_type(op), op.scale is not None
        self.args = RowArgs(rows=rows, length=length, x_row=x.step, dy_row=dy.step, out_row=dx.step)
        settings = {
            "PARAM": STORED[parameter.name], "CENTRED": int(centred), "SCALED": int(scaled), "SHIFTED": 0, "KEEPS": 0,
            "BACKWARD": 1,
        }  # fmt: skip
        device, wide = steps.device, accumulator(dtype)
        whole = pack_of(dtype.itemsize, length, (x.step, dy.step, dx.step))
        self.masks = [dtype.itemsize * whole - 1] * 3 + [min(16, parameter.itemsize * whole) - 1]
        self.packs: list[tuple[int, int, Launch, Launch | None, Launch | None]] = []
        most_slots = 1
        for pack in dict.fromkeys((whole, 1)):
            limits = _summed(pack, dtype.itemsize) if scaled else _kept(pack, 2 * dtype.itemsize)
            shape = row_shape(length // pack, *limits, 512)
            defined = {**types(dtype, pack), **settings, **_threads(shape)}
            grid = min(shape.blocks(rows), max(BUSY, BUSY * 256 // shape.threads))
            slots = grid * shape.rows
            columns = finish = None
            if scaled and not shape.packs:
                slots = max(1, min(-(-rows // SHARE), -(-4 * BUSY // -(-length // 32)), rows))
                self.args.share = -(-rows // slots)
                slots = -(-rows // self.args.share)
                blocks = slots * -(-length // 32)
                columns = kernel(device, "dnn_rows", defined, "columns", self.args, blocks, 256)
            if scaled:
                finish = kernel(device, "dnn_rows", defined, "finish", self.args, -(-length // 32), 512)
                most_slots = max(most_slots, slots)
            run = kernel(device, "dnn_rows", defined, "backward", self.args, grid, shape.threads)
            self.packs.append((length // pack, slots, run, columns, finish))
        self.partial = steps.take_items(2 * most_slots * length, wide.np) if scaled else None

    def __call__(self, native: int, dy: int, x: int, scale: int | None, dx: int) -> None:
        args = self.args
        args.dy, args.x, args.scale, args.out = dy, x, scale, dx
        if self.partial is not None:
            args.partial = self.partial.ptr
        args.packs, args.slots, run, columns, finish = self.packs[0 if aligned((x, dy, dx, scale), self.masks) else -1]
        if columns is not None:
            columns(native)  # before dx, which may share the memory of dy
        run(native)
        if finish is not None:
            finish(native)


@plans(LayerNormBackward, RmsNormBackward)
def backward(library: "CudaDnn", op: Any) -> Work:
    """A plan: called with the fields of the message."""
    steps = PlanMemory(library)
    centred = isinstance(op, LayerNormBackward)
    names = (("dscale", "dbias") if centred else ("dscale",)) if op.scale is not None else ()
    if not op.x.size:
        return steps.work(_zeros(steps, op, names, centred))
    dy, x = RowsIn(steps, op.dy.layout, op.axes), RowsIn(steps, op.x.layout, op.axes)
    dx = RowsOut(steps, made(op, "dx"), op.axes)
    mean_of = steps.brought(op.mean.layout) if centred else None
    inverse_of = steps.brought(op.inverse.layout)
    scale_of = None if op.scale is None else steps.brought(op.scale.layout)
    gradients = [(name, steps.delivered(made(op, name))) for name in names]
    launch = Backward(steps, op, dy, x, dx)

    def run(native: int, dy_at: int, x_at: int, *rest: Any) -> None:
        args = launch.args
        if mean_of is not None:
            args.mean, rest = mean_of(native, rest[0]), rest[1:]
        inverse, scale, dx_at, *own = rest
        args.inverse = inverse_of(native, inverse)
        for (name, delivery), at in zip(gradients, own, strict=False):
            setattr(args, name, delivery.target(at))
        factor = None if scale_of is None else scale_of(native, scale)
        launch(native, dy.bring(native, dy_at), x.bring(native, x_at), factor, dx.target(dx_at))
        dx.finish(native, dx_at)
        for (_, delivery), at in zip(gradients, own, strict=False):
            delivery.finish(native, at)

    return steps.work(run)


def _zeros(steps: PlanMemory, op: Any, names: tuple[str, ...], centred: bool) -> Any:
    """Return a launch that sets the gradients with respect to the parameters to 0, for arrays without rows."""
    driver = steps.device.driver
    outs = [(steps.delivered(made(op, name)), made(op, name).nbytes) for name in names]

    def run(native: int, *dynamic: Any) -> None:
        for (delivery, nbytes), at in zip(outs, dynamic[6 if centred else 5 :], strict=False):
            if nbytes:
                driver.check(driver.memset_8(delivery.target(at), 0, nbytes, native), "cuMemsetD8Async")
            delivery.finish(native, at)

    return run
