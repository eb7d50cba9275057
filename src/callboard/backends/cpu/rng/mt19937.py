"""The Mersenne Twister, MT19937 (Matsumoto and Nishimura, ACM Trans. Model. Comput. Simul. 8, 1998): NumPy's."""

import copy
from typing import Any

import numpy as np

__all__ = ["Mt19937"]

Array = np.ndarray[Any, Any]

BYTES = 4096
"""Bytes of a stream: 624 words, and NumPy's objects around them."""


class Mt19937:
    """A stream, at its beginning.

    Args:
        seed: Seed of 64 bits.
    """

    def __init__(self, seed: int) -> None:
        # NumPy's init_genrand for a seed of 32 bits, init_by_array for a longer one.
        state = np.random.RandomState(seed if seed < 2**32 else [seed & 0xFFFFFFFF, seed >> 32]).get_state(legacy=False)
        self._bits = np.random.MT19937(0)
        self._bits.state = {"bit_generator": "MT19937", "state": state["state"]}

    @property
    def nbytes(self) -> int:
        """Size of the state."""
        return BYTES

    def copy(self) -> "Mt19937":
        """A stream at the same place."""
        new = copy.copy(self)
        new._bits = np.random.MT19937(0)
        new._bits.state = self._bits.state
        return new

    def discard(self, count: int) -> None:
        """Pass over ``count`` words."""
        self._bits.random_raw(count, output=False)

    def draw(self, count: int) -> Array:
        """The next words, ``[count]`` of uint32."""
        return self._bits.random_raw(count).astype(np.uint32)
