"""Checks of configurations: errors name the field, its value, and what to pass."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError

__all__ = ["count", "number", "rows", "vector"]

LARGEST = float(np.finfo(np.float32).max)


def number(
    name: str, value: Any, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> float:
    """A number within its range, and finite as f32, which blueprints compute in.

    Raises:
        TypeError: It is no number.
        ValueError: It is not finite, or out of its range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} is {value!r:.80}; it must be a number")
    if not (-LARGEST <= value <= LARGEST and value >= least and value > above and value <= most):
        bounds = [f"at least {least:g}"] * (least > -math.inf) + [f"above {above:g}"] * (above > -math.inf)
        bounds += [f"at most {most:g}"] * (most < math.inf)
        raise ValueError(f"{name} is {value!s:.40}; it must be {' and '.join(bounds or ['finite as f32'])}")
    return float(value)


def count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """A whole number within its range.

    Raises:
        TypeError: It is no int.
        ValueError: It is out of its range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} is {value!r:.80}; it must be an int")
    if value < least or (most is not None and value > most):
        raise ValueError(f"{name} is {value}; it must be at least {least}" + (f" and at most {most}" if most else ""))
    return int(value)


def vector(name: str, value: Any, length: int = 3) -> tuple[float, ...]:
    """``length`` finite numbers.

    Raises:
        ShapeError: It has another length.
        TypeError, ValueError: One is no finite number.
    """
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != length:
        raise ShapeError(f"{name} is {value!r:.80}; pass {length} numbers")
    return tuple(number(f"{name}[{n}]", item) for n, item in enumerate(value))


def rows(name: str, value: Any, columns: int, *, dtype: str = "f4") -> NDArray[Any]:
    """A new array ``[rows, columns]`` of finite numbers.

    Raises:
        ShapeError: It has another shape.
        TypeError, ValueError: It has other things than finite numbers.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}; pass real numbers, such as an array of f32")
    if array.ndim != 2 or array.shape[1] != columns:
        raise ShapeError(f"{name} has shape {list(array.shape)}; expected [rows, {columns}]")
    with np.errstate(over="ignore"):
        array = np.array(array, dtype)
    if not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array).all(1))
        raise ValueError(f"{name}: row {bad[0]} is {array[bad[0]].tolist()}; pass finite numbers")
    return array
