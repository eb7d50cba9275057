"""Sobol points in NumPy, plain and scrambled."""

from functools import lru_cache
from typing import Any

import numpy as np

from callboard.backends.cpu.rng.philox import philox_blocks
from callboard.kernel.rng.sobol import SCRAMBLING, point_table

__all__ = ["sobol_words"]

Array = np.ndarray[Any, Any]

BLOCK_BITS = 10
"""Base 2 logarithm of how many points are made of one another before the next table is."""


def sobol_words(scrambled: bool, bits: int, seed: int, position: int, count: int, dimensions: int) -> Array:
    """Points ``position`` to ``position + count - 1``: ``[count, dimensions]`` of uint64, integers of ``bits`` bits."""
    table, shift = _scrambled(seed, dimensions, bits) if scrambled else (point_table(dimensions, bits), None)
    size = 1 << BLOCK_BITS
    low = np.zeros((1, dimensions), np.uint64) if shift is None else shift[None].copy()
    for row in table[: min(BLOCK_BITS, max(position + count - 1, 0).bit_length())]:
        low = np.concatenate([low, low ^ row])
    points = np.empty((count, dimensions), np.uint64)
    at = 0
    while at < count:
        block, inside = divmod(position + at, size)
        taken = min(size - inside, count - at)
        base = np.zeros(dimensions, np.uint64)
        for bit in range(block.bit_length()):
            if block >> bit & 1:
                base ^= table[BLOCK_BITS + bit]
        np.bitwise_xor(low[inside : inside + taken], base, out=points[at : at + taken])
        at += taken
    return points


@lru_cache(maxsize=8)
def _scrambled(seed: int, dimensions: int, bits: int) -> tuple[Array, Array]:
    """The table under a random lower triangular matrix with ones on its diagonal, one a dimension, and the shift."""
    blocks = bits // 2 + 1
    number, dimension = np.divmod(np.arange(blocks * dimensions, dtype=np.uint64), np.uint64(dimensions))
    zeros = np.zeros_like(number)
    drawn = philox_blocks((number, zeros, dimension, np.full_like(number, SCRAMBLING)), seed)
    rows = drawn.view(np.uint64).reshape(blocks, dimensions, 2).swapaxes(1, 2).reshape(-1, dimensions)
    keep = np.uint64((1 << bits) - 1)
    table = point_table(dimensions, bits)
    scrambled = np.zeros_like(table)
    for row in range(bits):
        place = bits - 1 - row
        diagonal = 1 << place
        above = (1 << bits) - 2 * diagonal
        matrix_row = rows[row] & np.uint64(above) | np.uint64(diagonal)
        parity = np.bitwise_count(table & matrix_row).astype(np.uint64) & np.uint64(1)
        scrambled |= parity << np.uint64(place)
    return scrambled, rows[bits] & keep
