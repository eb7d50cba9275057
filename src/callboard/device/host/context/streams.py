"""Stream allocators: which actor enqueues on which stream."""

import abc
import itertools
from collections.abc import Mapping

from callboard.actors.errors import returned
from callboard.core.backend import AccelDevice
from callboard.device.config import HostConfig
from callboard.device.host.context.timelines import Timeline

__all__ = [
    "CHAINED",
    "ChainedAllocator",
    "PerActorAllocator",
    "PooledAllocator",
    "SingleStreamAllocator",
    "StreamAllocator",
    "allocator_for",
]

CHAINED = frozenset(
    ("array", "attention", "blas", "blas_lt", "cub", "dnn", "elementwise", "fft", "module", "nvrtc", "rng", "tensor")
)
"""Libraries whose ops are short, and mostly use the output of an op of another of them."""


class StreamAllocator(abc.ABC):
    """Assigns a timeline to each actor.

    Attributes:
        timelines: All timelines made so far.
    """

    def __init__(self, device: AccelDevice, priorities: Mapping[str, int]) -> None:
        self._device = device
        self._priorities = priorities
        self.timelines: list[Timeline] = []
        self._fence: tuple[Timeline, int] | None = None  # timelines created from now on are ordered after it

    @abc.abstractmethod
    def acquire(self, actor: str) -> Timeline:
        """The timeline of an actor, by its name or path."""

    def release(self, timeline: Timeline) -> None:
        """The actor has ended and its timeline is idle: close a stream that was its own."""

    def make(self, actor: str | None = None) -> Timeline:
        """A separate timeline, with the actor's priority."""
        priority = self._priorities.get(actor or "")
        if priority is None:  # a lane of a library has that of the library
            priority = self._priorities.get((actor or "").partition(".")[0], 0)
        stream = self._device.stream(priority)
        idle: object = stream.query()
        if not isinstance(idle, bool):  # work on it would never be done, or at once
            raise returned(f"{type(stream).__qualname__}.query", idle, "True or False")
        timeline = Timeline(stream)
        self.timelines.append(timeline)
        if self._fence is not None:
            timeline.follow(*self._fence)
        return timeline

    def wait_for_all(self, timeline: Timeline) -> None:
        """Make work that is enqueued there from now on run after all work enqueued so far."""
        for other in self.timelines:
            if other is not timeline:
                timeline.follow(other, other.issued)

    def block_all_on(self, timeline: Timeline) -> None:
        """Make all work that is enqueued elsewhere from now on run after the last op there."""
        self._fence = timeline, timeline.issued
        for other in self.timelines:
            if other is not timeline:
                other.follow(timeline, timeline.issued)


class PerActorAllocator(StreamAllocator):
    """A stream for each actor: different libraries run concurrently."""

    def acquire(self, actor: str) -> Timeline:
        return self.make(actor)

    def release(self, timeline: Timeline) -> None:
        self.timelines.remove(timeline)
        timeline.stream.close()


class ChainedAllocator(PerActorAllocator):
    """One stream for the libraries of :data:`CHAINED`, one of its own for each other actor.

    An op that uses the output of another stream costs an event and a wait, several times the cost of its launch. Copies
    still overlap with computation, and a long factorization delays no other op. Actors with a priority other than 0 get
    a stream of their own.
    """

    def __init__(self, device: AccelDevice, priorities: Mapping[str, int]) -> None:
        super().__init__(device, priorities)
        self._chain: Timeline | None = None

    def acquire(self, actor: str) -> Timeline:
        if actor not in CHAINED or self._priorities.get(actor, 0):
            return self.make(actor)
        if self._chain is None:
            self._chain = self.make()
        return self._chain

    def release(self, timeline: Timeline) -> None:
        if timeline is not self._chain:
            super().release(timeline)


class SingleStreamAllocator(StreamAllocator):
    """One stream for all: nothing runs concurrently, nothing ever waits for an event."""

    def acquire(self, actor: str) -> Timeline:
        return self.timelines[0] if self.timelines else self.make()


class PooledAllocator(StreamAllocator):
    """A fixed number of streams, in turn; actors with a priority other than 0 get one of their own."""

    def __init__(self, device: AccelDevice, priorities: Mapping[str, int], size: int) -> None:
        super().__init__(device, priorities)
        if size < 1:
            raise ValueError(f"pooled_streams is {size}; at least 1 is needed")
        self._pool: list[Timeline] = []
        self._size = size
        self._turn = itertools.count()

    def acquire(self, actor: str) -> Timeline:
        if self._priorities.get(actor, 0):
            return self.make(actor)
        at = next(self._turn) % self._size
        if at == len(self._pool):
            self._pool.append(self.make())
        return self._pool[at]


def allocator_for(device: AccelDevice, config: HostConfig) -> StreamAllocator:
    """The allocator that the configuration names."""
    if config.streams == "single":
        return SingleStreamAllocator(device, config.priorities)
    if config.streams == "pooled":
        return PooledAllocator(device, config.priorities, config.pooled_streams)
    if config.streams == "per_actor":
        return PerActorAllocator(device, config.priorities)
    return ChainedAllocator(device, config.priorities)
