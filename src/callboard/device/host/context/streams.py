"""``SharedStreams``: the streams of a context with their work, as a :class:`StreamAllocator` shares them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from callboard.actors.errors import printable, returned
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.errors import AccelError, Unrecoverable
from callboard.device.config import HostConfig
from callboard.device.host.context.timelines import Timeline
from callboard.device.strategies.carried import Carried, unpacked
from callboard.device.strategies.streams import (
    ChainedAllocator,
    PerActorAllocator,
    PooledAllocator,
    SingleStreamAllocator,
    StreamAllocator,
)

__all__ = ["SharedStreams", "streams_for"]


class SharedStreams:
    """Assigns a timeline to each actor.

    Args:
        device: Makes the streams.
        priorities: Priority of an actor by its name.
        allocator: Shares the streams.

    Attributes:
        timelines: All timelines made so far.
    """

    def __init__(self, device: AccelDevice, priorities: Mapping[str, int], allocator: StreamAllocator) -> None:
        self._device = device
        self._priorities = priorities
        self._allocator = allocator
        self._users: Counter[Timeline] = Counter()
        self.timelines: list[Timeline] = []
        self._fence: tuple[Timeline, int] | None = None  # timelines created from now on are ordered after it

    def acquire(self, actor: str) -> Timeline:
        """The timeline of an actor, by its name or path.

        Raises:
            Unrecoverable: The allocator has failed, or gives a stream that is not of this context.
            OutOfMemory, DriverError: There is no stream.
        """
        priority = self._priorities.get(actor)
        if priority is None:  # a lane of a library has that of the library
            priority = self._priorities.get(actor.partition(".")[0], 0)
        stream = self._asked("acquire", f"({actor!r})", actor, priority, self._new)
        timeline = next((t for t in self.timelines if t.stream is stream), None)
        if timeline is None:
            raise self._wrong("acquire", f"({actor!r})", stream, "a stream of new(priority), or one made by it before")
        self._users[timeline] += 1
        return timeline

    def release(self, timeline: Timeline) -> None:
        """The actor has ended and its timeline is idle: close a stream that was its own.

        Raises:
            Unrecoverable: As :meth:`acquire`; or another actor has the stream that the allocator has closed.
        """
        closes = self._asked("release", "()", timeline.stream)
        if not isinstance(closes, bool):
            raise self._wrong("release", "()", closes, "True, to close the stream, or False")
        self._users[timeline] -= 1
        if not closes:
            return
        if self._users[timeline]:
            others = f"{self._users[timeline]} other actors have the stream"
            raise self._wrong("release", "()", closes, f"False: {others}")
        del self._users[timeline]
        self.timelines.remove(timeline)
        timeline.stream.close()

    def _new(self, priority: int) -> AccelStream:
        given: Any = priority
        if isinstance(given, bool) or not isinstance(given, int) or not -1 <= given <= 1:
            raise ValueError(f"new: priority is {given!r:.200}; use -1, 0 or 1")
        stream = self._device.stream(priority)
        idle: object = stream.query()
        if not isinstance(idle, bool):  # work on it would never be done, or at once
            raise returned(f"{type(stream).__qualname__}.query", idle, "True or False")
        timeline = Timeline(stream)
        self.timelines.append(timeline)
        if self._fence is not None:
            timeline.follow(*self._fence)
        return stream

    def _asked(self, method: str, call: str, *arguments: Any) -> Any:
        try:
            return getattr(self._allocator, method)(*arguments)
        except AccelError:  # of the device
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # of a user, also sys.exit: the next context would meet it as well
            if type(self._allocator).__module__ == StreamAllocator.__module__:
                raise
            name = type(self._allocator).__qualname__
            raise Unrecoverable(f"{name}.{method}{call} failed: {type(e).__name__}: {printable(e)}") from e

    def _wrong(self, method: str, call: str, given: object, wanted: str) -> Unrecoverable:
        return Unrecoverable(
            f"{type(self._allocator).__qualname__}.{method}{call} returned {given!r:.200}; return {wanted}"
        )

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


def streams_for(device: AccelDevice, config: HostConfig) -> SharedStreams:
    """SharedStreams, shared as the configuration says.

    Raises:
        Unrecoverable: A user's allocator cannot be made here.
    """
    return SharedStreams(device, config.priorities, _allocator(config))


def _allocator(config: HostConfig) -> StreamAllocator:
    given = config.streams
    if isinstance(given, Carried):
        allocator: StreamAllocator = unpacked("streams", given)
        return allocator
    if given == "single":
        return SingleStreamAllocator()
    if given == "pooled":
        return PooledAllocator(config.pooled_streams)
    return PerActorAllocator() if given == "per_actor" else ChainedAllocator()
