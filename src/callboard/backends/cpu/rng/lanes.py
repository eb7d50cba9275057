"""Generators that are many lanes side by side: word ``i`` is step ``i // n`` of lane ``i % n``, with ``n`` lanes."""

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

import numpy as np

from callboard.backends.cpu.rng.states import States

__all__ = ["LaneState", "Lanes", "Rows"]

Array = np.ndarray[Any, Any]

LONG = 1 << 20
"""Words of a fill from which on its lanes are not kept: to move them takes less time than to make the words."""


class LaneState(NamedTuple):
    """The state of the lanes before a step. Read-only."""

    parts: tuple[Array, ...]
    """With one element a lane each."""

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def copy(self) -> "LaneState":
        return self

    def between(self, first: int, last: int) -> "LaneState":
        """The lanes from ``first`` to ``last - 1``."""
        return LaneState(tuple(part[first:last] for part in self.parts))


class Lanes(Protocol):
    """A generator in one of its orders."""

    @property
    def count(self) -> int:
        """Number of lanes."""
        ...

    def begin(self, seed: int, row: int, first: int, last: int) -> LaneState:
        """The lanes from ``first`` to ``last - 1`` of a seed, after ``row`` steps."""
        ...

    def step(self, state: LaneState) -> tuple[LaneState, Array]:
        """The lanes one step on, and the words of that step: uint32, one a lane."""
        ...


class Rows:
    """Words of a generator of lanes. Any thread may ask for them.

    Args:
        stream: Kind and order of the stream.
        lanes: Lanes of the generator.
        states: Cache of lane states, which fills update.
    """

    def __init__(self, stream: Hashable, lanes: Lanes, states: States) -> None:
        self._stream = stream
        self._lanes = lanes
        self._states = states

    def words(self, seed: int, position: int, count: int) -> Array:
        """``[count]`` of uint32."""
        lanes, stream = self._lanes, (self._stream, seed)
        row, lane = divmod(position, lanes.count)
        end = lane + count
        state = self._states.take(stream, row)
        if end < lanes.count:  # a part of a row does without the other lanes
            if state is None:
                return lanes.step(lanes.begin(seed, row, lane, end))[1]
            self._states.keep(stream, row, state)
            return lanes.step(state.between(lane, end))[1]
        before = after = state or lanes.begin(seed, row, 0, lanes.count)
        words = np.empty((-(-end // lanes.count), lanes.count), np.uint32)
        for i in range(len(words)):
            before = after
            after, words[i] = lanes.step(before)
        if count <= LONG:
            self._states.keep(stream, (position + count) // lanes.count, before if end % lanes.count else after)
        return words.reshape(-1)[lane:end]
