"""Reductions: CUB's device-wide one for a row, its segmented one for many, custom kernels for where extremes are."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cuda.cub.arguments import CubArgs, element_kernel, move_kernel
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.cub.plan import identity, number, result_layout, storage
from callboard.backends.cuda.cub.texts import no_text, operator
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory, Span, Work, nothing
from callboard.core.dtype import DType
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel import cub
from callboard.kernel.cub.checks import compute_dtype

__all__ = ["arg_reduce", "reduce", "segmented_reduce"]

FEW_ROWS, LONG_ROW = 64, 1 << 15
"""Rows that are reduced one by one: a block for each, as CUB's segmented reduction has it, would leave a GPU idle."""
PARTS, PART = 1024, 1 << 14
"""Blocks for a row, at most, and elements for a block, at least."""


class Totals:
    """The buffers for results of reductions; results of a dtype other than the compute dtype are rounded afterwards.

    ``cuda.compute`` 1.2.1 writes its sums in their own dtype, over the memory that follows if the output is narrower.
    """

    def __init__(self, cccl: Cccl, memory: PlanMemory, out: Layout, work: DType) -> None:
        self._delivery, self._narrow = memory.delivered(out), None
        self.span = Span(work.np)
        if out.dtype.itemsize < work.itemsize:
            self._wide = memory.take_items(out.size, work.np)
            self._args = CubArgs(n=out.size)
            self._narrow = element_kernel(cccl.device, "rounded", out.dtype, self._args, linear_grid(out.size))

    def begin(self, at: int) -> None:
        """Give the span its address, for a result there."""
        self.span.ptr = self._delivery.target(at) if self._narrow is None else self._wide.ptr

    def finish(self, native: int, at: int) -> None:
        """Enqueue the copy of the results."""
        if self._narrow is not None:
            self._args.a, self._args.out = self._wide.ptr, self._delivery.target(at)
            self._narrow(native)
        self._delivery.finish(native, at)


@plans(cub.Reduce, refuses=no_text)
def reduce(cccl: Cccl, op: "cub.Reduce") -> Work:
    """A plan: ``(x, out, init)``."""
    memory, x, out = PlanMemory(cccl), op.x.layout, result_layout(op)
    n, rows, work = x.shape[-1], math.prod(x.shape[:-1]), compute_dtype(out.dtype)
    if not rows:
        return memory.work(nothing)
    bring, totals, start = memory.brought(x), Totals(cccl, memory, out, work), number(0, work)
    ends = {"d_in": Span(storage(x)), "d_out": totals.span, "op": operator(cccl, op, work), "h_init": start}
    one_by_one = rows == 1 or (rows <= FEW_ROWS and n >= LONG_ROW)
    run = _each(cccl, memory, op, ends, rows, n) if one_by_one else _all(cccl, memory, ends, rows, n)
    source, default = ends["d_in"], identity(op.operation, work)

    def enqueue(native: int, at: int, result: int, init: Any) -> None:
        start[...] = number(default if init is None else init, work)
        source.ptr = bring(native, at)
        totals.begin(result)
        run(native)
        totals.finish(native, result)

    return memory.work(enqueue)


def _each(
    cccl: Cccl, memory: PlanMemory, op: "cub.Reduce", ends: dict[str, Any], rows: int, n: int
) -> Callable[[int], None]:
    """One row after the other, by the whole GPU each."""
    build = {"determinism": getattr(cccl.compute.Determinism, op.determinism.upper())}
    step = cccl.step(memory, "reduce_into", build, {"num_items": n}, **ends)
    source, target = ends["d_in"], ends["d_out"]

    def run(native: int) -> None:
        for _ in range(rows):
            step(native)
            source.ptr += n * source.dtype.itemsize
            target.ptr += target.dtype.itemsize

    return run


def _all(cccl: Cccl, memory: PlanMemory, ends: dict[str, Any], rows: int, n: int) -> Callable[[int], None]:
    """All rows at once, as segments of one length."""
    begins, behind = memory.take_items(rows + 1, np.int64), Span(np.int64)
    args = CubArgs(n=rows + 1, m=n)
    make = move_kernel(cccl.device, "begins_i64", rows + 1, args)
    step = cccl.step(
        memory, "segmented_reduce", None, {"num_segments": rows}, start_offsets_in=begins, end_offsets_in=behind, **ends
    )

    def run(native: int) -> None:
        args.out, behind.ptr = begins.ptr, begins.ptr + behind.dtype.itemsize
        make(native)
        step(native)

    return run


@plans(cub.SegmentedReduce, refuses=no_text)
def segmented_reduce(cccl: Cccl, op: "cub.SegmentedReduce") -> Work:
    """A plan: ``(x, offsets, out, init)``."""
    memory, x, offsets, out = PlanMemory(cccl), op.x.layout, op.offsets.layout, result_layout(op)
    work, segments, item = compute_dtype(out.dtype), out.size, offsets.dtype.itemsize
    bring, bring_offsets, totals = memory.brought(x), memory.brought(offsets), Totals(cccl, memory, out, work)
    source, target, start = Span(storage(x)), totals.span, number(0, work)
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
        source.ptr = bring(native, at)
        totals.begin(result)
        begins.ptr = bring_offsets(native, offsets_at)
        ends.ptr = begins.ptr + item
        step(native)
        totals.finish(native, result)

    return memory.work(enqueue)


@plans(cub.ArgReduce)
def arg_reduce(cccl: Cccl, op: "cub.ArgReduce") -> Work:
    """A plan: ``(x, out)``."""
    memory, x, out = PlanMemory(cccl), op.x.layout, result_layout(op)
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

    return memory.work(enqueue)
