"""Checks of configurations: errors name the field, its value, and what to pass."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.realtime.base.cpu.slices import sliced

__all__ = ["LARGEST", "count", "number", "numbers_of", "rows", "vector", "within"]

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that is finite as f32."""


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


def rows(
    name: str, value: Any, columns: int, *, dtype: str = "f4", empty: Callable[..., NDArray[Any]] = np.empty
) -> NDArray[Any]:
    """A new array ``[rows, columns]`` of finite numbers, row-major.

    Args:
        empty: ``empty(shape, dtype)`` makes it.

    Raises:
        ShapeError: It has another shape.
        TypeError, ValueError: It has other things than finite numbers.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}; pass real numbers, such as an array of f32")
    if array.ndim != 2 or array.shape[1] != columns:
        raise ShapeError(f"{name} has shape {list(array.shape)}; expected [rows, {columns}]")
    made = empty(array.shape, dtype)
    wrong: list[int] = []

    def some(first: int, end: int) -> None:
        with np.errstate(over="ignore"):
            made[first:end] = array[first:end]
        if not np.isfinite(made[first:end]).all():
            wrong.append(first)

    sliced(some, len(made), made.nbytes)
    if wrong:
        first = min(wrong)
        bad = first + int(np.flatnonzero(~np.isfinite(made[first:]).all(1))[0])
        raise ValueError(f"{name}: row {bad} is {made[bad].tolist()}; pass finite numbers")
    return made


def within(name: str, given: NDArray[Any], kind: np.dtype[Any], *, rounds: bool) -> NDArray[Any]:
    """An array as another dtype that has its numbers.

    Args:
        rounds: Floating-point numbers may be rounded, though not to an infinity.

    Raises:
        TypeError: It is of another kind.
        ValueError: The dtype has not one of its numbers; names the first.
    """
    takes = {"b": "b", "u": "iuO", "i": "iuO", "f": "iufO", "c": "iufcO"}[kind.kind]
    if given.dtype.kind not in takes:
        raise TypeError(f"{name} has dtype {given.dtype}; pass numbers of {kind}")
    if kind.kind in "iu" and given.size and not np.can_cast(given.dtype, kind):
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        for at in (int(given.argmin()), int(given.argmax())):
            number = int(given.reshape(-1)[at])
            if not least <= number <= most:
                raise ValueError(f"{name}: number {at} is {number}; {kind} takes from {least} to {most}")
    with np.errstate(over="ignore"):
        try:
            cast = given.astype(kind, copy=False)
        except OverflowError as error:
            raise ValueError(f"{name}: a number is beyond 1.8e308; {kind} has no such number") from error
    if kind.kind in "fc" and (given.dtype.kind not in "fc" or not np.can_cast(given.dtype, kind)):
        bad = np.flatnonzero(_changed(given, cast, rounds))
        if bad.size:
            was, now = given.reshape(-1)[bad[0]], cast.reshape(-1)[bad[0]]
            cure = f"{name} of a wider dtype" if np.isinf(now) else f"np.asarray({name}, {kind.str[1:]!r}) to round it"
            raise ValueError(f"{name}: number {bad[0]} is {was}, and {now} in {kind}; pass {cure}")
    return cast


def numbers_of(name: str, given: Any, kind: np.dtype[Any]) -> NDArray[Any]:
    """What was passed as an array; the numbers of a list are what they were, if need be as objects.

    Raises:
        TypeError: It holds things that are no numbers.
    """
    array = np.asarray(given)
    if isinstance(given, np.ndarray) or array.dtype.kind not in "fO":
        return array
    if array.dtype.kind == "f" and not (np.abs(array) >= 1 << 53).any():
        return array
    whole = np.array(given, object)  # NumPy makes f64 of a list with small and with very large integers
    numbers = [number.item() if isinstance(number, np.generic) else number for number in whole.flat]
    if all(type(number) is int or (type(number) is float and kind.kind in "fc") for number in numbers):
        whole[...] = np.fromiter(numbers, object, len(numbers)).reshape(whole.shape)
        return whole
    if array.dtype.kind == "O":
        raise TypeError(f"{name} holds things that are no numbers of {kind}; pass an array of {kind}")
    return array


def _changed(given: NDArray[Any], cast: NDArray[Any], rounds: bool) -> NDArray[np.bool_]:
    """Which numbers are others after a cast to floating point."""
    if given.dtype.kind == "O":
        pairs = zip(given.flat, np.real(cast).reshape(-1).tolist(), strict=True)
        return np.array([a == a != b and (math.isinf(b) or not rounds or type(a) is int) for a, b in pairs], bool)
    if given.dtype.kind in "iu":  # exact if the bits from the first to the last fit
        bits = np.finfo(cast.dtype).nmant + 1
        if not given.size or (given.min() >= -(1 << bits) and given.max() <= 1 << bits):
            return np.zeros(given.size, bool)
        wide = given.astype(f"{given.dtype.kind}8")
        size = np.where(given < 0, -wide, wide).view("u8")
        last = np.maximum(size & (~size + np.uint64(1)), 1)
        return np.asarray((size // last >= 1 << bits) | ~np.isfinite(cast)).reshape(-1)
    other = np.isfinite(given) & ~np.isfinite(cast) if rounds else (cast != given) & ~np.isnan(given)
    return np.asarray(other).reshape(-1)
