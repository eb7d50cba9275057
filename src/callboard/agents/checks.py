"""Checks of vectors from callers and models: shape, finite numbers, sizes whose products stay finite."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.core.ref.hostarrays import refuse_masked

__all__ = ["Floats", "matrix", "positive"]

Floats = NDArray[np.floating[Any]]
LARGEST = 1e18
"""Largest L2 norm of a vector: products and squared distances of such vectors are finite in f32."""
PART = 1 << 15
"""Numbers that are converted to f64 at once: they stay in the cache."""


def matrix(
    name: str, value: Any, *, columns: int | None, rows: int | None = None, unit: bool = False
) -> NDArray[np.float32]:
    """``value`` as f32 ``[rows, columns]``, contiguous; a single vector is one row.

    Args:
        name: The operand, for errors.
        value: Array or nested sequence of real numbers.
        columns: Expected number of columns; None for any, but not 0.
        rows: Expected number of rows; None for any.
        unit: Divide each row by its norm.

    Raises:
        ShapeError: It has another shape.
        ValueError: It has numbers that are not finite, or too large; with ``unit``, a row is zero.
    """
    refuse_masked(value, name, "array.filled(value)")
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name} has dtype {array.dtype}; pass real numbers, such as an array of f32")
    if array.ndim == 1 and array.size:
        array = array[None]
    if array.ndim != 2 or (columns is not None and array.shape[1] != columns) or not array.shape[1]:
        wanted = "[rows, columns]" if columns is None else f"[rows, {columns}]"
        raise ShapeError(f"{name} has shape {list(np.shape(value))}; expected {wanted}, or a single vector")
    if rows is not None and len(array) != rows:
        raise ShapeError(f"{name} has {len(array)} rows for {rows} items; give one row for each item, in their order")
    if array.dtype != np.float32 or not array.flags.c_contiguous:
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, np.float32)
    step, found = max(1, PART // array.shape[1]), np.empty_like(array) if unit else array
    for start in range(0, len(array), step):
        wide = array[start : start + step].astype(np.float64)
        squares = np.vecdot(wide, wide)
        high, low = (squares.max(), squares.min()) if len(squares) > 1 else (squares[0], squares[0])
        if not high < LARGEST**2:  # true for NaN, too
            row = int(np.argmin(squares < LARGEST**2))
            bad = wide[row][~np.isfinite(wide[row])]
            what = f"holds {bad[0]}" if bad.size else f"has norm {squares[row] ** 0.5:.3g}, above {LARGEST:g}"
            raise ValueError(f"{name}: row {start + row} {what}; give finite vectors of moderate size")
        if unit:
            if not low:
                row = start + int(np.argmin(squares))
                raise ValueError(f"{name}: row {row} is zero, which has no direction; leave it out, or use 'ip'")
            wide /= np.sqrt(squares)[:, None]
            found[start : start + step] = wide
    return found


def positive(name: str, value: Any) -> int:
    """``value`` as an int of at least 1.

    Raises:
        TypeError: It is no int.
        ValueError: It is 0 or negative.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} is {value!r}; it must be an int")
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")
    return int(value)
