"""Plans of gathers and scatters."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.array.movement import layout_of_out
from callboard.backends.cpu.views import viewer
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.array import Gather, Scatter, TakeAlong
from callboard.kernel.array.checks import broadcast_shape

__all__ = ["gather", "scatter", "take_along"]

Plan = Callable[..., None]
Array = np.ndarray[Any, Any]


@plans(Gather)
def gather(op: Gather) -> Plan:
    """Called with ``(src, indices, out)``."""
    view_src, view_out = viewer(op.src.layout), viewer(layout_of_out(op))
    indices, front = _indices("array.gather", "src", op.src.layout, op.indices), _picked_first(op.indices, op.place)

    def work(src: int, at: Sequence[int], out: int) -> None:
        front(view_out(out))[...] = view_src(src)[indices(at)]

    return work


@plans(Scatter)
def scatter(op: Scatter) -> Plan:
    """Called with ``(out, values, indices)``."""
    view_values, view_out = viewer(op.values.layout), viewer(op.out.layout)
    front = _picked_first(op.indices, op.place)
    indices = _indices("array.scatter", "out", op.out.layout, op.indices)

    def work(out: int, values: int, at: Sequence[int]) -> None:
        view_out(out)[indices(at)] = front(view_values(values))

    return work


@plans(TakeAlong)
def take_along(op: TakeAlong) -> Plan:
    """Called with ``(src, indices, out)``."""
    view_src, view_out = viewer(op.src.layout), viewer(layout_of_out(op))
    axis = op.axis % op.src.ndim
    extents = op.src.shape[axis]
    view_indices = viewer(op.indices.layout)

    def work(src: int, at: int, out: int) -> None:
        found = _checked("array.take_along", "indices", "src", op.src.layout, axis, view_indices(at), extents)
        result = view_out(out)
        lines = tuple(extents if k == axis else n for k, n in enumerate(result.shape))
        found = np.broadcast_to(found, result.shape)
        result[...] = np.take_along_axis(np.broadcast_to(view_src(src), lines), found, axis)

    return work


def _indices(
    tag: str, name: str, layout: Layout, indices: Sequence[Operand]
) -> Callable[[Sequence[int]], tuple[Array, ...]]:
    """Return a function that reads the index arrays at their addresses and checks that all of them are in bounds."""
    views = [viewer(one.layout) for one in indices]

    def at(addresses: Sequence[int]) -> tuple[Array, ...]:
        return tuple(
            _checked(tag, f"indices[{i}]", name, layout, i, view(address), layout.shape[i])
            for i, (view, address) in enumerate(zip(views, addresses, strict=True))
        )

    return at


def _checked(tag: str, which: str, name: str, layout: Layout, axis: int, found: Array, extent: int) -> Array:
    if found.size and not (-extent <= int(found.min()) and int(found.max()) < extent):
        wrong = found[(found < 0) & (found.astype(np.int64) < -extent) | (found >= extent)]
        raise ShapeError(
            f"{tag}: {which} holds {wrong[0]}, out of range for axis {axis} of {name}, which is {layout!r} "
            f"({wrong.size} of {found.size} are)"
        )
    return found.astype(np.intp, copy=False)


def _picked_first(indices: Sequence[Operand], place: int) -> Callable[[Array], Array]:
    """Return a function that moves the indexed axes to the front."""
    picked = len(broadcast_shape("indices", [one.shape for one in indices]))
    if not place or not picked:
        return lambda array: array
    return lambda array: np.moveaxis(array, range(place, place + picked), range(picked))
