"""Lanes of XORWOW; their layout is described in :mod:`callboard.kernel.rng.xorwow`."""

from typing import Any

import numpy as np

from callboard.backends.cpu.rng.lanes import LaneState
from callboard.kernel.rng.xorwow import JUMP, LANES, SEEDS_APART, STEP, power, times

__all__ = ["Xorwow"]

Array = np.ndarray[Any, Any]


class Xorwow:
    """Lanes of the generator: five words and a counter each.

    Args:
        seeded: True for the order ``seeded``.
    """

    count = LANES

    def __init__(self, seeded: bool = False) -> None:
        self._seeded = seeded

    def begin(self, seed: int, row: int, first: int, last: int) -> LaneState:
        """The lanes from ``first`` to ``last - 1`` of a seed, after ``row`` steps."""
        words, counters = _of_seeds(seed, range(first, last) if self._seeded else range(1))
        words = _moved(words, row, 0)
        if not self._seeded:
            words = _moved(words, first, JUMP)
            for i in range((last - first - 1).bit_length()):
                words = np.concatenate([words, times(power(JUMP + i), words[:, : last - first - (1 << i)])], axis=1)
        counters = np.broadcast_to(counters + np.uint32(row * STEP & 0xFFFFFFFF), last - first).copy()
        return LaneState((*map(np.copy, words[:, : last - first]), counters))  # each is dropped by itself

    def step(self, state: LaneState) -> tuple[LaneState, Array]:
        """The lanes one step on, and the words of that step."""
        *words, counters = state.parts
        t = words[0] ^ words[0] >> np.uint32(2)
        last = words[4]
        new = last ^ last << np.uint32(4) ^ t ^ t << np.uint32(1)
        counters = counters + np.uint32(STEP)
        return LaneState((*words[1:], new, counters)), new + counters


def _of_seeds(seed: int, lanes: range) -> tuple[Array, Array]:
    """Initial states of lanes with seeds of their own, ``[5, n]`` of uint32, and their counters."""
    seeds = np.uint64(seed) + np.arange(lanes.start, lanes.stop, dtype=np.uint64) * np.uint64(SEEDS_APART)
    low, high = (seeds & np.uint64(0xFFFFFFFF)).astype(np.uint32), (seeds >> np.uint64(32)).astype(np.uint32)
    a, b = np.uint32(1099087573) * (low ^ np.uint32(0xAAD26B49)), np.uint32(2591861531) * (high ^ np.uint32(0xF7DCEFDD))
    return np.stack([123456789 + a, 362436069 ^ a, 521288629 + b, 88675123 ^ b, 5783321 + a]), 6615241 + a + b


def _moved(words: Array, times_over: int, exponent: int) -> Array:
    """``times_over * 2**exponent`` steps on."""
    for i in range(times_over.bit_length()):
        if times_over >> i & 1:
            words = times(power(exponent + i), words)
    return words
