"""Reductions: CUB's device-wide one for a row, its segmented one for many, custom kernels for where extremes are."""

import math
from typing import Any

import numpy as np

from callboard.backends.cuda.cub.arguments import CubArgs, element_kernel, move_kernel
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.cub.memory import Span, storage
from callboard.backends.cuda.cub.plan import Work, identity, number, result_layout
from callboard.backends.cuda.cub.texts import operator
from callboard.kernel import cub
from callboard.kernel.cub.checks import compute_dtype

__all__ = ["arg_reduce", "reduce", "segmented_reduce"]

FEW_ROWS, LONG_ROW = 64, 1 << 15
"""Rows that are reduced one by one: a block for each, as CUB's segmented reduction has it, would leave a GPU idle."""
PARTS, PART = 1024, 1 << 14
"""Blocks for a row, at most, and elements for a block, at least."""


def reduce(cccl: Cccl, op: "cub.Reduce") -> Work:
    """A plan: ``(x, out, init)``."""
    memory, x, out = cccl.memory(), op.x.layout, result_layout(op)
    n, rows, work = x.shape[-1], math.prod(x.shape[:-1]), compute_dtype(out.dtype)
    bring, delivery, joins = memory.brought(x), memory.delivered(out), operator(cccl, op, work)
    source, target, start = Span(storage(x)), Span(storage(out)), number(0, work)
    one_by_one = rows == 1 or (rows <= FEW_ROWS and n >= LONG_ROW)
    steps = []
    if rows and one_by_one:
        kinds = cccl.compute.Determinism
        build = {"determinism": getattr(kinds, op.determinism.upper())}
        run = {"num_items": n}
        steps = [
            cccl.step(memory, "reduce_into", build, run, d_in=source, d_out=target, op=joins, h_init=start)
        ]  # fmt: skip
    elif rows:
        begins = memory.take_items(rows + 1, np.int64)
        ends, args = Span(np.int64), CubArgs(n=rows + 1, m=n)
        make = move_kernel(cccl.device, "begins_i64", rows + 1, args)
        steps = [
            make,
            cccl.step(
                memory, "segmented_reduce", None, {"num_segments": rows}, d_in=source, d_out=target, op=joins,
                h_init=start, start_offsets_in=begins, end_offsets_in=ends,
            ),
        ]  # fmt: skip
    item, out_item, default = x.dtype.itemsize, out.dtype.itemsize, identity(op.operation, work)

    def enqueue(native: int, at: int, result: int, init: Any) -> None:
        if not rows:
            return
        start[...] = number(default if init is None else init, work)
        source.ptr, target.ptr = bring(native, at), delivery.target(result)
        if one_by_one:
            for _ in range(rows):
                steps[0](native)
                source.ptr += n * item
                target.ptr += out_item
        else:
            args.out, ends.ptr = begins.ptr, begins.ptr + 8
            for step in steps:
                step(native)
        delivery.finish(native, result)

    return Work(memory, enqueue)


def segmented_reduce(cccl: Cccl, op: "cub.SegmentedReduce") -> Work:
    """A plan: ``(x, offsets, out, init)``."""
    memory, x, offsets, out = cccl.memory(), op.x.layout, op.offsets.layout, result_layout(op)
    work, segments, item = compute_dtype(out.dtype), out.size, offsets.dtype.itemsize
    bring, bring_offsets, delivery = memory.brought(x), memory.brought(offsets), memory.delivered(out)
    source, target, start = Span(storage(x)), Span(storage(out)), number(0, work)
    begins, ends = Span(offsets.dtype.np), Span(offsets.dtype.np)
    step = cccl.step(
        memory, "segmented_reduce", None, {"num_segments": segments}, d_in=source, d_out=target,
        op=operator(cccl, op, work), h_init=start, start_offsets_in=begins, end_offsets_in=ends,
    ) if segments else None  # fmt: skip
    default = identity(op.operation, work)

    def enqueue(native: int, at: int, offsets_at: int, result: int, init: Any) -> None:
        if step is None:
            return
        start[...] = number(default if init is None else init, work)
        source.ptr, target.ptr = bring(native, at), delivery.target(result)
        begins.ptr = bring_offsets(native, offsets_at)
        ends.ptr = begins.ptr + item
        step(native)
        delivery.finish(native, result)

    return Work(memory, enqueue)


def arg_reduce(cccl: Cccl, op: "cub.ArgReduce") -> Work:
    """A plan: ``(x, out)``."""
    memory, x, out = cccl.memory(), op.x.layout, result_layout(op)
    n, rows = x.shape[-1], math.prod(x.shape[:-1])
    parts = max(1, min(PARTS, -(-n // PART)))
    bring, delivery = memory.brought(x), memory.delivered(out)
    between = memory.take_items(rows * parts, np.int64) if parts > 1 else None
    args = CubArgs(n=n, m=parts, least=op.operation == "min")
    find = element_kernel(cccl.device, "extreme_parts", x.dtype, args, max(rows * parts, 1))
    end = element_kernel(cccl.device, "extreme", x.dtype, args, max(rows, 1))

    def enqueue(native: int, at: int, result: int) -> None:
        if not rows:
            return
        args.a, target = bring(native, at), delivery.target(result)
        args.out = target if between is None else between.ptr
        find(native)
        if between is not None:
            args.b, args.out = between.ptr, target
            end(native)
        delivery.finish(native, result)

    return Work(memory, enqueue)
