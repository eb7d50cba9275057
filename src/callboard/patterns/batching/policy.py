"""``BatchPolicy``: which requests make up the next batch, and when. Pure: no I/O and no clock, time is an argument."""

import math
import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from callboard.patterns.batching.estimate import ArrivalGap, BatchTimes
from callboard.patterns.batching.joining import Group, Joining, length_of
from callboard.patterns.batching.settings import BatchSettings, Dispatch
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import ItemTooLarge
from callboard.patterns.requests.waiting import Bucket, WaitingLine

__all__ = ["SETTLE", "Batch", "BatchPolicy"]

SETTLE = 2
"""Iterations of the event loop: in the first, the answered callers continue; in the second, requests that they submit
through another task arrive."""

TIMER = 0.002
"""Seconds that a timer of an event loop may be late: with epoll, it counts in whole milliseconds."""

_number = operator.attrgetter("number")


@dataclass(frozen=True)
class Batch:
    """The next batch to run.

    Attributes:
        entries: The requests, in the order in which the function gets their items.
        late: Entries taken out of the queue that are not run, because they cannot be done by their deadlines.
    """

    entries: list[Entry]
    late: list[Entry]


class BatchPolicy:
    """Decides about the batches of one server.

    A batch is formed by :meth:`take`, which is called when an executor is free and never earlier, so that requests
    join until the last moment. After a batch of several requests has been answered, and while no batch is
    :attr:`full`, the caller of :meth:`take` should let the event loop run :data:`SETTLE` more iterations. Clients that
    submit their next request when they get an answer then find themselves in one batch.

    Args:
        settings: May be replaced at any time by settings with other sizes and waits; the bounds of the queue and the
            ageing keep their values.
    """

    def __init__(self, settings: BatchSettings) -> None:
        self.settings = settings
        self.line = WaitingLine(settings.max_queue, settings.queue)
        self.times = BatchTimes()
        self._joining = Joining() if settings.form.join_buckets else None
        self.running = 0  # batches
        self._gap = ArrivalGap()
        self._flushed = -1  # entries up to this number do not wait for others
        self.last = -1  # number of the entry that was added last
        self.draining = False
        self.held = 0  # minimum of waiting entries before a batch is formed

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(self, entry: Entry, now: float, *, may_block: bool = False) -> list[Entry]:
        """Queue a new entry; returns the entries that were dropped for it.

        Raises:
            QueueFull: There is no room, and the policy makes none.
            ItemTooLarge: It fits no batch, or not into the queue.
        """
        most = self.settings.max_batch_cost
        if most is not None and entry.cost > most:
            raise ItemTooLarge(
                f"the item costs {entry.cost:g}, and max_batch_cost is {most:g}: split it, or raise max_batch_cost"
            )
        dropped = self.line.add(entry, may_block=may_block)
        self.last = entry.number
        self._gap.arrived(now)
        return dropped

    def hopeless(self, entry: Entry, now: float) -> bool:
        """True if the queue ahead of a new entry alone exceeds the entry's deadline.

        While nothing waits and nothing runs, an entry is never hopeless: an estimate that is too high would otherwise
        never be corrected.
        """
        if entry.deadline is None or self.settings.form.delays or not (self.running or self.line.count):
            return False
        seconds = self.expected
        return seconds is not None and now + seconds > entry.deadline

    @property
    def expected(self) -> float | None:
        """Seconds that a new request is expected to take with the queue before it; None while nothing is known."""
        if not self.times.known:
            return None
        full, rest = divmod(self.line.count, self.settings.max_batch)
        before = full * self.times.seconds(self.settings.max_batch) / self.settings.max_concurrent_batches
        return before + self.times.seconds(rest + 1)

    def retry_after(self) -> float | None:
        """Seconds until a full batch will have left the queue; None while nothing is known."""
        if not self.times.known:
            return None
        return self.times.seconds(self.settings.max_batch) / self.settings.max_concurrent_batches

    def flush_now(self) -> None:
        """Stop waiting for more requests: queued ones run as soon as an executor is free."""
        self._flushed = self.last
        self.held = 0

    @property
    def _holds(self) -> bool:
        if self.held and (self.line.count >= min(self.held, self.settings.max_queue) or self.draining):
            self.held = 0
        return bool(self.held)

    # -- batches -------------------------------------------------------------------------------------------------------

    def ready_at(self, now: float) -> float | None:
        """The time at which :meth:`take` returns a batch if nothing arrives or leaves before; None if nothing waits.

        A moment that is not after ``now`` means at once.
        """
        if not self.line.count or self._holds:
            return None
        return min(self._ready_at(bucket, now) for bucket in self._buckets())

    def take(self, now: float) -> Batch | None:
        """Form the next batch, for an executor that is free; None if there is nothing to run yet.

        Among the ready buckets, it takes the one with the most urgent entry.
        """
        for bucket in [] if self._holds else self._buckets():
            if self._ready_at(bucket, now) <= now:
                return self._form(bucket, now)
        return None

    def finished(self, n: int, seconds: float, entries: Sequence[Entry] = ()) -> None:
        """A batch of ``n`` items, including the padding of these entries, has run without an error."""
        self.times.add(n, seconds)
        if self._joining is not None:
            self._joining.finished(n, max(length_of(entry.key) for entry in entries), seconds)

    def key(self, key: Hashable) -> Hashable:
        """The key of a bucket, which is a length where buckets are joined.

        Raises:
            TypeError, ValueError: See :func:`length_of`.
        """
        return key if self._joining is None else length_of(key)

    def _buckets(self) -> Sequence[Bucket | Group]:
        """The groups that batches are formed of, the one with the most urgent entry first."""
        buckets, settings = self.line.buckets(), self.settings
        if self._joining is None or len(buckets) < 2:
            return buckets
        return self._joining.groups(buckets, settings.max_batch, settings.max_batch_cost)

    @property
    def full(self) -> bool:
        """True if a waiting batch cannot become larger."""
        return self.line.count > 0 and any(self._is_full(bucket) for bucket in self._buckets())

    def _is_full(self, bucket: Bucket | Group) -> bool:
        settings = self.settings
        most = settings.max_batch_cost
        return bucket.count >= settings.max_batch or (most is not None and bucket.cost >= most)

    def _ready_at(self, bucket: Bucket | Group, now: float) -> float:
        settings = self.settings
        if self._is_full(bucket):
            return now
        if self.draining or settings.form.dispatch is Dispatch.IDLE:
            return now
        oldest = min(bucket.heads(), key=_number)
        if oldest.number <= self._flushed:
            return now
        latest = oldest.arrived + settings.max_wait
        if bucket.earliest < math.inf:  # to be done by the first deadline
            latest = min(latest, bucket.earliest - 2 * self.times.seconds(bucket.count) - TIMER)
        if settings.form.dispatch is Dispatch.WINDOW:
            return latest
        return min(latest, self._worth_waiting_until(bucket.count))

    def _worth_waiting_until(self, n: int) -> float:
        """Return the time until which ``n`` entries should wait for one more.

        If they do not wait, one that comes a gap later waits for their batch, and ends ``fixed - gap`` later than in
        theirs. If they wait, each of them ends ``gap + per_item`` later. So waiting pays off for gaps up to
        ``(fixed - n * per_item) / (n + 1)``: if the mean gap is longer than that they do not wait, else that long.
        A wait too short for a timer ends late unless an arrival ends it, which must be all but certain then.
        """
        last, gap = self._gap.last, self._gap.seconds
        per_item, fixed = self.times.fit
        longest = (fixed - n * per_item) / (n + 1)
        if last is None or gap is None or gap >= longest or (longest < TIMER and 3 * gap > longest):
            return float("-inf")
        return last + longest

    def _form(self, bucket: Bucket | Group, now: float) -> Batch:
        settings = self.settings
        most = settings.max_batch_cost
        if isinstance(bucket, Bucket) and most is None and bucket.earliest == math.inf:  # their number alone decides
            count = min(bucket.count, settings.max_batch)
            return self._batch(self.line.take(bucket, min(count, settings.form.size_for(count))), [], now)
        expected = self.times.seconds(min(bucket.count, settings.max_batch))
        taken: list[Entry] = []
        late: list[Entry] = []
        hopeless: Entry | None = None  # by the estimate alone
        cost = 0.0
        while bucket.count and len(taken) < settings.max_batch:
            entry = self.line.peek(bucket) if isinstance(bucket, Bucket) else self._first(bucket)
            after = self._cost_with(entry, taken, cost)
            if taken and most is not None and after > most:
                break
            self.line.remove(entry)
            deadline = None if settings.form.delays else entry.deadline
            if deadline is not None and (deadline <= now or deadline < now + expected):
                late.append(entry)
                hopeless = entry if deadline > now else hopeless
            else:
                taken.append(entry)
                cost = after
        if not taken and hopeless is not None:  # run one, or an estimate that is too high is never corrected
            late.remove(hopeless)
            taken.append(hopeless)
        size = settings.form.size_for(len(taken))
        if size < len(taken):
            self.line.restore(taken[size:])
            del taken[size:]
        return self._batch(taken, late, now)

    def _batch(self, taken: list[Entry], late: list[Entry], now: float) -> Batch:
        self._gap.taken(now)
        for entry in taken:
            entry.state = State.RUNNING
            entry.started = now
        return Batch(taken, late)

    def _first(self, group: Group) -> Entry:
        return min((self.line.peek(each) for each in group.buckets if each.count), key=self.line.rank)

    def _cost_with(self, entry: Entry, taken: list[Entry], cost: float) -> float:
        """The cost of a batch with one entry more: if all are padded to the longest, each costs as much."""
        if self._joining is None:
            return cost + entry.cost
        n = len(taken)
        return (n + 1) * max(cost / n if n else 0.0, entry.cost)
