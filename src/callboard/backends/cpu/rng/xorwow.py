"""Words of XORWOW; :mod:`callboard.kernel.rng.xorwow` says how its lanes lie."""

from functools import lru_cache
from typing import Any

import numpy as np

from callboard.kernel.rng.xorwow import JUMP, LANES, SEEDS_APART, STEP, power, times

__all__ = ["xorwow_words"]

Array = np.ndarray[Any, Any]


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
            lanes = np.concatenate([lanes, times(power(JUMP + i), lanes)], axis=1)
    return lanes, 6615241 + a + b


def _advanced(lanes: Array, rows: int) -> Array:
    for i in range(rows.bit_length()):
        if rows >> i & 1:
            lanes = times(power(i), lanes)
    return lanes
