"""A kernel as an outer product of a column and a row, if it is one."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError

__all__ = ["Stage", "outer_product", "stage_of"]

Floats = NDArray[np.float32]
TOLERANCE = 1e-6


class Stage(NamedTuple):
    """One filter of a chain.

    Attributes:
        weights: f32, odd extents.
        column, row: Their outer product is ``weights``; empty if it is no outer product.
    """

    weights: Floats
    column: Floats
    row: Floats


def stage_of(name: str, weights: object) -> Stage:
    """Check a kernel, and separate it.

    Args:
        name: The operand, for errors.
        weights: Odd extents, finite numbers.

    Raises:
        TypeError, ShapeError, ValueError: It is no kernel.
    """
    array = np.asarray(weights)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}; pass real numbers")
    if array.ndim != 2 or not all(extent % 2 for extent in array.shape):
        outer = "; np.outer(row, row) makes one of a row" if array.ndim == 1 and array.size > 1 else ""
        raise ShapeError(f"{name} has shape {list(array.shape)}; pass [k, k] with odd extents, such as [3, 3]{outer}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has numbers that are not finite; pass finite weights")
    return Stage(array.astype("f4"), *outer_product(array))


def outer_product(weights: NDArray[Any]) -> tuple[Floats, Floats]:
    """A column and a row whose outer product this is; empty if there are none.

    Of whole numbers times a power of 2, such as ``[1, 2, 1]`` by itself, both are exact, so sums are, too.
    """
    whole = weights.astype("f8")
    u, sizes, v = np.linalg.svd(whole, full_matrices=False)
    if sizes[1:].max(initial=0.0) > TOLERANCE * sizes[0]:
        return np.empty(0, "f4"), np.empty(0, "f4")
    row = whole[np.abs(whole).max(1).argmax()]
    at = np.where(row, np.abs(row), np.inf).argmin()
    with np.errstate(invalid="ignore"):
        column, row = whole[:, at].astype("f4"), (row / row[at]).astype("f4")
    if np.abs(np.outer(column, row) - whole).max() <= TOLERANCE * np.abs(whole).max():
        return column, row
    size = np.sqrt(sizes[0])
    return (u[:, 0] * size).astype("f4"), (v[0] * size).astype("f4")
