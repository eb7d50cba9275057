"""Broadcasting: the shape that arrays of several shapes have together."""

from collections.abc import Sequence

from callboard.core.layout import Layout

__all__ = ["broadcast", "spread"]


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The common shape by the standard's rules: axes from the last, extents of 1 repeated; None if there is none."""
    found: list[int] = []
    for shape in shapes:
        found = [1] * (len(shape) - len(found)) + found
        for axis, extent in enumerate(shape, len(found) - len(shape)):
            if found[axis] != extent:
                if found[axis] != 1 and extent != 1:
                    return None
                found[axis] = extent if found[axis] == 1 else found[axis]
    return tuple(found)


def spread(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """Steps of an array along the axes of a shape that it is broadcast to, in elements; 0 where it is repeated."""
    missing = len(shape) - layout.ndim
    return (0,) * missing + tuple(
        0 if own == 1 and extent != 1 else step
        for own, step, extent in zip(layout.shape, layout.strides, shape[missing:], strict=True)
    )
