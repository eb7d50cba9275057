"""``KernelTrace``: when each op was enqueued, executed and done. Nothing of it runs while no trace is installed."""

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from callboard.core.backend import AccelStream, UserEvent
from callboard.core.errors import AccelError, UnsupportedOp
from callboard.device.host.profiling.around import Around

__all__ = ["KernelTrace", "Marked"]

Record = tuple[int, str, int, float, float, float, bool, float, float]


class Marked(NamedTuple):
    """Events around an op on its stream.

    Attributes:
        start, end: The events.
        at: When the first was recorded, if the stream had nothing to do then; 0.0 otherwise.
    """

    start: UserEvent
    end: UserEvent
    at: float


class Ran(NamedTuple):
    """That an entry is of an actor's call.

    Attributes:
        done: The work that it enqueued was complete when it ended.
    """

    done: bool


class KernelTrace:
    """Collects records in the host; they travel in batches, beside the completions.

    Args:
        every: Record one op, and one call of an actor, in so many; 1: all of them; 0: none.
        make: Makes an event that keeps its time; None: ops are not measured by events.
        clock: Monotonic seconds.

    Attributes:
        around: What profilers do around launches.
        left: Ops until the next one that is recorded.
        calls_left: Calls of actors until the next one that is recorded.
        open: Ops that were recorded and have no completion yet.
    """

    def __init__(
        self,
        every: int = 1,
        make: Callable[[], UserEvent] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.measure(every)
        self.around: Around | None = None
        self.clock = clock
        self.open: dict[int, tuple[str, int, float, float, Marked | Ran | None]] = {}
        self._make = make
        self._free: list[UserEvent] = []
        self._last: dict[int, tuple[UserEvent, float]] = {}  # by stream: the start of its last op, and when that was
        self._records: list[Record] = []

    def measure(self, every: int) -> None:
        """Record one op in so many from now on; what is in flight stays recorded."""
        self.every = every
        self.left = self.calls_left = 1 if every else sys.maxsize

    def skips(self) -> bool:
        """True if the next op is not recorded."""
        self.left -= 1
        if self.left > 0:
            return True
        self.left = self.every
        return False

    def skips_call(self) -> bool:
        """True if the next call of an actor is not recorded."""
        self.calls_left -= 1
        if self.calls_left > 0:
            return True
        self.calls_left = self.every
        return False

    def mark(self, stream: AccelStream) -> UserEvent | None:
        """An event at this point of a stream; None if the backend has none."""
        if self._make is None:
            return None
        try:
            event = self._free.pop() if self._free else self._make()
        except UnsupportedOp:
            self._make = None
            return None
        event.record(stream)
        return event

    def launched(
        self, op: int, tag: str, stream: AccelStream, began: float, start: UserEvent | None, at: float
    ) -> None:
        """An op was launched behind the event ``start``, which was recorded at ``at`` on an idle stream, or 0.0."""
        end = self.mark(stream)
        marked = None if start is None or end is None else Marked(start, end, at)
        self.enqueued(op, tag, stream.id, began, marked)

    def unused(self, event: UserEvent | None) -> None:
        """Take back an event of an op that was not launched."""
        if event is not None:
            self._free.append(event)

    def enqueued(self, op: int, tag: str, stream: int, began: float, marked: Marked | None = None) -> None:
        """An op was launched; its admission began at ``began``."""
        self.open[op] = (tag, stream, began, self.clock(), marked)

    def called(self, op: int, tag: str, stream: int, began: float, ended: float, *, done: bool) -> None:
        """Record that an actor's call ran from ``began`` to ``ended``.

        Args:
            done: The work that it enqueued is complete; if not, the call takes until its completion is known.
        """
        self.open[op] = (tag, stream, began, ended, Ran(done))

    def completed(self, op: int, ok: bool) -> None:
        """Record that its completion is known (a rejected op has no record)."""
        found = self.open.pop(op, None)
        if found is None:
            return
        tag, stream, began, enqueued, marked = found
        now = self.clock()
        started = seconds = 0.0
        if isinstance(marked, Ran):
            started, seconds = began, (enqueued if marked.done else now) - began
        elif marked is not None:
            started, seconds = self._measured(stream, began, now, marked)
        self._records.append((op, tag, stream, began, enqueued, now, ok, started, seconds))

    def _measured(self, stream: int, began: float, now: float, marked: Marked) -> tuple[float, float]:
        """When the stream began an op, and the seconds that it took; both 0 if that is not known.

        Of a stream that was at work, only the time between two ops is known.
        """
        start, end, at = marked
        last = self._last.pop(stream, None)
        self._free.append(end)
        try:
            seconds = end.since(start)
            if not at:
                at = last[1] + start.since(last[0]) if last is not None else now - seconds
        except AccelError:  # the last event is not reached, though the op is done
            seconds = -1.0
        if last is not None:
            self._free.append(last[0])
        if not 0.0 <= seconds <= now - began:
            self._free.append(start)
            return 0.0, 0.0
        at = min(max(at, began), now - seconds)
        self._last[stream] = start, at
        return at, seconds

    def take(self) -> list[Record]:
        """Records since the last call."""
        records, self._records = self._records, []
        return records

    def close(self) -> None:
        """Destroy the events."""
        for _, _, _, _, marked in self.open.values():
            self._free += (marked.start, marked.end) if isinstance(marked, Marked) else ()
        for event in (*self._free, *(start for start, _ in self._last.values())):
            event.close()
