"""What callers may pass for a setting: ``converted`` gives it the type that was declared, or says what is wrong."""

import types
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np

__all__ = ["converted", "plain", "words_of"]


def converted(name: str, value: Any, hint: Any) -> Any:
    """The value as ``hint`` wants it; NumPy's numbers and lists of them are taken, too.

    Raises:
        TypeError: It is no such thing; names the words that it may be, or the type.
    """
    try:
        return msgspec.convert(plain(value), hint)
    except msgspec.ValidationError as e:
        why = str(e).replace("null", "None").replace("array", "tuple").replace("at `$", f"at `{name}")
        if words := words_of(hint):
            why = f"use one of {', '.join(map(repr, words))}"
        raise TypeError(f"{name} = {value!r}: {why}") from None


def plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's numbers and tuples, also within a sequence."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, tuple | list) else value


def words_of(hint: Any) -> tuple[Any, ...]:
    """What a setting may be where only certain values are right: of ``Literal["a", "b"] | None``, all three."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [words_of(part) for part in get_args(hint)]
        return tuple(word for part in parts for word in part) if all(parts) else ()
    if hint is type(None):
        return (None,)
    return get_args(hint) if get_origin(hint) is Literal else ()
