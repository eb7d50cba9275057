"""Numbers by rejection: every element tries its own subsequence until a try is accepted; all elements at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from callboard.backends.cpu.rng.distributions import above, unit_53
from callboard.backends.cpu.rng.philox import element_blocks

__all__ = ["beta", "gamma", "integers", "poisson"]

Array = np.ndarray[Any, Any]

INVERSION_BELOW = 10.0
"""Rate below which Poisson numbers are found by inversion."""
INVERSION_MOST = 128
"""Larger than any number that inversion can meet: its probability is below 2**-53 long before."""


def integers(words: Array, seed: int, positions: Array, low: int, span: int) -> Array:
    """``low`` plus numbers below ``span``, 0 standing for all 2**64, modulo 2**64 or 2**32.

    Args:
        words: Words of the plain stream, uint32 or uint64, one per element.
        seed: The key.
        positions: Positions of the elements, uint64.
        low: Lower bound, converted to the dtype of the words.
        span: Number of possible values; at most ``2**32`` for words of 32 bits.
    """
    kind: Any = words.dtype.type
    bits = 8 * words.dtype.itemsize
    size = span or 1 << bits
    threshold = (1 << bits) % size
    high, rest = _product(words, size)
    wrong = np.flatnonzero(rest < kind(threshold)) if threshold else np.empty(0, np.intp)
    turn = 0
    while wrong.size:
        tries = element_blocks(seed, positions[wrong], turn).view(words.dtype)
        found, rest = _product(tries, size)
        accepted = rest >= kind(threshold)
        some, first = accepted.any(axis=1), accepted.argmax(axis=1)
        high[wrong[some]] = found[some, first[some]]
        wrong = wrong[~some]
        turn += 1
    high += kind(low)
    return high


def _product(words: Array, size: int) -> tuple[Array, Array]:
    """The two halves of ``words * size``, each of the words' type."""
    if words.dtype == np.uint32:
        product = words.astype(np.uint64) * np.uint64(size)
        return (product >> np.uint64(32)).astype(np.uint32), product.astype(np.uint32)
    if size == 1 << 64:
        return words.copy(), np.zeros_like(words)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low, high = words & mask, words >> half
    size_low, size_high = np.uint64(size & 0xFFFFFFFF), np.uint64(size >> 32)
    middle = high * size_low + (low * size_low >> half)
    other = low * size_high + (middle & mask)
    return high * size_high + (middle >> half) + (other >> half), words * np.uint64(size)


def poisson(seed: int, positions: Array, rate: float) -> Array:
    """f64."""
    if rate < INVERSION_BELOW:
        u = unit_53(element_blocks(seed, positions, 0).view(np.uint64)[:, 0])
        term = np.exp(-rate)
        total, found = term, np.zeros(u.shape)
        for k in range(1, INVERSION_MOST):
            larger = u >= total
            if not larger.any():
                break
            found[larger] = k
            term = term * (rate / k)
            total = total + term
        return found
    root, log_rate = np.sqrt(rate), np.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha, v_r = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2.0)

    def attempt(turn: int, where: Array) -> tuple[Array, Array]:
        words = element_blocks(seed, where, turn).view(np.uint64)
        u, v = unit_53(words[:, 0]) - 0.5, unit_53(words[:, 1])
        us = 0.5 - np.abs(u)
        k = np.floor((2.0 * a / us + b) * u + rate + 0.43)
        sure = (us >= 0.07) & (v <= v_r)
        never = (k < 0) | ((us < 0.013) & (v > us))
        left = np.log(v) + np.log(inverse_alpha) - np.log(a / (us * us) + b)
        return k, sure | ~never & (left <= k * log_rate - rate - special.gammaln(k + 1.0))

    return _until_accepted(attempt, positions)


def gamma(seed: int, positions: Array, shape: float, scale: float) -> Array:
    """f64."""
    return np.exp(_log_gamma(seed, positions, shape, False)) * scale


def beta(seed: int, positions: Array, alpha: float, beta: float) -> Array:
    """f64."""
    difference = _log_gamma(seed, positions, beta, True) - _log_gamma(seed, positions, alpha, False)
    found: Array = 1.0 / (1.0 + np.exp(difference))
    return found


def _log_gamma(seed: int, positions: Array, shape: float, second: bool) -> Array:
    """Logarithms of gamma numbers of scale 1, which are still numbers where the gamma numbers are too small."""
    d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)

    def attempt(turn: int, where: Array) -> tuple[Array, Array]:
        first = element_blocks(seed, where, 2 * turn, second).view(np.uint64)
        other = element_blocks(seed, where, 2 * turn + 1, second).view(np.uint64)
        x = np.sqrt(-2.0 * np.log(above(first[:, 0]))) * np.cos(2.0 * np.pi * unit_53(first[:, 1]))
        v = (1.0 + c * x) ** 3
        log_v = np.log(np.where(v > 0, v, 1.0))
        accepted = (v > 0) & (np.log(above(other[:, 0])) < 0.5 * x * x + d - d * v + d * log_v)
        found = np.log(d) + log_v
        if shape < 1.0:
            found = found + np.log(above(other[:, 1])) / shape
        return found, accepted

    return _until_accepted(attempt, positions)


def _until_accepted(attempt: Callable[[int, Array], tuple[Array, Array]], positions: Array) -> Array:
    """``attempt(turn, positions) -> (numbers, accepted)`` until every element has its number."""
    found = np.empty(positions.shape)
    waiting = np.arange(positions.size)
    turn = 0
    while waiting.size:
        numbers, accepted = attempt(turn, positions[waiting])
        found[waiting[accepted]] = numbers[accepted]
        waiting = waiting[~accepted]
        turn += 1
    return found
