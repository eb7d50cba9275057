"""Tenants and groups, and their waiting requests by priority."""

import heapq
import math
from collections import OrderedDict
from typing import Any

from callboard.patterns.fairshare.settings import Path, Tenant
from callboard.patterns.requests.entries import Entry, State

__all__ = ["Flow", "GroupFlow", "Leaf", "LeafFlow", "Node"]

FEW = 64
"""Obsolete records that may always stay in a heap."""


class Node:
    """A tenant or a group: its settings, usage, and flows by priority.

    Attributes:
        path: Path of the tenant or group.
        parent: The group that it is in; None for the root.
        pinned: It has settings of its own, so it is never dropped.
        running: Requests that run.
        served: Summed cost of all started requests, corrected by their actual costs.
        started: Number of requests started.
        capped: True if it uses as much as it may, as of the last look.
        refill_at: Time of the next check of its rate.
    """

    __slots__ = (
        *("capped", "flows", "limited", "members", "parent", "path", "per_cost", "pinned", "refill_at", "running"),
        *("served", "settings", "started", "tokens", "tokens_at"),
    )

    def __init__(self, path: Path, parent: "Node | None", settings: Tenant, now: float, *, pinned: bool) -> None:
        self.path = path
        self.parent = parent
        self.pinned = pinned
        self.flows: dict[int, Any] = {}  # LeafFlow or GroupFlow, all alike
        self.members = 0  # nodes in this group
        if parent is not None:
            parent.members += 1
        self.running = 0
        self.served = 0.0
        self.started = 0
        self.capped = False
        self.refill_at: float | None = None
        self.tokens = math.inf
        self.tokens_at = now
        self.configure(settings, now)

    def configure(self, settings: Tenant, now: float) -> None:
        """Use other settings from now on."""
        if self.tokens < math.inf:
            self.tokens, self.tokens_at = self.level(now), now
        self.settings = settings
        self.per_cost = 1 / settings.weight
        self.limited = settings.max_in_flight is not None or settings.rate is not None
        self.tokens = math.inf if settings.rate is None else min(self.tokens, self.burst)

    @property
    def burst(self) -> float:
        """Cost that may be used at once."""
        settings = self.settings
        if settings.rate is None:
            return math.inf
        return settings.rate if settings.burst is None else settings.burst

    def level(self, now: float) -> float:
        """The cost that the rate still allows; negative after a request that went beyond it."""
        if self.settings.rate is None:
            return math.inf
        return min(self.burst, self.tokens + (now - self.tokens_at) * self.settings.rate)

    def spend(self, cost: float, now: float) -> None:
        """Count a cost against the rate; a negative cost is refunded."""
        if self.settings.rate is not None:
            self.tokens, self.tokens_at = self.level(now) - cost, now

    def refilled_at(self, now: float, level: float = 0.0) -> float:
        """The time at which the rate allows ``level``; ``now`` if it already does."""
        missing = level - self.level(now)
        if self.settings.rate is None or missing <= 1e-9 * self.burst:
            return now
        return now + missing / self.settings.rate

    def over(self, now: float) -> bool:
        """True if it uses its full allowance."""
        most = self.settings.max_in_flight
        return (most is not None and self.running >= most) or self.refilled_at(now) > now


class Leaf(Node):
    """A tenant.

    Attributes:
        waiting: Requests of the tenant that wait to run, in the order in which they were queued.
        blocked: Requests that wait for room, in the order of submission.
        cost: Summed cost of ``waiting``.
    """

    __slots__ = ("blocked", "cost", "waiting")

    def __init__(self, path: Path, parent: Node, settings: Tenant, now: float, *, pinned: bool) -> None:
        super().__init__(path, parent, settings, now, pinned=pinned)
        self.waiting: OrderedDict[int, Entry] = OrderedDict()
        self.blocked: OrderedDict[int, Entry] = OrderedDict()
        self.cost = 0.0


