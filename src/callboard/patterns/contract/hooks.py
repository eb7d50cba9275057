"""Checks of what hooks return: functions, methods and objects that the application supplies.

A value is checked where it enters, and the error names the hook, the value, and what is allowed. Otherwise a value of
another kind shows up later, elsewhere, as something unrelated, or not at all.
"""

import inspect
import math
from typing import Any, SupportsFloat

from callboard.actors.errors import returned

__all__ = ["amount", "awaitable", "hashable", "truth"]

EXACT = 1 << 53
"""Integers below it are floats as well."""


def truth(hook: str, value: Any) -> bool:
    """A truth value, Python's or NumPy's.

    A text, None (of a function without ``return``) or an array of several has a truth value, or none, by accident.

    Raises:
        TypeError: It is something else.
    """
    if isinstance(value, bool):
        return value
    if getattr(value, "shape", None) == () and getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return bool(value)
    raise returned(hook, value, "True or False")


def amount(hook: str, value: Any) -> float:
    """A finite number of at least 0, returned by a hook or given in its place.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative, NaN or infinite.
    """
    if type(value) is float and 0.0 <= value < math.inf:
        return value  # nearly all
    if type(value) is int and 0 <= value < EXACT:
        return float(value)
    wrong = f"{hook} is {value!r:.200}, but must be a finite number of at least 0"
    if isinstance(value, bool | str | bytes) or not isinstance(value, SupportsFloat) or getattr(value, "shape", None):
        raise TypeError(wrong)
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(wrong)
    return number


def hashable(hook: str, value: Any) -> Any:
    """A value that can be hashed.

    Raises:
        TypeError: It cannot.
    """
    try:
        hash(value)
    except TypeError:
        raise returned(hook, value, "a value that can be hashed, such as a str, an int, or a tuple of these") from None
    return value


def awaitable(hook: str, value: Any) -> Any:
    """A value that can be awaited.

    Raises:
        TypeError: It cannot.
    """
    if not inspect.isawaitable(value):
        raise returned(hook, value, "something that can be awaited: make it async")
    return value
