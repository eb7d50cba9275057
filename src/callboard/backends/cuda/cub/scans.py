"""Scans: CUB's device-wide one for a row, a custom kernel for rows that are many or short."""

import math
import struct
from typing import Any

from callboard.backends.cuda.cub.arguments import CubArgs, stored_name
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.cub.plan import identity, number, result_layout, storage
from callboard.backends.cuda.cub.texts import CTYPES, STORED, join_text, no_text, operator
from callboard.backends.cuda.kernels import data_text
from callboard.backends.cuda.launching import MAX_BLOCKS, THREADS, kernel_launcher
from callboard.backends.cuda.plans import PlanMemory, Span, Work
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel import cub
from callboard.kernel.cub.checks import compute_dtype

__all__ = ["scan"]

FEW_ROWS, LONG_ROW = 64, 1 << 15
"""Rows that are scanned one by one, by the whole GPU each."""


@plans(cub.Scan, refuses=no_text)
def scan(cccl: Cccl, op: "cub.Scan") -> Work:
    """A plan: ``(x, out, init)``."""
    x, out = op.x.layout, result_layout(op)
    n, rows = x.shape[-1], math.prod(x.shape[:-1])
    if rows > 1 and (rows > FEW_ROWS or n < LONG_ROW):
        return _by_rows(cccl, op, x, out, rows)
    memory, work = PlanMemory(cccl), compute_dtype(out.dtype)
    bring, delivery = memory.brought(x), memory.delivered(out)
    source, target, start = Span(storage(x)), Span(storage(out)), number(0, work)
    step = cccl.step(
        memory, "exclusive_scan" if op.exclusive else "inclusive_scan", None, {"num_items": n}, d_in=source,
        d_out=target, op=operator(cccl, op, work), init_value=start,
    ) if x.size else None  # fmt: skip
    default = identity(op.operation, work)

    def enqueue(native: int, at: int, result: int, init: Any) -> None:
        if step is None:
            return
        start[...] = number(default if init is None else init, work)
        source.ptr, target.ptr = bring(native, at), delivery.target(result)
        for _ in range(rows):
            step(native)
            source.ptr += n * x.dtype.itemsize
            target.ptr += n * out.dtype.itemsize
        delivery.finish(native, result)

    return memory.work(enqueue)


def _by_rows(cccl: Cccl, op: "cub.Scan", x: Layout, out: Layout, rows: int) -> Work:
    memory, work, device = PlanMemory(cccl), compute_dtype(out.dtype), cccl.device
    bring, delivery = memory.brought(x), memory.delivered(out)
    types = f"typedef {CTYPES[work.name]} A;\ntypedef {STORED[stored_name(out.dtype)]} R;\n"
    stored = STORED[stored_name(x.dtype)]
    scope = f"namespace custom {{\n{join_text(op, work)}}}\nusing custom::join;\ntypedef {stored} T;\n"
    text = f"{data_text('cub.cuh').decode()}\n{types}{scope}#line 1\n{data_text('cub_scan.cu').decode()}"
    function = device.kernels.compile("cub_scan", text.encode(), "scan_rows")
    args = CubArgs(n=x.shape[-1], m=rows, exclusive=op.exclusive)
    run = kernel_launcher(device.driver, function, max(1, min(rows, MAX_BLOCKS)), (THREADS, 1), args)
    default = identity(op.operation, work)

    def enqueue(native: int, at: int, result: int, init: Any) -> None:
        if not x.size:
            return
        bits = number(default if init is None else init, work).tobytes()
        (args.start,) = struct.unpack("<Q", bits.ljust(8, b"\0"))
        args.a, args.out = bring(native, at), delivery.target(result)
        run(native)
        delivery.finish(native, result)

    return memory.work(enqueue)
