"""Checks of settings that all blueprints share: whole numbers, and texts that name a choice."""

import math
import operator
from enum import StrEnum
from typing import SupportsFloat, SupportsIndex

import numpy as np

__all__ = ["OneOf", "check_callable", "check_choice", "check_number", "check_seconds", "check_whole"]


class OneOf(StrEnum):
    """Base of settings that are one of some texts. Members equal their texts; another text is refused with the list."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        *others, last = (f'"{member}"' for member in cls)
        raise ValueError(f"{value!r} is not a valid {cls.__name__}: use {', '.join(others)} or {last}")


def check_whole(least: int, **settings: object) -> None:
    """Check settings that are whole numbers.

    Raises:
        TypeError: One is not an integer.
        ValueError: One is below ``least``.
    """
    for name, value in settings.items():
        if not isinstance(value, SupportsIndex):  # NumPy's integers, too
            raise TypeError(f"{name} must be an integer, but is {value!r}")
        if operator.index(value) < least:
            raise ValueError(f"{name} must be at least {least}, but is {value}")


def check_number(name: str, value: object, what: str = "a positive number", *, finite: bool = False) -> float:
    """A setting that is a positive number, as a float.

    Args:
        name: Name of the setting.
        value: The value.
        what: What it must be, for errors.
        finite: Infinity is refused.

    Raises:
        TypeError: It is no number: a text, a truth value, a complex number ...
        ValueError: It is not positive, or not finite.
    """
    if not isinstance(value, SupportsFloat) or isinstance(value, bool | np.bool_) or np.ndim(value):  # type: ignore[arg-type]
        raise TypeError(f"{name} must be {what}, but is {value!r:.80}, of type {type(value).__name__}: pass a float")
    try:
        number = float(value)
    except OverflowError:
        number = value = math.inf
    if not number > 0 or (finite and number == math.inf):
        raise ValueError(f"{name} must be {what}, but is {value}")
    return number


def check_seconds(**settings: float | None) -> None:
    """Check settings that are a time, or None.

    Raises:
        TypeError: One is no number.
        ValueError: One is not positive.
    """
    for name, value in settings.items():
        if value is not None:
            check_number(name, value, "positive seconds")


def check_choice(name: str, given: object, *choices: str) -> None:
    """Check a setting that is one of some texts.

    Raises:
        ValueError: It is another one.
    """
    if given not in choices:
        *others, last = (f'"{choice}"' for choice in choices)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}, but is {given!r}")


def check_callable(**hooks: object) -> None:
    """Check settings that are functions or None.

    Raises:
        TypeError: One is neither.
    """
    for name, given in hooks.items():
        if given is not None and not callable(given):
            raise TypeError(f"{name} is {given!r}, which cannot be called")
