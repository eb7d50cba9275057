"""``CpuCub``: which work serves which message of parallel primitives."""

from collections.abc import Callable
from typing import Any, ClassVar

from callboard.backends.cpu.cub import histograms, reductions, selection, sorting
from callboard.backends.cpu.cub.selection import Found
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import Status
from callboard.core.library import Library, entries
from callboard.core.op import Op
from callboard.kernel import cub

__all__ = ["CpuCub"]

Plan = Callable[..., None]

PLANS: dict[type[Op[Any, Any]], Callable[[Any, Any], Plan]] = {
    cub.ArgReduce: lambda _, op: reductions.arg_reduce(op),
    cub.Sort: lambda _, op: sorting.sort(op),
    cub.ArgSort: lambda _, op: sorting.argsort(op),
    cub.SortPairs: lambda _, op: sorting.sort_pairs(op),
    cub.SegmentedSort: lambda _, op: sorting.segmented_sort(op),
    cub.TopK: lambda _, op: sorting.top_k(op),
    cub.LowerBound: lambda _, op: sorting.search(op),
    cub.UpperBound: lambda _, op: sorting.search(op),
    cub.HistogramEven: lambda _, op: histograms.even(op),
    cub.HistogramRange: lambda _, op: histograms.ranged(op),
    cub.Partition: lambda _, op: selection.partition(op),
}
CUSTOM: dict[type[Op[Any, Any]], Callable[[Any, Any], Plan]] = {
    cub.Reduce: lambda _, op: reductions.reduce(op),
    cub.SegmentedReduce: lambda _, op: reductions.segmented_reduce(op),
    cub.Scan: lambda _, op: reductions.scan(op),
    cub.MergeSort: lambda _, op: sorting.merge_sort(op),
}
"""Ops that may have an operator of the caller's."""
SIZED: dict[type[Op[Any, Any]], Callable[[Any, Any], Plan]] = {
    cub.Select: lambda _, op: Found(op, selection.select(op)),
    cub.Unique: lambda _, op: Found(op, selection.unique(op)),
    cub.UniqueByKey: lambda _, op: Found(op, selection.unique_by_key(op)),
    cub.RunLengthEncode: lambda _, op: Found(op, selection.encode(op)),
    cub.RunLengthDecode: lambda _, op: Found(op, selection.decode(op)),
}
"""Ops with data-dependent result lengths."""
CHOSEN: dict[type[Op[Any, Any]], Callable[[Any, Any], Plan]] = {
    cub.SelectIf: lambda _, op: Found(op, selection.select_if(op)),
}


def no_text(op: Any) -> str | None:
    """A custom operator has to have a body for here."""
    if op.cuda is not None and op.python is None:
        return "its operator has a body in CUDA C++ only; pass python, an expression, too"
    return None


class CpuCub(Library):
    """Serves :mod:`callboard.kernel.cub` with NumPy."""

    name = "cub"
    table: ClassVar = {
        **entries(PLANS, inline=True),
        **entries(CUSTOM, inline=True, refuses=no_text),
        **entries(SIZED, inline=True, sizes=True),
        **entries(CHOSEN, inline=True, sizes=True, refuses=no_text),
    }

    def launch(self, stream: CpuStream, plan: Plan, *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run("numpy", plan, *dynamic)
