"""Philox (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11) in NumPy.

Philox4x32-10 is written out here, many blocks at once; Philox4x64-10 is NumPy's own.
"""

from typing import Any

import numpy as np

__all__ = ["element_blocks", "generator_at", "philox64_words", "philox_blocks", "philox_words"]

Array = np.ndarray[Any, Any]

LANES = 1 << 16
"""Subsequences that cuRAND's default order lays side by side."""
ELEMENTS = 0x80000000
"""Bit of the fourth counter word that marks the subsequence of an element."""
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox_blocks(counters: tuple[Array, Array, Array, Array], seed: int) -> Array:
    """The blocks of Philox4x32-10 with these counters, ``[n, 4]`` of uint32.

    Args:
        counters: Words of the counters, ``[n]`` of uint64 each, below 2**32; they are overwritten.
        seed: The key.
    """
    c0, c1, c2, c3 = counters
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    p0, p1 = np.empty_like(c0), np.empty_like(c0)
    for _ in range(10):
        np.multiply(c0, _M0, out=p0)
        np.multiply(c2, _M1, out=p1)
        np.right_shift(p1, _HALF, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, np.uint64(k0), out=c0)
        np.right_shift(p0, _HALF, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, np.uint64(k1), out=c2)
        np.bitwise_and(p1, _LOW, out=c1)
        np.bitwise_and(p0, _LOW, out=c3)
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    blocks = np.empty((c0.size, 4), np.uint32)
    for i, word in enumerate((c0, c1, c2, c3)):
        blocks[:, i] = word
    return blocks


def philox_words(seed: int, position: int, count: int) -> Array:
    """Words of the plain stream in cuRAND's order, ``[count]`` of uint32."""
    first, skipped = divmod(position, 4)
    groups = np.arange(first, first + -(-(skipped + count) // 4), dtype=np.uint64)
    rows = groups >> np.uint64(16)
    counters = (rows & _LOW, rows >> _HALF, groups & np.uint64(LANES - 1), np.zeros_like(groups))
    return philox_blocks(counters, seed).reshape(-1)[skipped : skipped + count]


def element_blocks(seed: int, positions: Array, turn: int, second: bool = False) -> Array:
    """The block number ``turn`` of the subsequences of elements, ``[n, 4]`` of uint32.

    Args:
        seed: The key.
        positions: Positions of the elements, uint64.
        turn: Number of the block.
        second: Use the other half of the subsequence, for a second number of the same element.
    """
    blocks = np.full(positions.shape, turn, np.uint64)
    upper = np.full(positions.shape, 0x80000000 if second else 0, np.uint64)
    lanes = positions >> _HALF | np.uint64(ELEMENTS)
    return philox_blocks((blocks, upper, positions & _LOW, lanes), seed)


def generator_at(seed: int, position: int) -> np.random.Generator:
    """NumPy's generator over Philox4x64-10, at a word of 32 bits."""
    block, skipped = divmod(position, 8)
    philox = np.random.Philox(key=np.array([seed, 0], np.uint64), counter=np.array([block, 0, 0, 0], np.uint64))
    generator = np.random.Generator(philox)
    if skipped > 1:
        philox.random_raw(skipped // 2, output=False)
    if skipped % 2:
        generator.random(dtype=np.float32)  # takes the low half of a word of 64 bits
    return generator


def philox64_words(seed: int, position: int, count: int) -> Array:
    """Words of Philox4x64-10, low halves first, ``[count]`` of uint32."""
    odd = position % 2
    raw = generator_at(seed, position - odd).bit_generator.random_raw((odd + count + 1) // 2)
    return raw.astype("<u8", copy=False).view("<u4")[odd : odd + count]
