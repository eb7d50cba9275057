"""``WaitingLine``: the bounded queue of a server, by bucket and priority. No clock, no I/O."""

import heapq
import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from callboard.patterns.contract.checks import OneOf, check_choice, check_seconds, check_whole
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import ItemTooLarge, QueueFull

__all__ = ["LAST", "Bucket", "OverflowPolicy", "QueueOptions", "WaitingLine"]

LAST = -(1 << 62)
"""The priority of entries that wait after all others, however long they wait."""


class Lane(OrderedDict[int, Entry]):
    """Entries of one bucket and priority in the order of submission; they leave from anywhere in O(1)."""

    def first(self) -> Entry:
        """The one that is served next."""
        return next(iter(self.values()))

    def take(self, count: int) -> list[Entry]:
        """Take the first ``count`` of them, in order."""
        return [self.popitem(last=False)[1] for _ in range(count)]


class DeadlineLane(Lane):
    """The same, served by the earliest deadline: O(log n)."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[float, int, Entry]] = []

    def __setitem__(self, number: int, entry: Entry) -> None:
        super().__setitem__(number, entry)
        heapq.heappush(self._heap, (math.inf if entry.deadline is None else entry.deadline, number, entry))

    def first(self) -> Entry:
        if len(self._heap) > 16 + 2 * len(self):  # most of them have left
            self._heap = [record for record in self._heap if record[1] in self]
            heapq.heapify(self._heap)
        while self._heap[0][1] not in self:
            heapq.heappop(self._heap)
        return self._heap[0][2]

    def take(self, count: int) -> list[Entry]:
        return [self.pop(self.first().number) for _ in range(count)]


class OverflowPolicy(OneOf):
    """Treatment of a request for which a full queue has no room. Members equal their texts."""

    REJECT = "reject"
    """It fails with :class:`QueueFull`."""
    BLOCK = "block"
    """The caller waits until there is room, in the order of submission; ``submit_nowait`` fails as with ``reject``."""
    DROP_OLDEST = "drop_oldest"
    """The requests that wait longest fail with :class:`QueueFull` in its place."""
    DROP_LOWEST_PRIORITY = "drop_lowest_priority"
    """The youngest requests of the lowest priority below its own fail in its place; else it fails itself."""


@dataclass(frozen=True)
class QueueOptions:
    """The queue of a server: ``queue=`` of all servers with a bound ``max_queue`` on the requests that wait.

    Attributes:
        max_cost: Summed cost of the requests that wait at most; None means no bound.
        overflow: The policy beyond the bounds: ``"reject"``, ``"block"``, ``"drop_oldest"`` or
            ``"drop_lowest_priority"``; see :class:`OverflowPolicy`.
        block_timeout: Seconds that ``"block"`` waits at most; None waits for ever.
        ageing: Seconds of waiting that count as much as one level of priority, so that no request waits for ever; None:
            priorities are strict.
        order: Of requests of equal priority and key: ``"arrival"``, or ``"deadline"``, the earliest first.
    """

    max_cost: float | None = None
    overflow: OverflowPolicy | Literal["reject", "block", "drop_oldest", "drop_lowest_priority"] = OverflowPolicy.REJECT
    block_timeout: float | None = None
    ageing: float | None = 1.0
    order: Literal["arrival", "deadline"] = "arrival"

    def __post_init__(self) -> None:
        object.__setattr__(self, "overflow", OverflowPolicy(self.overflow))
        if self.max_cost is not None and not self.max_cost > 0:
            raise ValueError(f"max_cost must be positive, but is {self.max_cost}")
        check_seconds(block_timeout=self.block_timeout)
        if self.ageing is not None and not self.ageing > 0:
            raise ValueError(f"ageing must be positive seconds or None, but is {self.ageing}")
        check_choice("order", self.order, "arrival", "deadline")


class Bucket:
    """The waiting entries of one key: a lane for each priority.

    Attributes:
        earliest: Lower bound of the deadlines of its entries. It may be that of an entry that has left: it is reset
            when the bucket is empty.
    """

    __slots__ = ("cost", "count", "earliest", "key", "lanes")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.lanes: dict[int, Lane] = {}
        self.count = 0
        self.cost: float = 0
        self.earliest = math.inf

    def heads(self) -> Iterator[Entry]:
        """The oldest entry of each lane."""
        for lane in self.lanes.values():
            yield next(iter(lane.values()))


class WaitingLine:
    """Entries that wait, bounded by count and cost.

    The next entry is the most urgent one. Among entries of equal priority that is the one submitted first, or the one
    with the earliest deadline. With ageing,
    an entry of a higher priority overtakes those that have waited less than ``ageing`` seconds longer per level.
    Because all entries age at the same speed, their order never changes while they wait.

    Args:
        max_queue: Entries at most.
        options: Further bounds, the policy beyond them, and the order.
    """

    def __init__(self, max_queue: int, options: QueueOptions) -> None:
        check_whole(1, max_queue=max_queue)
        self.max_queue = max_queue
        self.options = options
        self._ageing = options.ageing
        self._lane = DeadlineLane if options.order == "deadline" else Lane
        self._buckets: dict[Hashable, Bucket] = {}
        self._blocked = Lane()
        self.count = 0
        self.cost: float = 0

    @property
    def blocked(self) -> int:
        """The number of entries that wait for room."""
        return len(self._blocked)

    def rank(self, entry: Entry) -> tuple[float, int]:
        """The smallest rank is served first."""
        if entry.priority == LAST:
            return math.inf, entry.number
        if self._ageing is None:
            return -entry.priority, entry.number
        return entry.arrived - entry.priority * self._ageing, entry.number

    # -- in ------------------------------------------------------------------------------------------------------------

    def add(self, entry: Entry, *, may_block: bool) -> list[Entry]:
        """Queue an entry; returns those that were dropped to make room for it.

        Args:
            entry: A new one.
            may_block: True if its caller can wait for room, where the policy is ``block``.

        Raises:
            QueueFull: There is no room, and none can be made; nothing was dropped.
            ItemTooLarge: Its cost alone exceeds the bound.
        """
        most = self.options.max_cost
        if most is not None and entry.cost > most:
            raise ItemTooLarge(
                f"the item costs {entry.cost:g}, and max_cost of the queue is {most:g}: split it, or raise max_cost"
            )
        if self._fits(entry) and not self._blocked:
            self._put(entry)
            return []
        if self.options.overflow is OverflowPolicy.BLOCK and may_block:
            entry.state = State.BLOCKED
            self._blocked[entry.number] = entry
            return []
        drops = self.options.overflow in (OverflowPolicy.DROP_OLDEST, OverflowPolicy.DROP_LOWEST_PRIORITY)
        victims = self._victims(entry) if drops else []
        if not victims:
            raise self.full(entry)
        for victim in victims:
            self.remove(victim)
        self._put(entry)
        return victims

    def full(self, entry: Entry) -> QueueFull:
        """The error for an entry without room, or one that was dropped."""
        most = self.options.max_cost
        by_cost = most is not None and self.cost + entry.cost > most
        limit = most if by_cost and most is not None else self.max_queue
        depth = self.cost if by_cost else self.count
        what = "cost" if by_cost else "requests"
        return QueueFull(
            f"the queue is full: {depth:g} of {limit:g} {what} ({self.options.overflow})",
            limit=limit,
            depth=depth,
        )

    def restore(self, entries: Iterable[Entry]) -> None:
        """Put back entries that had been taken, in their old places. They were admitted, so no bound refuses them."""
        lanes: dict[int, Lane] = {}
        for entry in entries:
            self._put(entry)
            lane = self._buckets[entry.key].lanes[entry.priority]
            lanes[id(lane)] = lane
        for lane in lanes.values():
            for number in sorted(lane):
                lane.move_to_end(number)

    def put_last(self, entry: Entry) -> None:
        """Move a queued entry after all others, including later ones; several such entries keep their order."""
        self.remove(entry)
        entry.priority = LAST
        self.restore([entry])

    def admit_blocked(self) -> list[Entry]:
        """Queue those that wait for room, as far as there is room now, in the order of submission; returns them."""
        admitted: list[Entry] = []
        while self._blocked:
            entry = next(iter(self._blocked.values()))
            if not self._fits(entry):
                break
            del self._blocked[entry.number]
            self._put(entry)
            admitted.append(entry)
        return admitted

    def _fits(self, entry: Entry) -> bool:
        most = self.options.max_cost
        return self.count < self.max_queue and (most is None or self.cost + entry.cost <= most)

    def _put(self, entry: Entry) -> None:
        entry.state = State.QUEUED
        bucket = self._buckets.get(entry.key)
        if bucket is None:
            bucket = self._buckets[entry.key] = Bucket(entry.key)
        lane = bucket.lanes.get(entry.priority)
        if lane is None:
            lane = bucket.lanes[entry.priority] = self._lane()
        lane[entry.number] = entry
        bucket.count += 1
        bucket.cost += entry.cost
        if entry.deadline is not None and entry.deadline < bucket.earliest:
            bucket.earliest = entry.deadline
        self.count += 1
        self.cost += entry.cost

    def _victims(self, entry: Entry) -> list[Entry]:
        """The entries to drop so that the entry fits; empty if that is not enough."""
        most = self.options.max_cost
        count = self.count + 1 - self.max_queue
        cost = -math.inf if most is None else self.cost + entry.cost - most
        found: list[Entry] = []
        for victim in self._droppable(entry):
            if count <= 0 and cost <= 0:
                break
            found.append(victim)
            count -= 1
            cost -= victim.cost
        return found if count <= 0 and cost <= 0 else []

    def _droppable(self, entry: Entry) -> Iterator[Entry]:
        lanes = [(priority, lane) for bucket in self._buckets.values() for priority, lane in bucket.lanes.items()]
        if self.options.overflow is OverflowPolicy.DROP_OLDEST:
            yield from heapq.merge(*(lane.values() for _, lane in lanes), key=lambda each: each.number)
        else:
            for level in sorted({priority for priority, _ in lanes if priority < entry.priority}):
                youngest = [reversed(lane.values()) for priority, lane in lanes if priority == level]
                yield from heapq.merge(*youngest, key=lambda each: -each.number)

    # -- out -----------------------------------------------------------------------------------------------------------

    def remove(self, entry: Entry) -> None:
        """Take an entry out, wherever it waits: O(1). Nothing happens if it does not wait."""
        if entry.state is State.BLOCKED:
            del self._blocked[entry.number]
            entry.state = State.NEW
        elif entry.state is State.QUEUED:
            entry.state = State.NEW
            bucket = self._buckets[entry.key]
            del bucket.lanes[entry.priority][entry.number]
            self._left(bucket, entry.priority, 1, entry.cost)

    def _left(self, bucket: Bucket, priority: int, count: int, cost: float) -> None:
        """So many entries of a lane have left it."""
        if not bucket.lanes[priority]:
            del bucket.lanes[priority]
        bucket.count -= count
        bucket.cost -= cost
        self.count -= count
        self.cost -= cost
        if not bucket.count:
            del self._buckets[bucket.key]
        if not self.count:
            self.cost = 0  # sums of floats drift

    def buckets(self) -> list[Bucket]:
        """The buckets that hold something, the one with the most urgent entry first."""
        found = list(self._buckets.values())
        if len(found) > 1:
            found.sort(key=lambda bucket: min(self.rank(head) for head in bucket.heads()))
        return found

    def pop(self, bucket: Bucket) -> Entry:
        """Take the most urgent entry of a bucket."""
        entry = self.peek(bucket)
        self.remove(entry)
        return entry

    def take(self, bucket: Bucket, count: int) -> list[Entry]:
        """Take the ``count`` most urgent entries of a bucket, in order; the bucket has at least that many."""
        if len(bucket.lanes) > 1:
            return [self.pop(bucket) for _ in range(count)]
        ((priority, lane),) = bucket.lanes.items()
        taken = lane.take(count)
        for entry in taken:
            entry.state = State.NEW
        self._left(bucket, priority, count, sum([entry.cost for entry in taken]))
        return taken

    def peek(self, bucket: Bucket) -> Entry:
        """The most urgent entry of a bucket."""
        if len(bucket.lanes) == 1:
            (lane,) = bucket.lanes.values()
            return lane.first()
        return bucket.lanes[min(bucket.heads(), key=self.rank).priority].first()

    def entries(self) -> Iterator[Entry]:
        """All queued entries, in no order."""
        for bucket in self._buckets.values():
            for lane in bucket.lanes.values():
                yield from lane.values()
