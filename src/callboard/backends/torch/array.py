"""``TorchArray``: conversions, ranges, and indexing by arrays of integers."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.torch.conversion import as_i64, converted, movable, moved_by
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DTYPES, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel.array import Arange, Cast, Gather, Scatter, TakeAlong
from callboard.kernel.array.checks import broadcast_shape

__all__ = ["TorchArray"]


class TorchArray(TorchLibrary):
    """Serves :mod:`callboard.kernel.array`."""

    name = "array"

    @plans(Cast)
    def cast(self, op: Cast) -> Plan:
        return self.planned(op, lambda src: converted(src, op.src.dtype, as_dtype(op.dtype)))

    @plans(Arange)
    def arange(self, op: Arange) -> Plan:
        return self.planned(op, lambda start, step: self._numbered(op, start, step))

    def _numbered(self, op: Arange, start: Any, step: Any) -> Tensor:
        dtype = as_dtype(op.dtype)
        if dtype.is_integer:
            at = torch.arange(op.length, dtype=torch.int64, device=self.where)
            return converted(at * as_i64(step) + as_i64(start), DTYPES["i64"], dtype)
        wide = DTYPES["c128" if dtype.is_complex else "f64"]
        at = torch.arange(op.length, dtype=torch.float64, device=self.where)
        return converted(at * step + start, wide, dtype)

    @plans(Gather)
    def gather(self, op: Gather) -> Plan:
        picked = _picked(op.indices)

        def work(src: Tensor, indices: Sequence[Tensor]) -> Tensor:
            at = _places("array.gather", "src", op.src.layout, indices)
            return _moved(moved_by(lambda x: x[at], src), range(picked), range(op.place, op.place + picked))

        return self.planned(op, work)

    @plans(Scatter)
    def scatter(self, op: Scatter) -> Plan:
        picked = _picked(op.indices)

        def work(out: Tensor, values: Tensor, indices: Sequence[Tensor]) -> Tensor:
            at = _places("array.scatter", "out", op.out.layout, indices)
            into = out.clone()
            front = _moved(movable(values), range(op.place, op.place + picked), range(picked))
            movable(into)[at] = front
            return into

        return self.planned(op, work)

    @plans(TakeAlong)
    def take_along(self, op: TakeAlong) -> Plan:
        axis = op.axis % op.src.ndim
        layout = op.src.layout
        shape = op.infer()["out"].shape

        def work(src: Tensor, indices: Tensor) -> Tensor:
            at = _checked("array.take_along", "indices", "src", layout, axis, indices).expand(shape)
            lines = tuple(layout.shape[axis] if k == axis else n for k, n in enumerate(shape))
            return moved_by(lambda x: torch.gather(x.expand(lines), axis, at), src)

        return self.planned(op, work)


def _moved(x: Tensor, source: range, to: range) -> Tensor:
    return torch.movedim(x, tuple(source), tuple(to)) if len(source) else x


def _picked(indices: Any) -> int:
    return len(broadcast_shape("indices", [one.shape for one in indices]))


def _places(tag: str, name: str, layout: Layout, indices: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(_checked(tag, f"indices[{i}]", name, layout, i, index) for i, index in enumerate(indices))


def _checked(tag: str, which: str, name: str, layout: Layout, axis: int, indices: Tensor) -> Tensor:
    """The indices as i64, none negative; all of them are in bounds."""
    extent = layout.shape[axis]
    at = indices.to(torch.int64)  # u64 beyond it becomes negative, and is out of range as well
    wrong = (at < -extent) | (at >= extent)
    if indices.dtype == torch.uint64:
        wrong |= at < 0
    count = int(wrong.sum())
    if count:
        first = indices[wrong.nonzero(as_tuple=True)][0].item() if indices.ndim else indices.item()
        raise ShapeError(
            f"{tag}: {which} holds {first}, out of range for axis {axis} of {name}, which is {layout!r} "
            f"({count} of {indices.numel()} are)"
        )
    return torch.where(at < 0, at + extent, at)
