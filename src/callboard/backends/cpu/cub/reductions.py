"""Reductions and scans."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.cub.operators import Array, Joined, identity, joined, no_text, number
from callboard.backends.cpu.views import viewer
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel import cub
from callboard.kernel.cub.checks import compute_dtype

__all__ = ["arg_reduce", "reduce", "scan", "segment_offsets", "segmented_reduce"]

Plan = Callable[..., None]


@plans(cub.Reduce, refuses=no_text)
def reduce(op: "cub.Reduce") -> Plan:
    """``run(x, out, init)``."""
    x_of, out = viewer(op.x.layout), op.infer()["out"]
    out_of = viewer(out if op.out is None else op.out.layout)
    work, join, operation = compute_dtype(out.dtype).np, joined(op), op.operation

    def run(x: int, target: int, init: Any) -> None:
        array = x_of(x)
        if isinstance(join, Joined):
            start = number(init, work)
            found = join(start, join.reduce(array.astype(work))) if array.shape[-1] else start
        else:
            if operation in ("min", "max"):
                array = array.astype(work, copy=False)
            first = identity(operation, work) if init is None else number(init, work)
            options: dict[str, Any] = {} if init is None and array.shape[-1] else {"initial": first}
            found = join.reduce(array, axis=-1, dtype=work, **options)
        out_of(target)[...] = found

    return run


@plans(cub.ArgReduce)
def arg_reduce(op: "cub.ArgReduce") -> Plan:
    """``run(x, out)``."""
    x_of, out_of = viewer(op.x.layout), viewer(op.infer()["out"] if op.out is None else op.out.layout)
    work = compute_dtype(op.x.dtype).np
    find = np.argmin if op.operation == "min" else np.argmax

    def run(x: int, out: int) -> None:
        out_of(out)[...] = find(x_of(x).astype(work, copy=False), axis=-1)

    return run


@plans(cub.SegmentedReduce, refuses=no_text)
def segmented_reduce(op: "cub.SegmentedReduce") -> Plan:
    """``run(x, offsets, out, init)``."""
    x_of, offsets_of, out = viewer(op.x.layout), viewer(op.offsets.layout), op.infer()["out"]
    out_of = viewer(out if op.out is None else op.out.layout)
    work, join, operation = compute_dtype(out.dtype).np, joined(op), op.operation

    def run(x: int, offsets: int, target: int, init: Any) -> None:
        array = x_of(x).astype(work, copy=False)
        begins = segment_offsets(op, offsets_of(offsets), array.size)
        start = identity(operation, work) if init is None else number(init, work)
        found = np.full(begins.size - 1, start, work)
        filled = begins[1:] > begins[:-1]
        if isinstance(join, Joined):
            for at in np.flatnonzero(filled):
                found[at] = join(start, join.reduce(array[begins[at] : begins[at + 1]]))
        elif filled.any():
            # Empty segments are between others, so the range that reduceat takes up to the next begin is one segment.
            sums = join.reduceat(array[: begins[-1]], begins[:-1][filled], dtype=work)
            found[filled] = sums if init is None else join(start, sums)
        out_of(target)[...] = found

    return run


def segment_offsets(op: Any, offsets: Array, n: int, whole: bool = False) -> Array:
    """Offsets that are in order and in range; ``whole``: from 0 to n."""
    wrong = int((offsets[1:] < offsets[:-1]).sum())
    out = int(((offsets < 0) | (offsets > n)).sum())
    ends = whole and (offsets[0] != 0 or offsets[-1] != n)
    if wrong or out or ends:
        what = f"fall {wrong} times" if wrong else f"leave [0, {n}] {out} times" if out else f"are not from 0 to {n}"
        raise ShapeError(f"{type(op).__struct_config__.tag}: offsets {what}")
    return offsets


@plans(cub.Scan, refuses=no_text)
def scan(op: "cub.Scan") -> Plan:
    """``run(x, out, init)``."""
    x_of, out = viewer(op.x.layout), op.infer()["out"]
    out_of = viewer(out if op.out is None else op.out.layout)
    work, join, operation, exclusive = compute_dtype(out.dtype).np, joined(op), op.operation, op.exclusive

    def run(x: int, target: int, init: Any) -> None:
        array, result = x_of(x), out_of(target)
        if not array.size:
            return
        start = identity(operation, work) if init is None else number(init, work)
        if isinstance(join, Joined):
            sums = join.accumulate(array.astype(work))
        elif exclusive or init is not None or result.dtype != work:
            sums = join.accumulate(array.astype(work, copy=False), axis=-1, dtype=work)
        else:
            join.accumulate(array.astype(work, copy=False), axis=-1, dtype=work, out=result)
            return
        if not exclusive:
            result[...] = join(start, sums)
            return
        result[..., 1:] = join(start, sums[..., :-1])
        result[..., 0] = start

    return run
