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
    # one table per byte position: the images of all 256 values of that byte
    images = matrix.T.reshape(BITS // 8, 8, 5)
    tables = np.zeros((BITS // 8, 256, 5), np.uint32)
    for bit in range(8):
        tables[:, 1 << bit : 2 << bit] = tables[:, : 1 << bit] ^ images[:, bit, None]
    values = np.ascontiguousarray(vectors.T, "<u4").view(np.uint8)
    product = tables[0][values[:, 0]]
    for place in range(1, BITS // 8):
        product ^= tables[place][values[:, place]]
    return np.ascontiguousarray(product.T)


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
