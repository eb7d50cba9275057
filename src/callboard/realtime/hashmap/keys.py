"""Keys and values between what callers pass and what is in the table. Pure."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.realtime.hashmap.config import HashMapConfig

__all__ = ["KEYS", "Words", "among", "firsts", "keys_of", "values_of", "words_of"]

Words = NDArray[np.uint64]

KEYS = ("u4", "u8", "i4", "i8", "f4", "f8")


def words_of(keys: Any, config: HashMapConfig) -> Words:
    """Keys as u64 ``[n, words]``; equal keys, and no others, have equal words.

    Raises:
        ShapeError, TypeError, ValueError: They are no keys of this map; names the first that is none.
    """
    if isinstance(config.key, int):
        return _bytes(keys, config.key, config.words)
    kind = np.dtype(config.key)
    given = _array(keys, kind)
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
    own = np.array(cast, order="C")  # the caller may write other keys into its array
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


def values_of(values: Any, count: int, config: HashMapConfig) -> NDArray[Any]:
    """Values as they are stored, ``[count, width]``; a single one is for all keys.

    Raises:
        ShapeError, TypeError, ValueError: They are no values of this map.
    """
    kind, (stored, width) = np.dtype(config.value), config.stored
    given = _array(values, kind)
    if given.shape not in (config.shape, (count, *config.shape)):
        one = f" of {list(config.shape)}" if config.shape else ""
        raise ShapeError(f"values has shape {list(given.shape)} for {count} keys; pass a value{one} for each, or one")
    cast = np.broadcast_to(
        within("values", given, kind, rounds=True) if count else np.zeros((), kind), (count, *config.shape)
    )
    return np.array(cast, order="C").view(stored).reshape(count, width)


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
        raise TypeError(f"{name} has dtype {given.dtype}; this map takes {kind}")
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


def _array(given: Any, kind: np.dtype[Any]) -> NDArray[Any]:
    """What was passed as an array; the numbers of a list are what they were, if need be as objects."""
    array = np.asarray(given)
    if isinstance(given, np.ndarray) or array.dtype.kind not in "fO":
        return array
    if array.dtype.kind == "f" and not (np.abs(array) >= 1 << 53).any():
        return array
    whole = np.array(given, object)  # NumPy makes f64 of a list with small and with very large integers
    numbers = [number.item() if isinstance(number, np.generic) else number for number in whole.flat]
    if all(type(number) is int or (type(number) is float and kind.kind in "fc") for number in numbers):
        whole.flat = numbers
        return whole
    if array.dtype.kind == "O":
        raise TypeError(f"keys or values hold things that are no numbers of {kind}; pass an array of {kind}")
    return array


def _changed(given: NDArray[Any], cast: NDArray[Any], rounds: bool) -> NDArray[np.bool_]:
    """Which numbers are others after a cast to floating point."""
    if given.dtype.kind == "O":
        pairs = zip(given.flat, cast.real.reshape(-1).tolist(), strict=True)
        return np.array([a == a != b and (math.isinf(b) or not rounds or type(a) is int) for a, b in pairs], bool)
    if given.dtype.kind in "iu":  # exact if the bits from the first to the last fit
        bits = np.finfo(cast.dtype).nmant + 1
        if not given.size or (given.min() >= -(1 << bits) and given.max() <= 1 << bits):
            return np.zeros(given.size, bool)
        size = (
            np.abs(given).astype("u8") if given.dtype.kind == "u" else np.where(given < 0, -given, given).astype("u8")
        )
        last = np.maximum(size & (~size + np.uint64(1)), 1)
        return np.asarray((size // last >= 1 << bits) | ~np.isfinite(cast)).reshape(-1)
    other = np.isfinite(given) & ~np.isfinite(cast) if rounds else (cast != given) & ~np.isnan(given)
    return np.asarray(other).reshape(-1)


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
