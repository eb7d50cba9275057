"""Plans of reductions and scans."""

from typing import Any

from callboard.backends.torch.cub.operators import Operator, custom, segments, signed
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import cub

__all__ = ["arg_reduce", "reduce", "scan", "segmented_reduce"]


@plans(cub.Reduce, refuses=custom)
def reduce(library: TorchLibrary, op: cub.Reduce) -> Plan:
    """Return what each row comes to."""
    out = op.infer()["out"]
    by = Operator(op.operation, op.x.dtype, out.dtype)

    def work(x: Tensor, init: Any) -> Tensor:
        array = by.taken(x)
        start = by.start(init, array)
        if not array.shape[-1]:
            return by.given(start.expand(out.shape))
        found = by.reduced(array)
        return by.given(found if init is None else by.join(start, found))

    return library.planned(op, work)


@plans(cub.ArgReduce)
def arg_reduce(library: TorchLibrary, op: cub.ArgReduce) -> Plan:
    """Return where each row has its extreme."""

    def work(x: Tensor) -> Tensor:
        return getattr(torch, f"arg{op.operation}")(signed(x, op.x.dtype), -1)

    return library.planned(op, work)


@plans(cub.SegmentedReduce, refuses=custom)
def segmented_reduce(library: TorchLibrary, op: cub.SegmentedReduce) -> Plan:
    """Return what each segment comes to."""
    by = Operator(op.operation, op.x.dtype, op.infer()["out"].dtype)
    names = {"sum": "sum", "product": "prod", "min": "amin", "max": "amax"}

    def work(x: Tensor, offsets: Tensor, init: Any) -> Tensor:
        array = by.taken(x)
        begins = segments(op, offsets, x.shape[0])
        lengths = begins.diff()
        found = by.start(init, array).repeat(lengths.shape[0])
        if not found.numel():
            return by.given(found)
        array = array[int(begins[0]) : int(begins[-1])]
        places = torch.repeat_interleave(torch.arange(lengths.shape[0], device=x.device), lengths)
        if array.numel():
            found = found.scatter_reduce(0, places, array, names[op.operation], include_self=True)
        return by.given(found)

    return library.planned(op, work)


@plans(cub.Scan, refuses=custom)
def scan(library: TorchLibrary, op: cub.Scan) -> Plan:
    """Return running results."""
    by = Operator(op.operation, op.x.dtype, op.infer()["out"].dtype)

    def work(x: Tensor, init: Any) -> Tensor:
        array = by.taken(x)
        if not array.numel():
            return by.given(array)
        start, found = by.start(init, array), by.scanned(array)
        if op.exclusive:
            first = start.expand(*array.shape[:-1], 1)
            return by.given(torch.cat([first, by.join(start, found[..., :-1])], -1))
        return by.given(found if init is None else by.join(start, found))

    return library.planned(op, work)
