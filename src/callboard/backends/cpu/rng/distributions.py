"""Numbers from words: one word an element for f32, f16 and bf16, two for f64, as the messages describe.

A word of 64 bits is one number of uint64 here, so a function takes an array of uint32 or one of uint64.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.rng.ranges import UNIFORM_BITS, uniform_range

__all__ = [
    "Distribution",
    "above",
    "cauchy",
    "exponential",
    "in_range",
    "inverse_normal",
    "log_inverse_normal",
    "normal_pairs",
    "uniform",
    "unit_53",
]

Array = np.ndarray[Any, Any]
Distribution = Callable[..., Array]
"""``numbers(words, *parameters)``."""
PAIRS = 1 << 14
"""Pairs of normal numbers that are computed at once, in arrays that stay in a core's cache and are reused: fresh memory
for the intermediate steps of a whole slice costs as much in page faults as the numbers themselves."""


def unit_53(words: Array) -> Array:
    """Multiples of 2**-53 in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def above(words: Array) -> Array:
    """In (0, 1]: f64 from words of 64 bits, f32 from words of 32."""
    if words.dtype == np.uint64:
        return ((words >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53
    found: Array = words.astype(np.float32)
    found *= np.float32(2.0**-32)
    found += np.float32(2.0**-33)
    return found


def uniform(dtype: DType) -> Distribution:
    """``numbers(words, low, high)``."""
    bits = UNIFORM_BITS[dtype.name]
    real: Any = np.float64 if dtype is DTYPES["f64"] else np.float32

    def numbers(words: Array, low: float, high: float) -> Array:
        size = 8 * words.dtype.itemsize
        unit = (words >> words.dtype.type(size - bits)).astype(real)
        unit *= real(2.0**-bits)
        return in_range(unit, low, high, dtype)

    return numbers


def in_range(unit: Array, low: float, high: float, dtype: DType) -> Array:
    """Numbers of [0, 1), which are overwritten, as numbers of ``[low, high)``."""
    if (low, high) == (0.0, 1.0):
        return unit
    least, span, top = uniform_range(low, high, dtype)
    unit *= unit.dtype.type(span)
    unit += unit.dtype.type(least)
    np.minimum(unit, unit.dtype.type(top), out=unit)
    return unit


def exponential(words: Array, rate: float) -> Array:
    """``-log(u) / rate``."""
    found: Array = np.log(above(words))
    found *= found.dtype.type(-1.0 / rate)
    return found


def cauchy(words: Array, loc: float, scale: float) -> Array:
    """The inverse of the distribution function, by the distance to the nearer tail: both are resolved alike.

    It is monotone in the word, as quasi-random points need, whose low bits are constant.
    """
    real: Any = np.float64 if words.dtype == np.uint64 else np.float32
    upper = words >> words.dtype.type(8 * words.dtype.itemsize - 1) != 0
    distance = np.where(upper, ~words, words)
    if real is np.float64:
        u = ((distance >> np.uint64(11)).astype(real) + 0.5) * 2.0**-53
    else:
        u = (distance.astype(real) + real(0.5)) * real(2.0**-32)
    found: Array = real(1) / np.tan(u * real(np.pi))
    np.negative(found, out=found, where=~upper)
    found *= real(scale)
    found += real(loc)
    return found


def inverse_normal(words: Array, mean: float, std: float) -> Array:
    """Return normal numbers from the inverse of the distribution function; computed in f64, then rounded."""
    if words.dtype == np.uint64:
        u = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    else:
        u = (words.astype(np.float64) + 0.5) * 2.0**-32
    found: Array = mean + std * special.ndtri(u)
    return found if words.dtype == np.uint64 else found.astype(np.float32)


def log_inverse_normal(words: Array, mean: float, std: float) -> Array:
    """Exponentials of :func:`inverse_normal`."""
    found = inverse_normal(words, mean, std)
    return np.exp(found, out=found)


def normal_pairs(units: Array) -> None:
    """Box and Muller's transform ("A note on the generation of random normal deviates", Ann. Math. Stat. 29, 1958).

    Args:
        units: Numbers in [0, 1), f32 or f64, an even number of them: radius and angle alternate. Overwritten with the
            normal numbers of the sine and of the cosine, alternating.
    """
    pairs = units.reshape(-1, 2).T
    scratch = np.empty((3, min(PAIRS, pairs.shape[1])), units.dtype)
    transform = _by_sine_and_cosine if units.dtype == np.float32 else _by_tangent
    for start in range(0, pairs.shape[1], PAIRS):
        radius, angle = pairs[:, start : start + PAIRS]
        transform(radius, angle, *scratch[:, : radius.size])


def _by_sine_and_cosine(radius: Array, angle: Array, r: Array, a: Array, b: Array) -> None:
    np.add(radius, np.float32(2.0**-33), out=r)  # in (0, 1]
    _length(r)
    np.multiply(angle, np.float32(2 * np.pi), out=a)
    np.sin(a, out=b)
    np.multiply(b, r, out=radius)
    np.cos(a, out=a)
    np.multiply(a, r, out=angle)


def _by_tangent(radius: Array, angle: Array, r: Array, a: Array, square: Array) -> None:
    """Compute normal pairs from the tangent of the half angle, which NumPy vectorises in f64, unlike sine."""
    np.add(radius, 2.0**-53, out=r)  # in (0, 1]
    _length(r)
    np.multiply(angle, np.pi, out=a)
    np.tan(a, out=a)
    np.multiply(a, a, out=square)
    np.add(square, 1.0, out=angle)
    r /= angle
    a *= 2.0
    np.multiply(a, r, out=radius)
    np.subtract(1.0, square, out=square)
    np.multiply(square, r, out=angle)


def _length(r: Array) -> None:
    np.log(r, out=r)
    r *= r.dtype.type(-2)
    np.sqrt(r, out=r)
