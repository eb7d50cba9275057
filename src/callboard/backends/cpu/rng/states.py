"""States of generators where their last fills left them."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Protocol, Self

__all__ = ["MAX_BYTES", "MAX_STATES", "State", "States"]

MAX_BYTES = 128 << 20
"""Bytes of all states of one context together: 68 of ``mrg32k3a`` or some 65 of ``mtgp32``."""
MAX_STATES = 1024


class State(Protocol):
    """The resumable state of a generator."""

    @property
    def nbytes(self) -> int:
        """Size."""
        ...

    def copy(self) -> Self:
        """Return an independent copy of the state."""
        ...


class _Kept:
    """A state, and how many generators have left it: those with one seed may be at one place."""

    __slots__ = ("generators", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        self.generators = 1


class States:
    """States by stream and place, the least recently used dropped first.

    A fill names its stream and its position, not its generator; a generator continues where its last fill ended, so a
    state is keyed by the position at which the next fill begins. Any thread may call the methods.

    Args:
        max_bytes: Most that the states may take together.
        max_states: Most states.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, max_states: int = MAX_STATES) -> None:
        self._max_bytes = max_bytes
        self._max_states = max_states
        self._kept: OrderedDict[tuple[Hashable, int], _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, stream: Hashable, place: int, state: State) -> None:
        """Leave a state at a place."""
        with self._lock:
            kept = self._kept.get((stream, place))
            if kept is None:
                self._kept[stream, place] = _Kept(state)
                self.nbytes += state.nbytes
            else:
                kept.generators += 1
                self._kept.move_to_end((stream, place))
            while self.nbytes > self._max_bytes or len(self._kept) > self._max_states:
                _, dropped = self._kept.popitem(last=False)
                self.nbytes -= dropped.state.nbytes

    def take(self, stream: Hashable, place: int) -> Any:
        """The state that a generator left at this place; None if there is none."""
        with self._lock:
            kept = self._kept.get((stream, place))
            if kept is None:
                return None
            kept.generators -= 1
            if kept.generators:
                return kept.state.copy()
            del self._kept[stream, place]
            self.nbytes -= kept.state.nbytes
            return kept.state

    def before(self, stream: Hashable, place: int) -> tuple[int, Any]:
        """The last place at or before this one where a state is, and its copy; 0 and None if there is none."""
        with self._lock:
            nearest = max((at for of, at in self._kept if of == stream and at <= place), default=None)
            return (0, None) if nearest is None else (nearest, self._kept[stream, nearest].state.copy())

    def clear(self) -> None:
        """Drop all states."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0
