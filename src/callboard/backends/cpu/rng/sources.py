"""Where the words of pseudo-random kinds come from."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from callboard.backends.cpu.rng.mrg32k3a import LEGACY_LANES, mrg32k3a_words
from callboard.backends.cpu.rng.philox import philox64_words, philox_words
from callboard.backends.cpu.rng.xorwow import xorwow_words
from callboard.core.errors import UnsupportedOp
from callboard.kernel.rng.streams import LARGEST_DISCARD, RngOrdering

__all__ = ["REORDERED", "SKIPPING", "Twister", "Words"]

Array = np.ndarray[Any, Any]
Words = Callable[[int, int, int], Array]
"""``words(seed, position, count)``: ``[count]`` of uint32."""

SKIPPING: dict[str, Words] = {
    "philox": philox_words,
    "philox64": philox64_words,
    "xorwow": xorwow_words,
    "mrg32k3a": mrg32k3a_words,
}
"""Kinds that reach any position at once; any thread may ask them."""
REORDERED: dict[tuple[str, RngOrdering], Words] = {
    ("xorwow", "seeded"): partial(xorwow_words, seeded=True),
    ("mrg32k3a", "legacy"): partial(mrg32k3a_words, abreast=LEGACY_LANES),
}
"""Likewise, in another order than the default one."""


class Twister:
    """NumPy's Mersenne Twister (MT19937), seeded as Matsumoto and Nishimura do, at the place where it was left.

    It cannot skip: for an earlier place, or another seed, it begins again and discards.
    """

    def __init__(self) -> None:
        self._seed = -1
        self._position = 0
        self._bits = np.random.MT19937()

    def words(self, seed: int, position: int, count: int) -> Array:
        """``[count]`` of uint32.

        Raises:
            UnsupportedOp: It would have to discard more than :data:`LARGEST_DISCARD` words.
        """
        same = seed == self._seed and position >= self._position
        discarded = position - (self._position if same else 0)
        if discarded > LARGEST_DISCARD:
            raise UnsupportedOp(
                f"mt19937 cannot skip, and position {position} lies {discarded} words after what it knows, more than "
                f"the {LARGEST_DISCARD} that it discards; use philox, or another seed"
            )
        if not same:
            # init_genrand for a seed of 32 bits, init_by_array for a longer one
            state = np.random.RandomState(seed if seed < 2**32 else [seed & 0xFFFFFFFF, seed >> 32]).get_state(
                legacy=False
            )
            self._bits.state = {"bit_generator": "MT19937", "state": state["state"]}
            self._seed, self._position = seed, 0
        self._bits.random_raw(discarded, output=False)
        self._position = position + count
        return self._bits.random_raw(count).astype(np.uint32)
