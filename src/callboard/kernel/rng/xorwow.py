"""XORWOW (Marsaglia, "Xorshift RNGs", J. Stat. Softw. 8, 2003) in cuRAND's orders: 4096 lanes side by side.

Lane ``l`` begins ``l * 2**67`` steps into the sequence, in the seeded order with the seed ``seed + 3133713 * l``; word
``i`` is step ``i // 4096`` of lane ``i % 4096``. The state is five words, linear over GF(2), and a counter: far steps
are products with powers of the step's matrix.
"""

from functools import cache
from typing import Any

import numpy as np

__all__ = ["JUMP", "LANES", "SEEDS_APART", "STEP", "power", "times"]

Array = np.ndarray[Any, Any]

LANES = 4096
JUMP = 67
"""Base 2 logarithm of the distance between lanes."""
BITS = 160
STEP = 362437
SEEDS_APART = 3133713


def times(matrix: Array, vectors: Array) -> Array:
    """Matrix, as the images of the unit vectors ``[5, 160]``, times vectors ``[5, n]``, over GF(2)."""
    product = np.zeros_like(vectors)
    for bit in range(BITS):
        word, place = divmod(bit, 32)
        mask = np.uint32(0) - (vectors[word] >> np.uint32(place) & np.uint32(1))
        product ^= matrix[:, bit, None] & mask
    return product


@cache
def power(exponent: int) -> Array:
    """The matrix of ``2**exponent`` steps."""
    if exponent:
        half = power(exponent - 1)
        return times(half, half)
    unit = np.zeros((5, BITS), np.uint32)
    for bit in range(BITS):
        unit[bit // 32, bit] = np.uint32(1) << np.uint32(bit % 32)
    t = unit[0] ^ unit[0] >> np.uint32(2)
    return np.stack([*unit[1:], unit[4] ^ unit[4] << np.uint32(4) ^ t ^ t << np.uint32(1)])
