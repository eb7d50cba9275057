"""Plans of selections, runs and histograms: extents that depend on data are found with the elements."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from callboard.backends.torch.conversion import converted, moved_by
from callboard.backends.torch.cub.operators import custom, numbers, signed
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel import cub
from callboard.kernel.cub.checks import compute_dtype, no_room

__all__ = ["even", "partition", "ranged", "runs", "select_if", "selected"]


def _found(library: TorchLibrary, op: Any, find: Callable[..., Sequence[Tensor]]) -> Plan:
    """The plan of an op whose results have a length that depends on data; given ones have room for them."""
    fields = type(op).returns
    room = None if op.count is None else getattr(op, fields[0]).shape[0]

    def work(*given: Any) -> tuple[Any, ...]:
        results = find(*given)
        length = results[0].shape[0]
        if room is not None and length > room:
            raise no_room(type(op).__struct_config__.tag, length, room)
        return (*results, torch.tensor(length))

    return library.planned(op, work)


def _where(x: Tensor, mask: Tensor) -> Tensor:
    return moved_by(lambda bits: bits[mask], x)


def _repeated(values: Tensor, lengths: Tensor) -> list[Tensor]:
    wrong = int((lengths < 0).sum())
    if wrong:
        raise ShapeError(f"cub.run_length_decode: {wrong} lengths are negative")
    return [moved_by(lambda bits: torch.repeat_interleave(bits, lengths), values)]


def _begins(line: Tensor, op: Any) -> Tensor:
    """The indices of elements that start a run of equal ones."""
    keys = signed(line, (op.keys if isinstance(op, cub.UniqueByKey) else op.x).dtype)
    differs = torch.ones(keys.shape[0], dtype=torch.bool, device=keys.device)
    differs[1:] = keys[1:] != keys[:-1]
    return differs.nonzero()[:, 0]


@plans(cub.Select, cub.RunLengthDecode, sizes=True)
def selected(library: TorchLibrary, op: Any) -> Plan:
    """Return elements with a flag, or repeated ones."""
    find = _repeated if isinstance(op, cub.RunLengthDecode) else lambda x, flags: [_where(x, flags != 0)]
    return _found(library, op, find)


@plans(cub.SelectIf, sizes=True, refuses=custom)
def select_if(library: TorchLibrary, op: cub.SelectIf) -> Plan:
    """Return elements that compare with a number as asked."""
    name = {"less": "lt", "less_equal": "le", "equal": "eq", "not_equal": "ne", "greater": "gt", "greater_equal": "ge"}
    dtype = compute_dtype(op.x.dtype)

    def find(x: Tensor, number: Any) -> list[Tensor]:
        compare = getattr(torch, name[op.comparison])
        array = signed(converted(x, op.x.dtype, dtype), dtype)
        if dtype.is_float:
            return [_where(x, compare(array, torch.tensor(number, dtype=array.dtype, device=x.device)))]
        low, high = (-(2**63), 2**63 - 1) if dtype.name != "u64" else (0, 2**64 - 1)
        clamped = max(low - 1, min(high + 1, number))
        if clamped in (low - 1, high + 1):  # beyond all elements: compared with a number that is within
            other = torch.zeros_like(array, dtype=torch.int64)
            return [_where(x, compare(other, 1 if clamped > high else -1))]
        shifted = number - 2**63 if dtype.name == "u64" else number
        return [_where(x, compare(array.to(torch.int64), torch.tensor(shifted, device=x.device)))]

    return _found(library, op, find)


@plans(cub.RunLengthEncode, cub.Unique, cub.UniqueByKey, sizes=True)
def runs(library: TorchLibrary, op: Any) -> Plan:
    """Return the first of each run of equal elements; with its value, or the run's length."""

    def find(line: Tensor, *values: Tensor) -> list[Tensor]:
        begins = _begins(line, op)
        firsts = [moved_by(lambda bits: bits[begins], x) for x in (line, *values)]
        if isinstance(op, cub.RunLengthEncode):
            firsts.append(torch.diff(begins, append=torch.tensor([line.shape[0]], device=line.device)))
        return firsts

    return _found(library, op, find)


@plans(cub.Partition)
def partition(library: TorchLibrary, op: cub.Partition) -> Plan:
    """Return the parts of a line, one after the other, and their sizes."""

    def work(x: Tensor, flags: Tensor, second: Tensor | None) -> tuple[Tensor, Tensor]:
        first = flags != 0
        part = torch.where(first, 0, 1 if second is None else torch.where(second != 0, 1, 2))
        order = torch.argsort(part, stable=True)
        return moved_by(lambda bits: bits[order], x), torch.bincount(part, minlength=2 if second is None else 3)

    return library.planned(op, work)


def _counted(op: Any, places: Tensor, bins: int) -> Tensor:
    """How many samples belong to each bin; -1 is nowhere."""
    if op.channels is None:
        return torch.bincount(places.reshape(-1) + 1, minlength=bins + 1)[1:]
    lines = [places[..., channel].reshape(-1) for channel in range(op.channels)]
    return torch.stack([torch.bincount(line + 1, minlength=bins + 1)[1:] for line in lines])


@plans(cub.HistogramEven)
def even(library: TorchLibrary, op: cub.HistogramEven) -> Plan:
    """Return the numbers of samples in bins of one width."""

    def work(x: Tensor, lower: float, upper: float) -> Tensor:
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            tag = type(op).__struct_config__.tag
            raise ShapeError(f"{tag}: lower is {lower} and upper {upper}; they must be finite, the lower one less")
        wide = converted(x, op.x.dtype, DTYPES["f64"])
        inside = (wide >= lower) & (wide < upper)
        scale = op.bins / (upper - lower)
        at = torch.floor((torch.where(inside, wide, lower) - lower) * scale).to(torch.int64)
        return _counted(op, torch.where(inside, at.clamp(max=op.bins - 1), -1), op.bins)

    return library.planned(op, work)


@plans(cub.HistogramRange)
def ranged(library: TorchLibrary, op: cub.HistogramRange) -> Plan:
    """Return the numbers of samples between levels."""
    bins, dtype = op.levels.shape[0] - 1, numbers(op.x.dtype)

    def work(x: Tensor, levels: Tensor) -> Tensor:
        line, samples = (signed(converted(y, op.x.dtype, dtype), dtype).contiguous() for y in (levels, x))
        at = torch.searchsorted(line, samples, right=True) - 1
        at = torch.where(at < bins, at, -1)
        return _counted(op, torch.where(torch.isnan(samples), -1, at) if dtype.is_float else at, bins)

    return library.planned(op, work)
