"""Rotary position embedding on a GPU: one kernel, a pack of pairs for each thread."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.kernels import STORED, Launch, aligned, arguments, faults, kernel, made, types
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory, Work, nothing
from callboard.core.layout import Layout, c_strides
from callboard.core.library import plans
from callboard.kernel.dnn.embedding import wrong_rows
from callboard.kernel.dnn.rope import Rope, RopeBackward, check_rope

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["RopeArgs", "turn"]

RopeArgs = arguments(
    "Args",
    p="x out cos sin positions fault",
    i="outer length inner width pairs rows per_batch x_outer x_length x_inner out_outer out_length out_inner",
)
"""``Args`` of ``data/dnn_rope.cu``."""

THREADS = 256


def _three(layout: Layout, axis: int) -> tuple[int, int, int] | None:
    """Return the steps before an axis, of the axis, and between it and a last axis without gaps."""
    if layout.strides[-1] != 1 and layout.shape[-1] > 1:
        return None
    before = _one_step(layout.shape[:axis], layout.strides[:axis])
    between = _one_step(layout.shape[axis + 1 : -1], layout.strides[axis + 1 : -1])
    return None if before is None or between is None else (before, layout.strides[axis], between)


def _one_step(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    axes = [(n, step) for n, step in zip(shape, strides, strict=True) if n > 1]
    if any(step != n * inner for (_, step), (n, inner) in pairwise(axes)):
        return None
    return axes[-1][1] if axes else 0


@plans(Rope, RopeBackward)
def turn(library: "CudaDnn", op: Any) -> Work:
    """A plan: called with ``(x, cos, sin, positions, out)``."""
    back = isinstance(op, RopeBackward)
    name, source, result = ("dy", op.dy, "dx") if back else ("x", op.x, "out")
    axis, steps, layout = check_rope(op, name, source), PlanMemory(library), made(op, result)
    if not layout.size:
        return steps.work(nothing)
    shape, width, pairs = source.shape, source.shape[-1], op.cos.shape[1]
    given, put = _three(source.layout, axis), _three(layout, axis)
    bring = None if given is not None else steps.brought(source.layout)
    delivery = None if put is not None else steps.delivered(layout)
    dense = c_strides(shape)
    plain = (math.prod(shape[axis:]), dense[axis], width)
    given, put = given or plain, put or plain
    tables = [steps.brought(table.layout) for table in (op.cos, op.sin)]
    places = None if op.positions is None else steps.brought(op.positions.layout)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 : -1])
    batched = op.positions is not None and op.positions.ndim == 2
    args = RopeArgs(
        outer=outer, length=shape[axis], inner=inner, width=width, pairs=pairs, rows=op.cos.shape[0],
        per_batch=outer // shape[0] if batched else 0,
        x_outer=given[0], x_length=given[1], x_inner=given[2],
        out_outer=put[0], out_length=put[1], out_inner=put[2],
    )  # fmt: skip
    item, table_item = source.dtype.itemsize, op.cos.dtype.itemsize
    whole = 16 // item
    while whole > 1 and any(n % whole for n in (pairs, *given, *put)):
        whole //= 2
    masks = [item * whole - 1] * 2 + [min(16, table_item * whole) - 1] * 2
    launches: list[Launch] = []
    for pack in dict.fromkeys((whole, 1)):
        defined = {
            **types(source.dtype, pack), "TABLE": STORED[op.cos.dtype.name], "BACK": int(back),
            "INTERLEAVED": int(op.interleaved), "PLACED": int(op.positions is not None), "PLACE": _place(op),
        }  # fmt: skip
        items = outer * shape[axis] * inner * max(1, pairs // pack)
        launches.append(kernel(steps.device, "dnn_rope", defined, "rope", args, linear_grid(items), THREADS))
    tag, rows = type(op).__struct_config__.tag, op.cos.shape[0]
    fault = None
    if op.positions is not None:
        count = op.positions.size
        fault = faults(steps.device, lambda value, wrong: wrong_rows(tag, "positions", value, wrong, count, rows))
        args.fault = fault.address

    def enqueue(native: int, x: int, cos: int, sin: int, positions: int | None, out: int) -> None:
        args.x = x if bring is None else bring(native, x)
        args.out = out if delivery is None else delivery.target(out)
        args.cos, args.sin = (table(native, at) for table, at in zip(tables, (cos, sin), strict=True))
        if places is not None and positions is not None:
            args.positions = places(native, positions)
        launches[0 if aligned((args.x, args.out, args.cos, args.sin), masks) else -1](native)
        if delivery is not None:
            delivery.finish(native, out)

    return steps.work(enqueue, fault)


def _place(op: Any) -> str:
    """The type of positions."""
    return "int" if op.positions is not None and op.positions.dtype.name == "i32" else "long long"
