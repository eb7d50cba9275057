"""Sources of random words for the pseudo-random generators."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, Self

import numpy as np

from callboard.backends.cpu.rng.lanes import Lanes, Rows
from callboard.backends.cpu.rng.mrg32k3a import LEGACY_LANES, Mrg32k3a
from callboard.backends.cpu.rng.mt19937 import Mt19937
from callboard.backends.cpu.rng.mtgp32 import LEGACY_TWISTERS, Mtgp32
from callboard.backends.cpu.rng.philox import philox64_words, philox_words
from callboard.backends.cpu.rng.states import State, States
from callboard.backends.cpu.rng.xorwow import Xorwow
from callboard.kernel.rng.streams import RngOrdering, check_discard

__all__ = ["Forward", "Stream", "Walk", "Words", "sources"]

Array = np.ndarray[Any, Any]
Words = Callable[[int, int, int], Array]
"""``words(seed, position, count)``: ``[count]`` of uint32."""

Stream = tuple[str, RngOrdering]
"""Kind and order."""


class Forward(State, Protocol):
    """A generator that cannot skip ahead."""

    def discard(self, count: int) -> None:
        """Pass over ``count`` words."""

    def draw(self, count: int) -> Array:
        """The next words, ``[count]`` of uint32."""
        ...

    def copy(self) -> Self: ...


class Walk:
    """Words of a generator that cannot skip: it continues where the last fill ended, or begins again and discards.

    Args:
        stream: Kind and order of the stream.
        begin: The stream of a seed, at its beginning.
        states: Cache of generator states, which fills update.
    """

    def __init__(self, stream: Stream, begin: Callable[[int], Forward], states: States) -> None:
        self._stream = stream
        self._begin = begin
        self._states = states

    def words(self, seed: int, position: int, count: int) -> Array:
        """``[count]`` of uint32.

        Raises:
            UnsupportedOp: It would have to discard more than :data:`LARGEST_DISCARD` words.
        """
        stream, known = (self._stream, seed), position
        state: Forward | None = self._states.take(stream, position)
        if state is None:
            known, state = self._states.before(stream, position)
            check_discard(self._stream[0], position, known)
            state = state or self._begin(seed)
        state.discard(position - known)
        words = state.draw(count)
        self._states.keep(stream, position + count, state)  # not before: memory may run out
        return words


def sources(states: States) -> dict[Stream, Words]:
    """Return the sources of every kind and order.

    Those of ``mt19937`` and ``mtgp32`` are for one thread, the others for any.
    """
    lanes: dict[Stream, Lanes] = {
        ("xorwow", "default"): Xorwow(),
        ("xorwow", "seeded"): Xorwow(seeded=True),
        ("mrg32k3a", "default"): Mrg32k3a(),
        ("mrg32k3a", "legacy"): Mrg32k3a(LEGACY_LANES),
    }
    walks: dict[Stream, Callable[[int], Forward]] = {
        ("mt19937", "default"): Mt19937,
        ("mtgp32", "default"): Mtgp32,
        ("mtgp32", "legacy"): partial(Mtgp32, twisters=LEGACY_TWISTERS),
    }
    return {
        ("philox", "default"): philox_words,
        ("philox64", "default"): philox64_words,
        **{stream: Rows(stream, of, states).words for stream, of in lanes.items()},
        **{stream: Walk(stream, begin, states).words for stream, begin in walks.items()},
    }
