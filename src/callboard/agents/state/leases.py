"""Who holds what, and who waits for whom: a table without a clock and without I/O."""

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from callboard.agents.state.regions import Region, overlaps

__all__ = ["Lease", "LeaseTable", "Request"]

_ages = itertools.count()


@dataclass(slots=True, eq=False)
class Lease:
    """A lease that was granted: ``number`` is its fencing number, ``age`` counts the leases of all states."""

    number: int
    agent: Hashable
    region: Region
    write: bool
    until: float
    age: int


@dataclass(slots=True, eq=False)
class Request:
    """A request that waits; ``slot`` is whatever the caller keeps with it."""

    agent: Hashable
    region: Region
    write: bool
    slot: Any


class LeaseTable:
    """Leases and requests of one state.

    Requests are granted in their order: one waits for the leases that it conflicts with, and for earlier requests that
    it conflicts with, so that neither readers nor writers starve. Readers do not conflict with each other, nor an agent
    with itself: a reader that is alone may become a writer.
    """

    def __init__(self) -> None:
        self.leases: dict[int, Lease] = {}
        self.waiting: dict[int, Request] = {}
        self._requests = 0
        self._issued = 0

    def try_grant(self, request: Request, until: float) -> Lease | None:
        """A lease, if nothing is in its way."""
        if (self.leases or self.waiting) and any(self._in_the_way(request, list(self.waiting.values()))):
            return None
        return self._grant(request, until)

    def enqueue(self, request: Request) -> int:
        """Let a request wait; returns its key for :meth:`withdraw`."""
        self._requests += 1
        self.waiting[self._requests] = request
        return self._requests

    def withdraw(self, key: int) -> None:
        """Forget a request that waits."""
        self.waiting.pop(key, None)

    def remove(self, number: int) -> Lease | None:
        """End a lease; None if it has ended."""
        return self.leases.pop(number, None)

    def grant_waiting(self, until: float) -> list[tuple[Request, Lease]]:
        """Grant the requests that nothing is in the way of any more."""
        granted: list[tuple[Request, Lease]] = []
        before = -1
        while before < len(granted):  # a lease that an agent gets may let an earlier request of its own pass
            before = len(granted)
            ahead: list[Request] = []
            for key, request in list(self.waiting.items()):
                if any(self._in_the_way(request, ahead)):
                    ahead.append(request)
                else:
                    del self.waiting[key]
                    granted.append((request, self._grant(request, until)))
        return granted

    def expired(self, now: float) -> list[Lease]:
        """The leases whose time is over."""
        return [lease for lease in self.leases.values() if lease.until <= now]

    def blockers(self, key: int) -> set[Hashable]:
        """The agents that a request waits for."""
        request = self.waiting[key]
        ahead = [other for k, other in self.waiting.items() if k < key]
        return {each.agent for each in self._in_the_way(request, ahead)}

    def _grant(self, request: Request, until: float) -> Lease:
        self._issued += 1
        lease = Lease(self._issued, request.agent, request.region, request.write, until, next(_ages))
        self.leases[lease.number] = lease
        return lease

    def _in_the_way(self, request: Request, ahead: list[Request]) -> Iterator[Lease | Request]:
        holds = False
        for lease in self.leases.values():
            if lease.agent == request.agent:
                holds = holds or overlaps(lease.region, request.region)
            elif _conflict(lease, request):
                yield lease
        if holds:
            return  # it waits for the other holders, not behind requests that wait for it
        for other in ahead:
            if other.agent != request.agent and _conflict(other, request):
                yield other


def _conflict(a: Lease | Request, b: Request) -> bool:
    return (a.write or b.write) and overlaps(a.region, b.region)
