"""MRG32k3a in cuRAND's orders: 81920 lanes side by side, ``2**76`` steps apart; 4096 in the legacy order.

L'Ecuyer, "Good parameters and implementations for combined multiple recursive random number generators", Oper. Res. 47
(1999).
"""

from functools import cache, lru_cache
from typing import Any

import numpy as np

__all__ = ["LEGACY_LANES", "mrg32k3a_words"]

Array = np.ndarray[Any, Any]

LANES = 81920
LEGACY_LANES = 4096
JUMP = 76
MODULI = (4294967087, 4294944443)
FACTORS = ((1403580, 810728), (527612, 1370589))
STRETCH = 1.000000048662
"""From ``1 … MODULI[0]`` to 32 bits, as cuRAND stretches."""


def mrg32k3a_words(seed: int, position: int, count: int, abreast: int = LANES) -> Array:
    """``[count]`` of uint32, of so many lanes ``abreast``."""
    row, lane = divmod(position, abreast)
    rows = -(-(lane + count) // abreast)
    # A short fill needs the lanes from the first to the last only.
    first, last = (lane, lane + count) if rows == 1 else (0, abreast)
    states = [_advanced(lanes[:, first:last].copy(), row, which) for which, lanes in enumerate(_lanes(seed))]
    words: Array = np.empty((rows, last - first), np.uint32)
    for i in range(rows):
        x = _step(states[0], 0, 1)
        y = _step(states[1], 1, 2)
        difference = np.where(x > y, x - y, x + np.uint64(MODULI[0]) - y)
        words[i] = (difference.astype(np.float64) * STRETCH).astype(np.uint64)
    skipped = lane - first
    return words.reshape(-1)[skipped : skipped + count]


def _step(state: Array, which: int, newer: int) -> Array:
    """One step of one of the two recursions; the new number."""
    modulus, (plus, minus) = np.uint64(MODULI[which]), FACTORS[which]
    x: Array = (np.uint64(plus) * state[newer] + np.uint64(minus) * (modulus - state[0])) % modulus
    state[:2] = state[1:]
    state[2] = x
    return x


@lru_cache(maxsize=8)
def _lanes(seed: int) -> tuple[Array, Array]:
    """Where the lanes begin, ``[3, 81920]`` of uint64 for either recursion."""
    states = [[12345] * 3, [12345] * 3]
    if seed:
        a, b = seed & 0xFFFFFFFF ^ 0x55555555, seed >> 32 ^ 0xAAAAAAAA
        states = [[f * 12345 for f in (a, b, a)], [f * 12345 for f in (b, a, b)]]
    found = []
    for which, state in enumerate(states):
        lanes = np.array([[n % MODULI[which]] for n in state], np.uint64)
        for i in range(LANES.bit_length()):
            lanes = np.concatenate([lanes, _times(_power(JUMP + i, which), lanes, which)], axis=1)
        found.append(lanes[:, :LANES].copy())
    return found[0], found[1]


def _advanced(lanes: Array, rows: int, which: int) -> Array:
    for i in range(rows.bit_length()):
        if rows >> i & 1:
            lanes = _times(_power(i, which), lanes, which)
    return lanes


def _times(matrix: Array, vectors: Array, which: int) -> Array:
    """``[3, 3]`` times ``[3, n]``; a product of two residues has 64 bits, so each is reduced before they are added."""
    modulus = np.uint64(MODULI[which])
    products = [sum(matrix[i, k] * vectors[k] % modulus for k in range(3)) % modulus for i in range(3)]
    return np.stack(products)


@cache
def _power(exponent: int, which: int) -> Array:
    """The matrix of ``2**exponent`` steps of one of the two recursions."""
    if exponent:
        half = _power(exponent - 1, which)
        return _times(half, half, which)
    plus, minus = FACTORS[which]
    last = (MODULI[which] - minus, plus, 0) if which == 0 else (MODULI[which] - minus, 0, plus)
    return np.array([(0, 1, 0), (0, 0, 1), last], np.uint64)
