"""``FairTree``: which request is next, so that tenants are served by weight. No clock, no I/O, no bounds of queues."""

import heapq
import itertools
from bisect import insort
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from callboard.patterns.fairshare.nodes import Flow, GroupFlow, Leaf, LeafFlow, Node
from callboard.patterns.fairshare.settings import Path, Tenant, UnknownTenant, path_of, shown
from callboard.patterns.requests.entries import Entry, State

__all__ = ["FairTree"]


class FairTree:
    """Virtual-time fair queueing of tenants in groups.

    At each priority, each group serves the member with the smallest virtual time, which then grows by the request's
    cost divided by the member's weight, and is corrected when the actual cost is known. If requests have different
    costs that are known only afterwards, this is the virtual token counter of Sheng et al., "Fairness in Serving Large
    Language Models", OSDI 2024; with costs known in advance it is start-time fair queueing (Goyal, Vin and Cheng,
    SIGCOMM 1996). While two members f and m both have requests waiting, their service differs by at most
    ``|S_f / w_f - S_m / w_m| <= max_f / w_f + max_m / w_m``, where ``max`` is their largest cost.

    A member that returns is lifted to the clock of its group, so that it does not accumulate credit. Higher priorities
    are served first; within one, the shares are fair. A member at its cap is served after all others, or waits if the
    cap is hard.

    Adding, taking and finishing a request costs O(log n) for n members of a group, once for each level of groups, and
    O(p) for p different priorities that have requests. Removing one that waits is O(1).

    Args:
        settings: Settings of tenants and groups, by path.
        default: Settings of tenants that ``settings`` does not name; None: they are refused.
    """

    def __init__(self, settings: Mapping[Path, Tenant], default: Tenant | None) -> None:
        self._settings = dict(settings)
        self._default = default
        self._root = Node((), None, Tenant(), 0.0, pinned=True)
        self._groups: dict[Path, Node] = {(): self._root}
        self._leaves: dict[Path, Leaf] = {}
        self._order: list[int] = []  # priorities that have requests, negated: the highest first
        self._refills: list[tuple[float, int, Node]] = []
        self._numbers = itertools.count()
        self.queued = 0
        self.running = 0
        self.served = 0.0

    # -- tenants -------------------------------------------------------------------------------------------------------

    def leaf(self, tenant: Hashable, now: float) -> Leaf:
        """The tenant, made at its first request.

        Raises:
            UnknownTenant: It has no settings, and there are no default settings.
        """
        path = path_of(tenant)
        found = self._leaves.get(path)
        if found is None:
            settings = self._settings.get(path, self._default)
            if settings is None:
                raise UnknownTenant(f"there is no tenant {shown(path)}; name it in tenants=, or give default=", tenant)
            found = Leaf(path, self._group(path[:-1], now), settings, now, pinned=path in self._settings)
            self._leaves[path] = found
        return found

    def _group(self, path: Path, now: float) -> Node:
        found = self._groups.get(path)
        if found is None:
            settings = self._settings.get(path, Tenant())
            parent = self._group(path[:-1], now)
            found = self._groups[path] = Node(path, parent, settings, now, pinned=path in self._settings)
        return found

    def configure(self, path: Path, settings: Tenant, now: float) -> None:
        """Give a tenant or a group other settings, also while it has requests."""
        self._settings[path] = settings
        for node in (self._leaves.get(path), self._groups.get(path)):
            if node is not None:
                node.configure(settings, now)
                node.pinned = True
                self._look(node, now)
                for flow in node.flows.values():  # its caps may be hard now, or not any more
                    self._changed(flow)

    def settings_of(self, path: Path) -> Tenant:
        """The settings that hold for a tenant or group.

        Raises:
            UnknownTenant: None do.
        """
        found = self._settings.get(path) or (Tenant() if path in self._groups else self._default)
        if found is None:
            raise UnknownTenant(f"there is no tenant {shown(path)}; name it in tenants=, or give default=", path)
        return found

    def leaves(self) -> Iterator[Leaf]:
        """The recorded tenants: those with settings of their own, and those that are not idle."""
        yield from self._leaves.values()

    def lag(self, leaf: Leaf) -> float:
        """The cost by which a tenant with waiting requests is behind its group's clock; negative: ahead of it."""
        flows = [flow for flow in leaf.flows.values() if flow.queued]
        return float(sum((flow.parent.virtual - flow.vt) * leaf.settings.weight for flow in flows))

    def forget(self, node: Node, now: float) -> None:
        """Drop a node that has no requests, no settings of its own, and a full allowance; else nothing happens."""
        kept = node.pinned or node.flows or node.members or (isinstance(node, Leaf) and node.blocked)
        known: dict[Path, Any] = self._leaves if isinstance(node, Leaf) else self._groups
        if kept or known.get(node.path) is not node or self._awaits_refill(node, now):
            return
        del known[node.path]
        if node.parent is not None:
            node.parent.members -= 1
            self.forget(node.parent, now)

    # -- requests ------------------------------------------------------------------------------------------------------

    def push(self, leaf: Leaf, entry: Entry) -> None:
        """An entry waits."""
        entry.state = State.QUEUED
        flow = leaf.flows.get(entry.priority) or self._open(leaf, entry.priority)
        flow.push(entry)
        self.queued += 1
        if flow.stamp < 0:
            self._changed(flow)
        while flow is not None:
            flow.load += 1
            flow = flow.parent

    def take(self, now: float) -> Entry | None:
        """Take the next entry, and charge its tenant for it; None if none can run now."""
        self._refill(now)
        flow = self._next()
        if flow is None:
            return None
        while isinstance(flow, GroupFlow):
            member = flow.top()
            flow.virtual = max(flow.virtual, member.vt)
            flow = member
        entry: Entry = flow.pop()
        entry.state = State.RUNNING
        self.queued -= 1
        self.running += 1
        self.served += entry.cost
        cost = entry.cost
        while flow.parent is not None:
            node, parent = flow.node, flow.parent
            node.running += 1
            node.started += 1
            node.served += cost
            flow.vt += cost * node.per_cost
            if node.limited:
                node.spend(cost, now)
                self._look(node, now)
            self._place(flow)
            if parent.idle and parent.idle[0][0] <= parent.virtual:
                self._collect(parent, now)
            flow = parent
        return entry

    def finish(self, leaf: Leaf, entry: Entry, cost: float, now: float) -> None:
        """An entry does not run any more; its cost was ``cost``."""
        extra = cost - entry.cost
        self.running -= 1
        self.served += extra
        flow = leaf.flows[entry.priority]
        while flow.parent is not None:
            flow.node.running -= 1
            self._spend(flow, extra, now)
            flow = flow.parent
        self._unload(leaf.flows[entry.priority], now)

    def charge(self, leaf: Leaf, entry: Entry, extra: float, now: float) -> None:
        """An entry that runs costs ``extra`` more than it was charged."""
        entry.cost += extra
        self.served += extra
        flow = leaf.flows[entry.priority]
        while flow.parent is not None:
            self._spend(flow, extra, now)
            flow = flow.parent

    def _spend(self, flow: Flow, extra: float, now: float) -> None:
        node = flow.node
        node.served += extra
        if extra:
            flow.vt += extra * node.per_cost
            if flow.stamp >= 0:
                self._place(flow)
        if node.limited:
            node.spend(extra, now)
            self._look(node, now)

    def remove(self, leaf: Leaf, entry: Entry, now: float) -> None:
        """An entry does not wait any more."""
        entry.state = State.NEW
        flow = leaf.flows[entry.priority]
        flow.gone()
        self.queued -= 1
        if not flow.queued:
            self._changed(flow)
        self._unload(flow, now)

    def ready_at(self, now: float) -> float | None:
        """The time at which :meth:`take` may return an entry unless something happens before; None if none is due."""
        if not self.queued:
            return None
        self._refill(now)
        if self._next() is not None:
            return now
        return self._refills[0][0] if self._refills else None

    # -- order ---------------------------------------------------------------------------------------------------------

    def _next(self) -> Any:
        """The root's flow of the highest priority that runs within its caps; else of the highest one beyond them."""
        spare = None
        for level in self._order:
            flow = self._root.flows[-level]
            over = flow.best()
            if over is False:
                return flow
            if over and spare is None:
                spare = flow
        return spare

    def _changed(self, flow: Flow) -> None:
        """Update the index of a flow whose state (runnable, runnable beyond a cap, neither) may have changed."""
        while flow.parent is not None:
            over = flow.best()
            if over is None if flow.stamp < 0 else over is flow.over:
                return
            self._place(flow)
            flow = flow.parent

    def _place(self, flow: Flow) -> None:
        """Enter it in its parent under its present virtual time, or take it out if it can run nothing."""
        over, parent = flow.best(), flow.parent
        assert parent is not None
        if over is None:
            flow.stamp = -1
            return
        if flow.stamp < 0 or (flow.over and not over):  # it was idle or capped: that gives it no credit
            flow.vt = max(flow.vt, parent.floor())
        flow.over = over
        parent.put(flow, next(self._numbers))

    # -- coming and going ----------------------------------------------------------------------------------------------

    def _open(self, node: Node, priority: int) -> Any:
        """The node's flow at a priority, made with those of the groups above it."""
        found = node.flows.get(priority)
        if found is None:
            if node.parent is None:
                found = GroupFlow(node, None, priority)
                insort(self._order, -priority)
            else:
                parent = self._open(node.parent, priority)
                found = (
                    LeafFlow(node, parent, priority) if isinstance(node, Leaf) else GroupFlow(node, parent, priority)
                )
            node.flows[priority] = found
        return found

    def _unload(self, flow: Any, now: float) -> None:
        """A request less. A flow without any is kept as long as its virtual time is ahead of its group's clock."""
        while flow is not None:
            flow.load -= 1
            parent = flow.parent
            if not flow.load:
                if isinstance(flow, GroupFlow):
                    for _, _, member in flow.idle:
                        self._drop(member, now)
                    flow.idle = []
                if parent is None:
                    self._order.remove(-flow.priority)
                    del flow.node.flows[flow.priority]
                elif flow.shelved != flow.vt:
                    flow.shelved = flow.vt
                    heapq.heappush(parent.idle, (flow.vt, next(self._numbers), flow))
            flow = parent

    def _collect(self, group: GroupFlow, now: float) -> None:
        """Drop idle members that would be lifted to the clock on their return anyway."""
        floor = group.floor()
        while group.idle and group.idle[0][0] <= floor:
            vt, _, flow = heapq.heappop(group.idle)
            if flow.shelved == vt:  # else there is a later record
                flow.shelved = None
                self._drop(flow, now)

    def _drop(self, flow: Flow, now: float) -> None:
        if not flow.load and flow.node.flows.get(flow.priority) is flow:
            del flow.node.flows[flow.priority]
            self.forget(flow.node, now)

    # -- caps ----------------------------------------------------------------------------------------------------------

    def _look(self, node: Node, now: float) -> None:
        """Update a node that may have reached or left a cap."""
        over = node.over(now)
        at = node.refilled_at(now)
        if at > now:
            self._look_again(node, at)
        if over is not node.capped:
            node.capped = over
            for flow in node.flows.values():
                self._changed(flow)

    def _look_again(self, node: Node, at: float) -> None:
        if node.refill_at is None or at < node.refill_at:
            node.refill_at = at
            heapq.heappush(self._refills, (at, next(self._numbers), node))

    def _refill(self, now: float) -> None:
        refills = self._refills
        while refills and refills[0][0] <= now:
            node = heapq.heappop(refills)[2]
            node.refill_at = None
            self._look(node, now)
            self.forget(node, now)

    def _awaits_refill(self, node: Node, now: float) -> bool:
        """True if part of its rate is used and not refilled yet: dropping the node would refill it."""
        at = node.refilled_at(now, node.burst) if node.settings.rate is not None else now
        if at > now:
            self._look_again(node, at)
        return at > now
