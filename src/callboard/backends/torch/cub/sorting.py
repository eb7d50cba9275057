"""Plans of sorts, of the largest elements, and of binary searches."""

from collections.abc import Callable
from typing import Any

from callboard.backends.torch.conversion import moved_by
from callboard.backends.torch.cub.operators import segments, signed
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel import cub

__all__ = ["argsort", "search", "segmented_sort", "sort", "sort_pairs", "top_k"]


def _order(keys: Tensor, dtype: DType, descending: bool) -> Tensor:
    """The indices that sort the last axis, stable either way; -0.0 equals 0.0, NaNs are the largest."""
    keys = signed(keys, dtype)
    return torch.argsort(keys, dim=-1, descending=descending, stable=True)


def _taken(order: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: moved_by(lambda bits: torch.take_along_dim(bits, order, -1), x)


@plans(cub.Sort)
def sort(library: TorchLibrary, op: cub.Sort) -> Plan:
    """Return the keys in order."""
    return library.planned(op, lambda keys: _taken(_order(keys, op.keys.dtype, op.descending))(keys))


@plans(cub.ArgSort)
def argsort(library: TorchLibrary, op: cub.ArgSort) -> Plan:
    """Return the indices that sort them."""
    return library.planned(op, lambda keys: _order(keys, op.keys.dtype, op.descending))


@plans(cub.SortPairs)
def sort_pairs(library: TorchLibrary, op: cub.SortPairs) -> Plan:
    """Return keys in order, and values with them."""

    def work(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        take = _taken(_order(keys, op.keys.dtype, op.descending))
        return take(keys), take(values)

    return library.planned(op, work)


@plans(cub.SegmentedSort)
def segmented_sort(library: TorchLibrary, op: cub.SegmentedSort) -> Plan:
    """Return the keys of each segment in order, and values with them."""

    def work(keys: Tensor, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        lengths = segments(op, offsets, keys.shape[0], whole=True).diff()
        places = torch.repeat_interleave(torch.arange(lengths.shape[0], device=keys.device), lengths)
        order = _order(keys, op.keys.dtype, op.descending)
        take = _taken(order[torch.argsort(places[order], stable=True)])
        return take(keys), take(values)

    return library.planned(op, work)


@plans(cub.TopK)
def top_k(library: TorchLibrary, op: cub.TopK) -> Plan:
    """Return the first elements in order; ties by the lower index, which ``torch.topk`` does not promise."""

    def work(x: Tensor) -> tuple[Tensor, Tensor]:
        order = _order(x, op.x.dtype, op.largest)[..., : op.k]
        return _taken(order)(x), order

    return library.planned(op, work)


@plans(cub.LowerBound, cub.UpperBound)
def search(library: TorchLibrary, op: Any) -> Plan:
    """Return places in a sorted line."""
    right = isinstance(op, cub.UpperBound)

    def work(x: Tensor, values: Tensor) -> Tensor:
        line, wanted = signed(x, op.x.dtype), signed(values, op.x.dtype)
        if line.dtype in (torch.float16, torch.bfloat16):
            line, wanted = line.to(torch.float32), wanted.to(torch.float32)
        n = line.shape[0]
        if not line.is_floating_point():
            return torch.searchsorted(line.contiguous(), wanted.contiguous(), right=right)
        line = line[~torch.isnan(line)]  # NaNs are last, and the largest
        found = torch.searchsorted(line, wanted.contiguous(), right=right)
        return torch.where(torch.isnan(wanted), n if right else line.shape[0], found)

    return library.planned(op, work)
