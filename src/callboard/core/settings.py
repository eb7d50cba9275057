"""Values of settings: ``converted`` returns a value of the declared type, or raises a ``TypeError``."""

import functools
import operator
import threading
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np

from callboard.core.dtype import DTYPES, DTypeLike, as_dtype

__all__ = ["convert", "converted", "plain", "stored", "words_of"]

_NAMES: Any = Literal[tuple(DTYPES)]
_LIKE = frozenset(get_args(DTypeLike))
_lock = threading.RLock()  # converting can run code of the type, which may convert


def convert(value: Any, hint: Any) -> Any:
    """The value as the type: msgspec's function, for types that several threads may be the first to use.

    msgspec describes a type to itself when it is first used. Two threads that do so at the same time crash the
    interpreter: the hosts of two devices in one process, for example, which read a first message of one kind.

    Raises:
        msgspec.ValidationError: It does not fit.
    """
    with _lock:
        return msgspec.convert(value, hint)


def stored(hint: Any) -> Any:
    """The type of a setting in a message, on the wire and in a plan's key: a dtype is stored as its name.

    A setting that is declared ``DTypeLike`` may be any dtype, one declared ``Annotated[DTypeLike, Literal["i32", …]]``
    those words only.
    """
    if get_origin(hint) in (Union, types.UnionType):
        parts = get_args(hint)
        others = [part for part in parts if part not in _LIKE] if set(parts) >= _LIKE else parts
        return functools.reduce(operator.or_, [_NAMES] * (len(others) < len(parts)) + [stored(part) for part in others])
    if get_origin(hint) is Annotated and get_args(hint)[0] == DTypeLike:
        return get_args(hint)[1]
    return hint


def converted(name: str, value: Any, hint: Any) -> Any:
    """The value in the type of ``hint``, which is :func:`stored`.

    NumPy's numbers and lists of them are taken, too, and for a word that names a dtype whatever else names it.

    Raises:
        TypeError: The value does not fit; names the words that fit, or the type.
    """
    try:
        return convert(plain(value), hint)
    except msgspec.ValidationError as e:
        words = words_of(hint)
        if not DTYPES.keys().isdisjoint(words):
            named = _dtype_name(value)
            if named is not None and named in words:
                return named
        why = str(e).replace("null", "None").replace("array", "tuple").replace("at `$", f"at `{name}")
        if words:
            why = f"use one of {', '.join(map(repr, words))}"
        raise TypeError(f"{name} = {value!r}: {why}") from None


def plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's numbers and tuples, also within a sequence."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, tuple | list) else value


def _dtype_name(value: Any) -> str | None:
    try:
        return as_dtype(value).name
    except TypeError:
        return None


def words_of(hint: Any) -> tuple[Any, ...]:
    """The values of a setting that takes only certain ones: for ``Literal["a", "b"] | None``, all three."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [words_of(part) for part in get_args(hint)]
        return tuple(word for part in parts for word in part) if all(parts) else ()
    if hint is type(None):
        return (None,)
    return get_args(hint) if get_origin(hint) is Literal else ()