class Flow:
    """The waiting and running entries of a node at one priority.

    Attributes:
        parent: The flow of the node's group, at the same priority; None for the root's.
        vt: Virtual time: the cost that it was served for, divided by its weight, since it came, with lifts.
        stamp: Stamp of its record in the parent's heap; -1 while it has none because nothing of it can run.
        over: True if its next request exceeds a cap, so that it is served after all others.
        load: Requests that wait or run.
        shelved: The virtual time under which the parent has it among its idle ones; None if it does not.
    """

    __slots__ = ("load", "node", "over", "parent", "priority", "shelved", "stamp", "vt")

    def __init__(self, node: Node, parent: "GroupFlow | None", priority: int) -> None:
        self.node = node
        self.parent = parent
        self.priority = priority
        self.vt = 0.0
        self.stamp = -1
        self.over = False
        self.load = 0
        self.shelved: float | None = None

    def best(self) -> bool | None:
        """True if its next entry would exceed a cap; False if not; None if it can run nothing."""
        raise NotImplementedError


class LeafFlow(Flow):
    """Requests of one tenant and one priority, the earliest deadline first, then in the order of submission."""

    __slots__ = ("_heap", "queued")

    def __init__(self, node: Node, parent: "GroupFlow | None", priority: int) -> None:
        super().__init__(node, parent, priority)
        self._heap: list[tuple[float, int, Entry]] = []
        self.queued = 0

    def best(self) -> bool | None:
        if not self.queued:
            return None
        if not self.node.capped:
            return False
        return None if self.node.settings.hard else True

    def push(self, entry: Entry) -> None:
        heapq.heappush(self._heap, (math.inf if entry.deadline is None else entry.deadline, entry.number, entry))
        self.queued += 1

    def pop(self) -> Entry:
        """Take the next request. There is one."""
        while True:
            entry = heapq.heappop(self._heap)[2]
            if entry.state is State.QUEUED:
                self.queued -= 1
                return entry

    def gone(self) -> None:
        """One of the requests is not queued any more: amortised O(1)."""
        self.queued -= 1
        if len(self._heap) > FEW + 2 * self.queued:
            self._heap = [record for record in self._heap if record[2].state is State.QUEUED]
            heapq.heapify(self._heap)


class GroupFlow(Flow):
    """The flows of a group's members at one priority, the one with the smallest virtual time first.

    Attributes:
        heap: ``(over, vt, stamp, flow)`` of members that can run something, and records that are out of date.
        virtual: The largest virtual time at which a member was served: the group's own clock.
        idle: ``(vt, order, flow)`` of members without load, which are kept until the clock has reached them.
    """

    __slots__ = ("heap", "idle", "virtual")

    def __init__(self, node: Node, parent: "GroupFlow | None", priority: int) -> None:
        super().__init__(node, parent, priority)
        self.heap: list[tuple[bool, float, int, Any]] = []
        self.virtual = 0.0
        self.idle: list[tuple[float, int, Any]] = []

    def top(self) -> Any:
        """The member that is served next; None if none can run anything."""
        heap = self.heap
        while heap:
            record = heap[0]
            if record[3].stamp == record[2]:
                return record[3]
            heapq.heappop(heap)
        return None

    def put(self, flow: Flow, stamp: int) -> None:
        """Enter a member under its present virtual time; its earlier record is out of date: amortised O(log n)."""
        flow.stamp = stamp
        heap = self.heap
        heapq.heappush(heap, (flow.over, flow.vt, stamp, flow))
        if len(heap) > FEW + 2 * self.node.members:
            self.heap = [record for record in heap if record[3].stamp == record[2]]
            heapq.heapify(self.heap)

    def floor(self) -> float:
        """The virtual time of a returning member: unused service is not saved up."""
        top = self.top()
        return self.virtual if top is None or top.over else min(self.virtual, top.vt)

    def best(self) -> bool | None:
        top = self.top()
        if top is None:
            return None
        if not self.node.capped:
            over: bool = top.over
            return over
        return None if self.node.settings.hard else True
