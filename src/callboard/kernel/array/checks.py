"""Operand checks of the messages of this package, and shape inference."""

from collections.abc import Sequence

import numpy as np

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, c_strides, layout_of
from callboard.core.operand import Operand
from callboard.kernel.checks import AnyOp, refuse

__all__ = ["INDEX_DTYPES", "MAX_INDICES", "broadcast", "broadcast_shape", "check_indices", "gathered_shape"]


INDEX_DTYPES: tuple[DType, ...] = tuple(d for d in DTYPES.values() if d.is_integer)
MAX_INDICES = 8
"""Axes that one gather or scatter indexes by arrays."""


def broadcast_shape(what: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that these shapes broadcast to, by the rules that NumPy and the Array API standard share.

    Raises:
        ShapeError: They do not fit; names ``what`` and the shapes.
    """
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError(
            f"{what}: shapes {', '.join(map(str, shapes))} do not broadcast: extents of one axis must be equal or 1"
        ) from None


def broadcast(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The layout repeated to a shape that it broadcasts to: steps of 0 where it is repeated."""
    missing = len(shape) - layout.ndim
    strides = (
        *(0,) * missing,
        *(0 if n == 1 and m != 1 else s for n, m, s in zip(layout.shape, shape[missing:], layout.strides, strict=True)),
    )
    return layout_of(layout.dtype, shape, None if strides == c_strides(shape) else strides)


def check_indices(op: AnyOp, indices: Sequence[Operand]) -> tuple[int, ...]:
    """The shape that arrays of indices broadcast to."""
    if not 1 <= len(indices) <= MAX_INDICES:
        raise refuse(op, f"indices has {len(indices)} arrays; it must have 1 to {MAX_INDICES}")
    for i, one in enumerate(indices):
        if one.dtype not in INDEX_DTYPES:
            raise refuse(op, f"indices[{i}] is {one.layout!r}; indices are integers (convert it with cast)")
    return broadcast_shape(f"{type(op).__struct_config__.tag}: indices", [one.shape for one in indices])


def gathered_shape(op: AnyOp, name: str, a: Operand, indices: Sequence[Operand], place: int) -> tuple[int, ...]:
    """Shape of ``a[indices]``: the indices select from the first axes of ``a``, and their axes go to ``place``."""
    picked = check_indices(op, indices)
    if len(indices) > a.ndim:
        raise refuse(op, f"indices has {len(indices)} arrays, and {name} is {a.layout!r}, with {a.ndim} axes")
    rest = a.shape[len(indices) :]
    if not 0 <= place <= len(rest):
        raise refuse(op, f"place is {place}; {name} is {a.layout!r}, which leaves the places 0 to {len(rest)}")
    shape = (*rest[:place], *picked, *rest[place:])
    if 0 in a.shape[: len(indices)] and 0 not in picked:
        raise refuse(op, f"{name} is {a.layout!r}: an axis without elements cannot be indexed")
    return shape
