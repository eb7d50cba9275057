"""Diagonals of matrices."""

from callboard.arrays import statistics
from callboard.arrays.handles import check_array, view
from callboard.core.dtype import DTypeLike
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef

__all__ = ["diagonal", "trace"]


def diagonal(x: GpuRef[Mode], /, *, offset: int = 0) -> GpuRef[Mode]:
    """The view of the diagonals of matrices; ``offset`` above the main one."""
    check_array("linalg.diagonal", "x", x)
    if x.ndim < 2:
        raise ShapeError(f"xp.linalg.diagonal: x is {x.layout!r}; it must have 2 axes or more")
    corner = x[..., max(-offset, 0) :, max(offset, 0) :]
    step = x.strides[-2] + x.strides[-1]
    return view(corner, (*x.shape[:-2], min(corner.shape[-2:])), (*x.strides[:-2], step))


def trace(x: GpuRef[Mode], /, *, offset: int = 0, dtype: DTypeLike | None = None) -> GpuRef[Mode]:
    """The sums along the diagonals of matrices."""
    return statistics.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)
