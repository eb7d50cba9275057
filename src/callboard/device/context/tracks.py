"""Tracks: a stream with its tickets, and how one track waits for another.

Every op that is launched takes the next ticket of its track. A stream finishes tickets in order, so "ticket 7 is done"
answers for all before it. Events are recorded every ``SEAL_EVERY`` ops, when another track needs a ticket, or before
something is launched behind ops that have been looked for; not per op. The last ops of a track need none: they are
done when the stream has nothing to do.
"""

from collections import deque
from typing import TYPE_CHECKING

from callboard.core.backend import AccelEvent, AccelStream

if TYPE_CHECKING:
    from callboard.device.context.pending import Pending

__all__ = ["Track"]

SEAL_EVERY = 16
"""Ops between events inside a batch: bounds how late the verdict of a long batch's first op is, at about 1 µs per
event."""


class Track:
    """A stream and what is in flight on it.

    Attributes:
        stream: The stream.
        issued: Last ticket taken.
        sealed: Last ticket that an event covers.
        trails: Tickets that no event covers have been looked for: they get one before the next launch, so that their
            verdict does not wait for that op, too.
        completed: Last ticket known to be done.
        ops: Launched and not settled, by ticket.
    """

    __slots__ = ("completed", "events", "issued", "ops", "passed", "sealed", "stream", "trails")

    def __init__(self, stream: AccelStream) -> None:
        self.stream = stream
        self.issued = self.sealed = self.completed = 0
        self.events: deque[tuple[int, AccelEvent]] = deque()
        self.ops: deque[Pending] = deque()
        self.trails = False
        self.passed: dict[Track, int] = {}  # tickets of other tracks that work enqueued here from now on runs after

    def seal(self) -> None:
        """Cover all tickets taken so far by an event."""
        if self.sealed < self.issued:
            self.events.append((self.issued, self.stream.record()))
            self.sealed = self.issued
        self.trails = False

    def poll(self) -> bool:
        """Look what is done; True when tickets were completed.

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
                self.completed = self.sealed = self.issued
                self.trails = False
            else:
                self.trails = True
        return self.completed != before

    def finish(self) -> None:
        """Wait until all tickets are done; raises as :meth:`poll`."""
        self.stream.synchronize()
        while self.events:
            self.stream.recycle(self.events.popleft()[1])
        self.completed = self.sealed = self.issued
        self.trails = False

    @property
    def waits(self) -> bool:
        """Whether work enqueued here still runs after some of another track."""
        return any(other.completed < ticket for other, ticket in self.passed.items())

    def follow(self, other: "Track", ticket: int) -> None:
        """Make work enqueued here from now on run after ``ticket`` of another track."""
        if ticket <= other.completed or ticket <= self.passed.get(other, 0):
            return
        if other.sealed < ticket:
            other.seal()
        for covered, event in other.events:
            if covered >= ticket:
                self.stream.wait(event)
                self.passed[other] = covered
                return
