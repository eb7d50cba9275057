"""Helpers shared by the plans of this package: outputs, wide copies, blocks that fit into a cache."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.views import viewer
from callboard.core.op import Op
from callboard.core.operand import Operand

__all__ = ["BLOCK", "Array", "Plan", "View", "blocks", "optional", "view_of", "view_of_out", "wide"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]
View = Callable[[int], Array]

BLOCK = 1 << 17
"""Elements of a block."""


def wide(array: Array) -> Array:
    """In the dtype of its sums: f32 for halves."""
    return array if array.dtype.itemsize >= 4 else array.astype(np.float32)


def view_of(operand: Operand) -> View:
    """The array of an operand at an address."""
    return viewer(operand.layout)


def optional(operand: Operand | None) -> Callable[[int | None], Array | None]:
    """The wide array of an operand that may be left out."""
    if operand is None:
        return lambda address: None
    view = viewer(operand.layout)
    return lambda address: None if address is None else wide(view(address))


def view_of_out(op: Op[Any, Any], name: str = "out") -> View:
    """Return the array of an output at an address: the given array's, or that of the one that the host allocates."""
    given: Operand | None = getattr(op, name)
    return viewer(op.infer()[name] if given is None else given.layout)


def blocks(shape: Sequence[int], along: Sequence[int], size: int = BLOCK) -> Iterator[tuple[Any, ...]]:
    """Yield parts of a shape of about ``size`` elements, cut along the longest of some axes, as indices."""
    if not along:
        yield (...,)
        return
    axis = max(along, key=lambda a: shape[a])
    beside = max(1, math.prod(n for a, n in enumerate(shape) if a != axis))
    step = max(1, size // beside)
    for start in range(0, shape[axis], step):
        yield (*(slice(None),) * axis, slice(start, start + step))
