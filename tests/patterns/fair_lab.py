"""Shared by the tests of fair sharing: a policy driven by hand, and how much each tenant was served."""

import itertools
from collections import Counter
from collections.abc import Hashable
from typing import Any

from callboard.patterns.fairshare.policy import FairPolicy
from callboard.patterns.fairshare.settings import FairOverflow, Tenant, path_of
from callboard.patterns.requests.entries import Entry, State


class Bench:
    """A policy, and one slot after the other. ``item`` of an entry is the tenant."""

    def __init__(
        self,
        tenants: dict[Any, Tenant] | None = None,
        default: Tenant | None = Tenant(max_queue=10_000),  # noqa: B008 -- frozen
        max_queue: int = 100_000,
        overflow: FairOverflow = FairOverflow.REJECT,
    ) -> None:
        settings = {path_of(name): each for name, each in (tenants or {}).items()}
        self.policy = FairPolicy(settings, default, max_queue, overflow)
        self.now = 0.0
        self.served: Counter[Hashable] = Counter()
        self._numbers = itertools.count()

    def add(self, tenant: Hashable, cost: float = 1, *, may_block: bool = False, **options: Any) -> Entry:
        entry = Entry(next(self._numbers), tenant, self.now, cost=cost, **options)
        self.dropped = self.policy.add(entry, tenant, self.now, may_block=may_block)
        return entry

    def fill(self, tenant: Hashable, n: int, cost: float = 1, **options: Any) -> list[Entry]:
        return [self.add(tenant, cost, **options) for _ in range(n)]

    def take(self) -> Entry | None:
        entry = self.policy.take(self.now)
        if entry is not None:
            assert entry.state is State.RUNNING
            self.served[entry.item] += entry.cost  # type: ignore[assignment]
        return entry

    def finish(self, entry: Entry, cost: float | None = None) -> None:
        self.policy.finish(entry, entry.cost if cost is None else cost, self.now)
        entry.state = State.ENDED

    def run(self, n: int = 1) -> list[Any]:
        """Take and finish so many; gives their tenants."""
        found = []
        for _ in range(n):
            entry = self.take()
            if entry is None:
                break
            self.finish(entry)
            found.append(entry.item)
        return found

    def names(self) -> set[Any]:
        """The tenants that are remembered."""
        return {leaf.path for leaf in self.policy.tree.leaves()}
