"""Checks of settings that all blueprints share: whole numbers, and texts that name a choice."""

import operator
from enum import StrEnum
from typing import SupportsIndex

__all__ = ["OneOf", "check_callable", "check_choice", "check_seconds", "check_whole"]


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


def check_seconds(**settings: float | None) -> None:
    """Check settings that are a time, or None.

    Raises:
        ValueError: One is not positive.
    """
    for name, value in settings.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive seconds, but is {value}")


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
