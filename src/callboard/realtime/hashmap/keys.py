"""Keys and values between what callers pass and what is in the table. Pure."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.realtime.base.checks import numbers_of, within
from callboard.realtime.hashmap.config import HashMapConfig

__all__ = ["KEYS", "Words", "among", "firsts", "keys_of", "values_of", "words_of"]

Words = NDArray[np.uint64]

Copied = Callable[[NDArray[Any]], NDArray[Any]]

KEYS = ("u4", "u8", "i4", "i8", "f4", "f8")


def _copied(array: NDArray[Any]) -> NDArray[Any]:
    return np.array(array, order="C")


def words_of(keys: Any, config: HashMapConfig, copied: Copied = _copied) -> Words:
    """Keys as u64 ``[n, words]``; equal keys, and no others, have equal words.

    Args:
        copied: Makes a row-major copy, since the caller may write other numbers into its array.

    Raises:
        ShapeError, TypeError, ValueError: They are no keys of this map; names the first that is none.
    """
    if isinstance(config.key, int):
        return _bytes(keys, config.key, config.words)
    kind = np.dtype(config.key)
    given = numbers_of("keys", keys, kind)
    if given.ndim != 1:
        raise ShapeError(f"keys has shape {list(given.shape)}; pass a list, or an array [n] of {kind}")
    if not given.size:
        return np.zeros((0, 1), "u8")
    cast = within("keys", given, kind, rounds=False)
    if kind.kind == "f":
        bad = np.flatnonzero(np.isnan(cast))
        if bad.size:
            raise ValueError(f"keys[{bad[0]}] is nan, which equals no key; leave it out")
        cast = cast + kind.type(0)  # -0.0 is 0.0
    own = copied(cast)
    return own.view(f"u{kind.itemsize}").astype("u8", copy=False)[:, None]


def _bytes(keys: Any, size: int, words: int) -> Words:
    if isinstance(keys, list | tuple) and all(isinstance(key, bytes) for key in keys):
        wrong = next((n for n, key in enumerate(keys) if len(key) != size), None)
        if wrong is not None:
            raise ShapeError(f"keys[{wrong}] has {len(keys[wrong])} bytes; keys of this map have {size}")
        keys = np.frombuffer(b"".join(keys), "u1").reshape(-1, size)
    given = np.asarray(keys)
    if given.dtype != np.uint8:
        raise TypeError(f"keys has dtype {given.dtype}; pass bytes of length {size}, or an array [n, {size}] of u1")
    if given.ndim != 2 or given.shape[1] != size:
        raise ShapeError(f"keys has shape {list(given.shape)}; expected [n, {size}]")
    padded = np.zeros((len(given), 8 * words), "u1")
    padded[:, :size] = given
    return padded.view("u8")


def keys_of(words: Words, config: HashMapConfig) -> NDArray[Any]:
    """The keys whose words these are."""
    if isinstance(config.key, int):
        return np.ascontiguousarray(words).view("u1")[:, : config.key].copy()
    kind = np.dtype(config.key)
    found: NDArray[Any] = words[:, 0].astype(f"u{kind.itemsize}").view(kind)
    return found


def values_of(values: Any, count: int, config: HashMapConfig, copied: Copied = _copied) -> NDArray[Any]:
    """Values as they are stored, ``[count, width]``; a single one is for all keys.

    Raises:
        ShapeError, TypeError, ValueError: They are no values of this map.
    """
    kind, (stored, width) = np.dtype(config.value), config.stored
    given = numbers_of("values", values, kind)
    if given.shape not in (config.shape, (count, *config.shape)):
        one = f" of {list(config.shape)}" if config.shape else ""
        raise ShapeError(f"values has shape {list(given.shape)} for {count} keys; pass a value{one} for each, or one")
    cast = np.broadcast_to(
        within("values", given, kind, rounds=True) if count else np.zeros((), kind), (count, *config.shape)
    )
    return copied(cast).view(stored).reshape(count, width)


def firsts(words: Words) -> NDArray[np.intp]:
    """Where each key is for the first time."""
    if words.shape[1] == 1:
        return np.unique(words[:, 0], return_index=True)[1]
    return np.unique(words, axis=0, return_index=True)[1]


def among(words: Words, others: Words) -> NDArray[np.bool_]:
    """Which keys are among others."""
    whole = np.dtype((np.void, 8 * words.shape[1]))
    one, other = (np.ascontiguousarray(some).view(whole)[:, 0] for some in (words, others))
    return np.isin(one, other)
