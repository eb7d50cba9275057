"""Where the words of pseudo-random kinds come from."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from callboard.backends.cpu.rng.mrg32k3a import LEGACY_LANES, mrg32k3a_words
from callboard.backends.cpu.rng.mt19937 import Mt19937
from callboard.backends.cpu.rng.mtgp32 import LEGACY_TWISTERS, Mtgp32
from callboard.backends.cpu.rng.philox import philox64_words, philox_words
from callboard.backends.cpu.rng.xorwow import xorwow_words
from callboard.kernel.rng.streams import RngOrdering, check_discard

__all__ = ["SKIPPING", "Walk", "Words", "walking"]

Array = np.ndarray[Any, Any]
Words = Callable[[int, int, int], Array]
"""``words(seed, position, count)``: ``[count]`` of uint32."""

Stream = tuple[str, RngOrdering]
"""Kind and order."""

SKIPPING: dict[Stream, Words] = {
    ("philox", "default"): philox_words,
    ("philox64", "default"): philox64_words,
    ("xorwow", "default"): xorwow_words,
    ("xorwow", "seeded"): partial(xorwow_words, seeded=True),
    ("mrg32k3a", "default"): mrg32k3a_words,
    ("mrg32k3a", "legacy"): partial(mrg32k3a_words, abreast=LEGACY_LANES),
}
"""Those that reach any position at once; any thread may ask them."""


class Forward(Protocol):
    """What cannot skip."""

    def discard(self, count: int) -> None:
        """Pass over ``count`` words."""

    def draw(self, count: int) -> Array:
        """The next words, ``[count]`` of uint32."""
        ...


class Walk:
    """A generator that cannot skip, at the place where it was left.

    For an earlier place, or another seed, it begins again and discards.

    Args:
        kind: Its name.
        begin: The stream of a seed, at its beginning.
    """

    def __init__(self, kind: str, begin: Callable[[int], Forward]) -> None:
        self._kind = kind
        self._begin = begin
        self._left: tuple[int, int, Forward] | None = None

    def words(self, seed: int, position: int, count: int) -> Array:
        """``[count]`` of uint32.

        Raises:
            UnsupportedOp: It would have to discard more than :data:`LARGEST_DISCARD` words.
        """
        known, stream = 0, None
        if self._left is not None and self._left[0] == seed and self._left[1] <= position:
            _, known, stream = self._left
        check_discard(self._kind, position, known)
        stream = stream or self._begin(seed)
        self._left = None  # nowhere, should memory run out
        stream.discard(position - known)
        words = stream.draw(count)
        self._left = seed, position + count, stream
        return words


def walking() -> dict[Stream, Words]:
    """Those that cannot skip, for one thread."""
    return {
        ("mt19937", "default"): Walk("mt19937", Mt19937).words,
        ("mtgp32", "default"): Walk("mtgp32", Mtgp32).words,
        ("mtgp32", "legacy"): Walk("mtgp32", partial(Mtgp32, twisters=LEGACY_TWISTERS)).words,
    }
