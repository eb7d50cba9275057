"""Lanes of MRG32k3a in cuRAND's orders: 81920 side by side, ``2**76`` steps apart; 4096 in the legacy order.

L'Ecuyer, "Good parameters and implementations for combined multiple recursive random number generators", Oper. Res. 47
(1999).
"""

from functools import cache
from typing import Any

import numpy as np

from callboard.backends.cpu.rng.lanes import LaneState

__all__ = ["LANES", "LEGACY_LANES", "Mrg32k3a"]

Array = np.ndarray[Any, Any]

LANES = 81920
LEGACY_LANES = 4096
JUMP = 76
MODULI = (4294967087, 4294944443)
FACTORS = ((1403580, 810728), (527612, 1370589))
STRETCH = 1.000000048662
"""From ``1 … MODULI[0]`` to 32 bits, as cuRAND stretches."""


class Mrg32k3a:
    """Lanes of the generator: three numbers of either recursion each.

    Args:
        count: Number of lanes.
    """

    def __init__(self, count: int = LANES) -> None:
        self.count = count

    def begin(self, seed: int, row: int, first: int, last: int) -> LaneState:
        """The lanes from ``first`` to ``last - 1`` of a seed, after ``row`` steps."""
        states = [[12345] * 3, [12345] * 3]
        if seed:
            a, b = seed & 0xFFFFFFFF ^ 0x55555555, seed >> 32 ^ 0xAAAAAAAA
            states = [[f * 12345 for f in (a, b, a)], [f * 12345 for f in (b, a, b)]]
        parts: list[Array] = []
        for which, state in enumerate(states):
            lanes = np.array([[n % MODULI[which]] for n in state], np.uint32)
            lanes = _moved(_moved(lanes, row, 0, which), first, JUMP, which)
            for i in range((last - first - 1).bit_length()):
                more = _times(_power(JUMP + i, which), lanes[:, : last - first - (1 << i)], which)
                lanes = np.concatenate([lanes, more], axis=1)
            parts.extend(map(np.copy, lanes[:, : last - first]))  # each is dropped by itself
        return LaneState(tuple(parts))

    def step(self, state: LaneState) -> tuple[LaneState, Array]:
        """The lanes one step on, and the words of that step."""
        x0, x1, x2, y0, y1, y2 = state.parts
        x, y = _next(x0, x1, 0), _next(y0, y2, 1)
        difference = x - y + np.uint32(MODULI[0]) * (x <= y)  # in 32 bits, which it has
        words = (difference.astype(np.float64) * STRETCH).astype(np.uint64).astype(np.uint32)  # the largest is 2**32
        return LaneState((x1, x2, x, y1, y2, y)), words


def _next(oldest: Array, newer: Array, which: int) -> Array:
    """The next number of one of the two recursions."""
    modulus, (plus, minus) = np.uint64(MODULI[which]), FACTORS[which]
    return _reduced(np.uint64(plus) * newer + np.uint64(minus) * (modulus - oldest), which).astype(np.uint32)


def _reduced(numbers: Array, which: int) -> Array:
    """``numbers % modulus``, which NumPy divides faster than it finds the remainder."""
    modulus = np.uint64(MODULI[which])
    quotients = numbers // modulus
    quotients *= modulus
    return np.subtract(numbers, quotients, out=quotients)


def _moved(lanes: Array, times_over: int, exponent: int, which: int) -> Array:
    """``times_over * 2**exponent`` steps on."""
    for i in range(times_over.bit_length()):
        if times_over >> i & 1:
            lanes = _times(_power(exponent + i, which), lanes, which)
    return lanes


def _times(matrix: Array, vectors: Array, which: int) -> Array:
    """``[3, 3]`` times ``[3, n]``; a product of two residues has 64 bits, so each is reduced before they are added."""
    product = np.empty(vectors.shape, np.uint32)
    for i in range(3):
        terms = [_reduced(matrix[i, k] * vectors[k], which) for k in range(3)]
        product[i] = _reduced(terms[0] + terms[1] + terms[2], which)
    return product


@cache
def _power(exponent: int, which: int) -> Array:
    """The matrix of ``2**exponent`` steps of one of the two recursions."""
    if exponent:
        half = _power(exponent - 1, which)
        return _times(half, half, which).astype(np.uint64)
    plus, minus = FACTORS[which]
    last = (MODULI[which] - minus, plus, 0) if which == 0 else (MODULI[which] - minus, 0, plus)
    return np.array([(0, 1, 0), (0, 0, 1), last], np.uint64)
