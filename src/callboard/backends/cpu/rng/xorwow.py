"""XORWOW (Marsaglia, "Xorshift RNGs", J. Stat. Softw. 8, 2003) in cuRAND's orders: 4096 lanes side by side.

Lane ``l`` begins ``l * 2**67`` steps into the sequence, in the seeded order with the seed ``seed + 3133713 * l``; word
``i`` is step ``i // 4096`` of lane ``i % 4096``. The state is five words, linear over GF(2), and a counter: far steps
are products with powers of the step's matrix.
"""

from functools import cache, lru_cache
from typing import Any

import numpy as np

__all__ = ["xorwow_words"]

Array = np.ndarray[Any, Any]

LANES = 4096
JUMP = 67
"""Base 2 logarithm of the distance between lanes."""
BITS = 160
STEP = 362437
SEEDS_APART = 3133713


def xorwow_words(seed: int, position: int, count: int, seeded: bool = False) -> Array:
    """``[count]`` of uint32; ``seeded``: in the order of that name."""
    row, lane = divmod(position, LANES)
    rows = -(-(lane + count) // LANES)
    lanes, counters = _beginning(seed, seeded)
    state = list(_advanced(lanes, row))
    counters = counters + np.uint32(row * STEP & 0xFFFFFFFF)
    words = np.empty((rows, LANES), np.uint32)
    for i in range(rows):
        t = state[0] ^ state[0] >> np.uint32(2)
        last = state[4]
        state = [*state[1:], last ^ last << np.uint32(4) ^ t ^ t << np.uint32(1)]
        counters += np.uint32(STEP)
        np.add(state[4], counters, out=words[i])
    return words.reshape(-1)[lane : lane + count]


@lru_cache(maxsize=16)
def _beginning(seed: int, seeded: bool) -> tuple[Array, Array]:
    """Where the lanes begin: ``[5, 4096]`` of uint32, and their counters, one for all where all have one seed."""
    seeds = np.uint64(seed) + np.arange(LANES if seeded else 1, dtype=np.uint64) * np.uint64(SEEDS_APART)
    low, high = (seeds & np.uint64(0xFFFFFFFF)).astype(np.uint32), (seeds >> np.uint64(32)).astype(np.uint32)
    a, b = np.uint32(1099087573) * (low ^ np.uint32(0xAAD26B49)), np.uint32(2591861531) * (high ^ np.uint32(0xF7DCEFDD))
    words = (123456789 + a, 362436069 ^ a, 521288629 + b, 88675123 ^ b, 5783321 + a)
    lanes = np.stack(words)
    if not seeded:
        for i in range(LANES.bit_length() - 1):
            lanes = np.concatenate([lanes, _times(_power(JUMP + i), lanes)], axis=1)
    return lanes, 6615241 + a + b


def _advanced(lanes: Array, rows: int) -> Array:
    for i in range(rows.bit_length()):
        if rows >> i & 1:
            lanes = _times(_power(i), lanes)
    return lanes


def _times(matrix: Array, vectors: Array) -> Array:
    """Matrix, as the images of the unit vectors ``[5, 160]``, times vectors ``[5, n]``, over GF(2)."""
    product = np.zeros_like(vectors)
    for bit in range(BITS):
        word, place = divmod(bit, 32)
        mask = np.uint32(0) - (vectors[word] >> np.uint32(place) & np.uint32(1))
        product ^= matrix[:, bit, None] & mask
    return product


@cache
def _power(exponent: int) -> Array:
    """The matrix of ``2**exponent`` steps."""
    if exponent:
        half = _power(exponent - 1)
        return _times(half, half)
    unit = np.zeros((5, BITS), np.uint32)
    for bit in range(BITS):
        unit[bit // 32, bit] = np.uint32(1) << np.uint32(bit % 32)
    t = unit[0] ^ unit[0] >> np.uint32(2)
    return np.stack([*unit[1:], unit[4] ^ unit[4] << np.uint32(4) ^ t ^ t << np.uint32(1)])
