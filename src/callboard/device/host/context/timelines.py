"""Timelines: a stream with its sequence numbers, and how one timeline waits for another.

Every launched op takes the next sequence number of its timeline. A stream finishes sequence numbers in order, so when
number 7 is done, all before it are. An event is not recorded per short op, but every ``EVENT_INTERVAL`` ops, when
another timeline waits for a sequence number, and before a launch after ops that were polled and not done. The last ops
of a timeline need none: they are done when the stream is idle.
"""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from callboard.core.backend import AccelEvent, AccelStream

if TYPE_CHECKING:
    from callboard.device.host.context.pending import Pending

__all__ = ["EVENT_INTERVAL", "Timeline", "event_interval"]

EVENT_INTERVAL = 16
"""Short ops between events inside a batch. Bounds how late the first op of a long batch is reported; an event costs
about 1 µs."""

LONG_COPY, LONG = 1 << 20, 32 << 20
"""Bytes between host and device, and in arrays on the device, from which an op is long: it takes at least 15 µs."""


def event_interval(copied: int, touched: int) -> int:
    """Ops between events: after a long op there is one, so that its completion does not wait for ops after it.

    Args:
        copied: Bytes that an op copies between host and device.
        touched: Bytes of its arrays on the device.
    """
    return 1 if copied >= LONG_COPY or touched >= LONG else EVENT_INTERVAL


class Follow(NamedTuple):
    """A wait of one timeline for another.

    Attributes:
        first: First sequence number of this timeline that waits.
        other, seq: The timeline and sequence number that it waits for.
    """

    first: int
    other: "Timeline"
    seq: int


class Timeline:
    """A stream and the work in flight on it.

    Attributes:
        stream: The stream.
        issued: Last sequence number taken.
        recorded: Last sequence number that an event covers.
        trails: Sequence numbers without an event were polled and not done. They get an event before the next launch, so
            that their completion does not have to wait for that launch as well.
        completed: Last sequence number known to be done.
        ops: Ops that are launched and not settled, in order of their sequence numbers.
        behind: Sequence numbers of other timelines that the next launch has to wait for (:meth:`catch_up`): replays of
            recordings, which use the workspaces of this timeline's library.
    """

    __slots__ = (
        "_follows",
        "_passed",
        "behind",
        "completed",
        "events",
        "issued",
        "ops",
        "recorded",
        "stream",
        "trails",
    )

    def __init__(self, stream: AccelStream) -> None:
        self.stream = stream
        self.issued = self.recorded = self.completed = 0
        self.events: deque[tuple[int, AccelEvent]] = deque()
        self.ops: deque[Pending] = deque()
        self.trails = False
        self.behind: dict[Timeline, int] = {}
        self._passed: dict[
            Timeline, int
        ] = {}  # by other timeline: the sequence number that this stream waits for already
        self._follows: deque[Follow] = deque()  # in order of ``first``; dropped when that work is done

    def record_event(self) -> None:
        """Record an event that covers all sequence numbers taken so far."""
        if self.recorded < self.issued:
            self.events.append((self.issued, self.stream.record()))
            self.recorded = self.issued
        self.trails = False

    def poll(self) -> bool:
        """Query the events and the stream; True when sequence numbers were completed.

        Raises:
            AccelError: The stream's work failed; the context is suspect.
        """
        events = self.events
        before = self.completed
        while events and events[0][1].query():
            self.completed, event = events.popleft()
            self.stream.recycle(event)
        if not events and self.completed < self.issued:
            if self.stream.query():
                self.completed = self.recorded = self.issued
                self.trails = False
            else:
                self.trails = True
        return self.completed != before

    def poll_idle(self) -> bool:
        """Return True if all work is done, by one query of the stream; raises as :meth:`poll`."""
        if not self.stream.query():
            return False
        self.done()
        return True

    def finish(self) -> None:
        """Wait until all sequence numbers are done; raises as :meth:`poll`."""
        self.stream.synchronize()
        self.done()

    def done(self) -> None:
        """Everything that was enqueued is done, as is known by other means than a query."""
        while self.events:
            self.stream.recycle(self.events.popleft()[1])
        self.completed = self.recorded = self.issued
        self.trails = False

    @property
    def waits(self) -> bool:
        """True if the oldest work in flight waits for another timeline.

        This is all work up to the next event: how far the stream has come within it cannot be queried.
        """
        self._forget_done()
        last = self.events[0][0] if self.events else self.issued
        for first, other, seq in self._follows:
            if first > last:
                break
            if other.completed < seq:
                return True
        return False

    def catch_up(self) -> None:
        """Make work that is enqueued from now on run after the work noted in ``behind``."""
        behind, self.behind = self.behind, {}
        for other, seq in behind.items():
            self.follow(other, seq)

    def follow(self, other: "Timeline", seq: int) -> None:
        """Make work that is enqueued from now on run after ``seq`` of another timeline."""
        if seq <= other.completed or seq <= self._passed.get(other, 0):
            return
        if other.recorded < seq:
            other.record_event()
        for covered, event in other.events:
            if covered >= seq:
                self.stream.wait(event)
                self._passed[other] = covered
                self._forget_done()
                self._follows.append(Follow(self.issued + 1, other, covered))
                return

    def _forget_done(self) -> None:
        follows, completed = self._follows, self.completed
        while follows and follows[0].first <= completed:
            follows.popleft()
