"""Partitions: CUB lists the indices of each part, a kernel puts the elements one after the other."""

import struct
from typing import Any

import numpy as np

from callboard.backends.cuda.cub import texts
from callboard.backends.cuda.cub.arguments import CubArgs, move_kernel
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.cub.plan import index_name, result_layout
from callboard.backends.cuda.cub.selection import COUNTS
from callboard.backends.cuda.plans import PlanMemory, Span, Work
from callboard.core.dtype import DTYPES
from callboard.core.library import plans
from callboard.kernel import cub

__all__ = ["partition"]

PARTS = 3


@plans(cub.Partition)
def partition(cccl: Cccl, op: "cub.Partition") -> Work:
    """A plan: ``(x, flags, second, out, counts)``."""
    memory, x, out, counts = PlanMemory(cccl), op.x.layout, result_layout(op), result_layout(op, "counts")
    n, index, of_counts, driver = x.size, index_name(x.size), memory.delivered(counts), cccl.driver
    if not n:

        def nothing(native: int, at: int, flags: int, second: int | None, result: int, counts_at: int) -> None:
            driver.check(driver.memset_8(of_counts.target(counts_at), 0, counts.nbytes, native), "cuMemsetD8Async")
            of_counts.finish(native, counts_at)

        return memory.work(nothing)
    kind = DTYPES[index].np
    bring, bring_flags = memory.brought(x), memory.brought(op.flags.layout)
    bring_second = None if op.second is None else memory.brought(op.second.layout)
    delivery, found = memory.delivered(out), memory.take(COUNTS, np.int64)
    parts, spans = memory.take_items(PARTS * n, kind), [Span(kind) for _ in range(PARTS)]
    args = CubArgs(n=n, room=n, k=2 if op.second is None else 3)
    join = move_kernel(cccl.device, f"parts_{x.dtype.itemsize}_{index}", n, args)
    sizes = move_kernel(cccl.device, f"sizes_{index}", 1, args)
    first, second = texts.flagged(cccl, index), texts.flagged(cccl, index, second=True)
    operators = {"select_first_part_op": first[1], "select_second_part_op": second[1]}
    run: dict[str, Any] = {"num_items": n, **operators}
    step = cccl.step(
        memory, "three_way_partition", operators, run, d_in=cccl.compute.CountingIterator(kind.type(0)),
        d_first_part_out=spans[0], d_second_part_out=spans[1], d_unselected_out=spans[2], d_num_selected_out=found,
    )  # fmt: skip

    def enqueue(native: int, at: int, flags: int, second_flags: int | None, result: int, counts_at: int) -> None:
        flags_at = bring_flags(native, flags)
        second_at = flags_at if bring_second is None else bring_second(native, second_flags or 0)
        run["select_first_part_op"] = cccl.stateful(first[0], struct.pack("<Q", flags_at))
        run["select_second_part_op"] = cccl.stateful(second[0], struct.pack("<Q", second_at))
        for place, span in enumerate(spans):
            span.ptr = parts.ptr + place * n * kind.itemsize
        step(native)
        args.d, args.out = found.ptr, of_counts.target(counts_at)
        sizes(native)
        of_counts.finish(native, counts_at)
        args.a, args.b, args.out = bring(native, at), parts.ptr, delivery.target(result)
        join(native)
        delivery.finish(native, result)

    return memory.work(enqueue)
