"""``FairPolicy``: the bounded queues of all tenants over a ``FairTree``. Pure: no I/O, and time is an argument."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping

from callboard.patterns.contract.checks import check_whole
from callboard.patterns.fairshare.nodes import Leaf
from callboard.patterns.fairshare.settings import FairOverflow, Path, Tenant, shown
from callboard.patterns.fairshare.tree import FairTree
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import ItemTooLarge, QueueFull

__all__ = ["FairPolicy"]


class FairPolicy:
    """Admits requests to the queues of their tenants, and selects the next one.

    An entry's ``key`` is its tenant's :class:`Leaf` once it was added.

    Args:
        settings: Settings of tenants and groups, by path.
        default: Settings of other tenants; None refuses them.
        max_queue: Requests that wait at most, of all tenants.
        overflow: The policy beyond that, and beyond a tenant's own bounds.

    Raises:
        ValueError: ``max_queue`` is below 1.
    """

    def __init__(
        self, settings: Mapping[Path, Tenant], default: Tenant | None, max_queue: int, overflow: FairOverflow
    ) -> None:
        check_whole(1, max_queue=max_queue)
        self.tree = FairTree(settings, default)
        self.max_queue = max_queue
        self.blocked = 0
        self._overflow = overflow
        self._sizes: dict[int, OrderedDict[Path, Leaf]] = {}  # tenants by the number of their waiting requests
        self._largest = 0
        self._hopeful: OrderedDict[Path, Leaf] = OrderedDict()  # with blocked requests, for which they have room
        self._begun: set[int] = set()  # requests that wait in the middle of their calls, beside the queues

    # -- in ------------------------------------------------------------------------------------------------------------

    def add(
        self, entry: Entry, tenant: Hashable, now: float, *, may_block: bool = False, retry_after: float | None = None
    ) -> list[Entry]:
        """Queue a new entry; returns those that were dropped for it.

        Raises:
            UnknownTenant: The tenant has no settings.
            QueueFull: There is no room, and none can be made.
            ItemTooLarge: Its cost alone exceeds the cost that its tenant may have waiting.
        """
        leaf = self.tree.leaf(tenant, now)
        entry.key = leaf
        try:
            return self._add(leaf, entry, now, may_block, retry_after)
        except (QueueFull, ItemTooLarge):
            self.tree.forget(leaf, now)  # it may have been made for this one
            raise

    def _add(self, leaf: Leaf, entry: Entry, now: float, may_block: bool, retry_after: float | None) -> list[Entry]:
        most = leaf.settings.max_queue_cost
        if most is not None and entry.cost > most:
            raise ItemTooLarge(
                f"the item costs {entry.cost:g}, and tenant {shown(leaf.path)} may queue {most:g} (max_queue_cost): "
                "split it, or raise max_queue_cost of the tenant"
            )
        own = not leaf.blocked and self._fits(leaf, entry)
        if own and self.tree.queued < self.max_queue:
            self._put(leaf, entry)
            return []
        if self._overflow is FairOverflow.BLOCK and may_block:
            entry.state = State.BLOCKED
            leaf.blocked[entry.number] = entry
            self.blocked += 1
            if own:
                self._hopeful[leaf.path] = leaf
            return []
        if self._overflow is FairOverflow.DROP_NEWEST_OF_LARGEST and own and len(leaf.waiting) < self._largest:
            largest = next(iter(self._sizes[self._largest].values()))
            victim = next(reversed(largest.waiting.values()))
            self.remove(victim, now)
            self._put(leaf, entry)
            return [victim]
        raise self.full(entry, retry_after)

    def full(self, entry: Entry, retry_after: float | None = None) -> QueueFull:
        """The error of an entry that finds no room, or was dropped."""
        leaf = _leaf(entry)
        settings = leaf.settings
        limit: float = self.max_queue
        depth: float = self.tree.queued
        whose, what = "all tenants", "requests"
        if len(leaf.waiting) >= settings.max_queue:
            whose, limit, depth = f"tenant {shown(leaf.path)}", settings.max_queue, len(leaf.waiting)
        elif not self._fits(leaf, entry) and settings.max_queue_cost is not None:
            whose, what, limit, depth = f"tenant {shown(leaf.path)}", "cost", settings.max_queue_cost, leaf.cost
        return QueueFull(
            f"the queue of {whose} is full: {depth:g} of {limit:g} {what} ({self._overflow.value})",
            limit=limit,
            depth=depth,
            retry_after=retry_after,
        )

    def _fits(self, leaf: Leaf, entry: Entry) -> bool:
        settings = leaf.settings
        by_cost = settings.max_queue_cost is None or leaf.cost + entry.cost <= settings.max_queue_cost
        return by_cost and len(leaf.waiting) < settings.max_queue

    def _put(self, leaf: Leaf, entry: Entry) -> None:
        leaf.waiting[entry.number] = entry
        leaf.cost += entry.cost
        self._sized(leaf, len(leaf.waiting) - 1)
        self.tree.push(leaf, entry)

    # -- out -----------------------------------------------------------------------------------------------------------

    def take(self, now: float) -> Entry | None:
        """The entry that runs next, for a slot that is free; None if none can run now."""
        entry = self.tree.take(now)
        if entry is None:
            return None
        if entry.number in self._begun:
            self._begun.discard(entry.number)
        else:
            self._left(_leaf(entry), entry)
        return entry

    def charge(self, entry: Entry, extra: float, now: float) -> None:
        """An entry that runs costs ``extra`` more than it was charged."""
        self.tree.charge(_leaf(entry), entry, extra, now)

    def park(self, entry: Entry, cost: float, now: float) -> None:
        """An entry waits in the middle of its call, which has cost ``cost`` so far.

        The rest of its cost is still to come.

        No bound of a queue counts it, and it is not dropped for another one.
        """
        leaf = _leaf(entry)
        self._begun.add(entry.number)
        self.tree.push(leaf, entry)
        self.tree.finish(leaf, entry, cost, now)
        entry.cost = max(0.0, entry.cost - cost)

    def finish(self, entry: Entry, cost: float, now: float) -> None:
        """An entry does not run any more; its cost was ``cost``."""
        self.tree.finish(_leaf(entry), entry, cost, now)

    def waiting(self, entry: Entry) -> int:
        """The number of waiting requests of the entry's tenant."""
        return len(_leaf(entry).waiting)

    def remove(self, entry: Entry, now: float) -> None:
        """Take an entry out that waits, to run or for room: O(1). Nothing happens if it does not."""
        leaf = _leaf(entry)
        if entry.state is State.BLOCKED:
            entry.state = State.NEW
            del leaf.blocked[entry.number]
            self.blocked -= 1
            if not leaf.blocked:
                self._hopeful.pop(leaf.path, None)
            else:
                self._hope(leaf)  # the next one may be smaller
            self.tree.forget(leaf, now)
        elif entry.state is State.QUEUED:
            if entry.number in self._begun:
                self._begun.discard(entry.number)
            else:
                self._left(leaf, entry)
            self.tree.remove(leaf, entry, now)

    def admit_blocked(self) -> int:
        """Queue entries that wait for room while there is some, tenants in turn; returns their number."""
        admitted = 0
        while self._hopeful and self.tree.queued < self.max_queue:
            _, leaf = self._hopeful.popitem(last=False)
            _, entry = leaf.blocked.popitem(last=False)
            self.blocked -= 1
            self._put(leaf, entry)
            self._hope(leaf)
            admitted += 1
        return admitted

    def _left(self, leaf: Leaf, entry: Entry) -> None:
        del leaf.waiting[entry.number]
        leaf.cost = leaf.cost - entry.cost if leaf.waiting else 0.0  # sums of floats drift
        self._sized(leaf, len(leaf.waiting) + 1)
        if leaf.blocked:
            self._hope(leaf)

    def _hope(self, leaf: Leaf) -> None:
        """Note whether the tenant's next blocked request would fit into its own queue."""
        if leaf.blocked and self._fits(leaf, next(iter(leaf.blocked.values()))):
            self._hopeful[leaf.path] = leaf
        else:
            self._hopeful.pop(leaf.path, None)

    def _sized(self, leaf: Leaf, before: int) -> None:
        """The number of a tenant's waiting requests has changed by one."""
        if self._overflow is not FairOverflow.DROP_NEWEST_OF_LARGEST:
            return
        after = len(leaf.waiting)
        if before:
            del self._sizes[before][leaf.path]
            if not self._sizes[before]:
                del self._sizes[before]
        if after:
            self._sizes.setdefault(after, OrderedDict())[leaf.path] = leaf
        if after > self._largest or (before == self._largest and before not in self._sizes):
            self._largest = after


def _leaf(entry: Entry) -> Leaf:
    leaf = entry.key
    assert isinstance(leaf, Leaf)
    return leaf
