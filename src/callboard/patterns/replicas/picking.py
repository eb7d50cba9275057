"""Selection of a replica with room for the next request. Pure: randomness and time are arguments."""

import bisect
import hashlib
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from callboard.patterns.contract.checks import OneOf
from callboard.patterns.replicas.member import Member, Phase

__all__ = [
    "ConsistentHash",
    "LeastOutstanding",
    "PeakEwmaChoices",
    "Picker",
    "ReplicaLoad",
    "ReplicaPolicy",
    "RoundRobin",
    "UserPolicy",
    "picker_of",
    "stable_hash",
]

POINTS = 64
"""Places of each replica on the ring."""

KEYS = 1 << 14
"""Keys whose position on the ring is cached."""

MOST_CHOICES = 8
"""Replicas that are compared for a request where the caller gives no number."""


class ReplicaPolicy(OneOf):
    """The policy that selects a replica. Members equal their texts."""

    ROUND_ROBIN = "round_robin"
    """The next one in turn."""
    LEAST_OUTSTANDING = "least_outstanding"
    """The one that runs the fewest requests."""
    P2C = "p2c"
    """The cheapest of ``choices`` that are drawn, by peak-EWMA latency times requests in flight."""
    CONSISTENT_HASH = "consistent_hash"
    """The one to which the request's key belongs, unless that has more than its share of the load."""


class ReplicaLoad(NamedTuple):
    """A replica that can take a request, as seen by a policy function of the caller.

    Attributes:
        name: Name of the replica.
        ongoing: Requests that it runs.
        max_ongoing: The maximum number of running requests.
        latency: Smoothed seconds per request; None before the first.
    """

    name: str
    ongoing: int
    max_ongoing: int
    latency: float | None


class Picker(ABC):
    """Picks one of several members."""

    @abstractmethod
    def pick(self, free: list[Member], item: Any, key: Hashable, now: float) -> Member:
        """One of ``free``, which is not empty, in the order of their places, and may be changed."""

    def changed(self, members: Sequence[Member]) -> None:
        """The pool has other members now."""


class RoundRobin(Picker):
    """The next one in turn."""

    def __init__(self) -> None:
        self._last = -1

    def pick(self, free: list[Member], item: Any, key: Hashable, now: float) -> Member:
        """The first after the last one."""
        last, found = self._last, free[0]
        for member in free:
            if member.number > last:
                found = member
                break
        self._last = found.number
        return found


class LeastOutstanding(Picker):
    """The one that runs the fewest requests; among equals the one that was picked longest ago."""

    def pick(self, free: list[Member], item: Any, key: Hashable, now: float) -> Member:
        """Counts are exact: they fall when a request ends, however it ends."""
        best = free[0]
        for member in free:
            if member.ongoing < best.ongoing or (member.ongoing == best.ongoing and member.picked < best.picked):
                best = member
        return best


class PeakEwmaChoices(Picker):
    """The cheapest of ``d`` that are drawn at random (Mitzenmacher's power of two choices, for any ``d``).

    Args:
        choices: ``d``; None: all up to eight. Where half of the replicas are slow, two choices are often both slow.
        draw: Returns a number in [0, 1).
    """

    def __init__(self, choices: int | None, draw: Callable[[], float] = random.random) -> None:
        if choices is not None and choices < 1:
            raise ValueError(f"choices must be at least 1, but is {choices}")
        self._choices = MOST_CHOICES if choices is None else choices
        self._draw = draw

    def pick(self, free: list[Member], item: Any, key: Hashable, now: float) -> Member:
        """Draws without replacement."""
        if len(free) > self._choices:
            for index in range(self._choices):
                other = index + int(self._draw() * (len(free) - index))
                free[index], free[other] = free[other], free[index]
            del free[self._choices :]
        best = free[0]
        if len(free) > 1:
            least = math.inf
            for member in free:
                cost = member.cost(now)
                if cost < least or (cost == least and member.picked < best.picked):
                    best, least = member, cost
        return best


class ConsistentHash(Picker):
    """A ring of hashes: each key has a home, and a replica that comes or goes moves 1/n of the keys.

    No replica runs more than ``bound`` times the mean, rounded up; excess requests go to the next replica on the ring.
    Source: Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016 (arXiv:1608.01350).

    Args:
        bound: Load of a replica relative to the mean; above 1.
    """

    def __init__(self, bound: float) -> None:
        if not bound > 1:
            raise ValueError(f"bound must be above 1, but is {bound}")
        self._bound = bound
        self._members: list[Member] = []
        self._points: list[int] = []
        self._owners: list[Member] = []
        self._starts: dict[Hashable, int] = {}  # where on the ring the walk for a key begins

    def changed(self, members: Sequence[Member]) -> None:
        """Place them on the ring, by name."""
        ring = sorted(
            (stable_hash(f"{member.name}#{point}"), member.number, member)
            for member in members
            for point in range(POINTS)
        )
        self._members = list(members)
        self._points = [point for point, _, _ in ring]
        self._owners = [member for _, _, member in ring]
        self._starts.clear()

    def pick(self, free: list[Member], item: Any, key: Hashable, now: float) -> Member:
        """The first on the ring that has room below the bound; without one, the first that has room."""
        total, serving, ready = 1, 0, Phase.READY
        for member in self._members:
            if member.phase is ready:
                total += member.ongoing
                serving += 1
        most = math.ceil(self._bound * total / max(1, serving))
        owners = self._owners
        start = self._start(key)
        first: Member | None = None
        for index in range(start - len(owners), start):  # negative ones are behind the key
            member = owners[index]
            if member in free:
                if member.ongoing < most:
                    return member
                first = first or member
        return first or free[0]

    def _start(self, key: Hashable) -> int:
        if type(key) not in (str, bytes, int):  # equal keys of other types may differ in their text
            return bisect.bisect_right(self._points, stable_hash(key))
        start = self._starts.get(key)
        if start is None:
            if len(self._starts) >= KEYS:
                self._starts.clear()
            start = self._starts[key] = bisect.bisect_right(self._points, stable_hash(key))
        return start


class UserPolicy(Picker):
    """A function of the caller's.

    Args:
        function: ``function(item, loads)`` returns one of the loads, or its name.

    Raises:
        TypeError: It cannot be called.
    """

    def __init__(self, function: Callable[[Any, list[ReplicaLoad]], ReplicaLoad | str]) -> None:
        given: Any = function
        if not callable(given):
            raise TypeError(f"policy is {given!r}; it must be a name of ReplicaPolicy or a function")
        self._function = function

    def pick(self, free: list[Member], item: Any, key: Hashable, now: float) -> Member:
        """Ask the function.

        Raises:
            TypeError: It returned something else.
            Exception: Raised by the function.
        """
        loads = [ReplicaLoad(each.name, each.ongoing, each.limit, each.mean) for each in free]
        found = self._function(item, loads)
        name = found.name if isinstance(found, ReplicaLoad) else found
        for member in free:
            if member.name == name:
                return member
        names = ", ".join(member.name for member in free)
        raise TypeError(f"the policy returned {found!r}; it must return one of the loads it was given: {names}")


def stable_hash(key: Hashable) -> int:
    """64 bits that are equal in all processes, unlike ``hash``, for keys whose ``repr`` is: str, bytes, int, tuples."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


def picker_of(policy: Any, choices: int | None, bound: float) -> Picker:
    """The picker for a policy's name, or for a function.

    Raises:
        ValueError: No such policy, or a setting out of range.
        TypeError: Neither a name nor callable.
    """
    if not isinstance(policy, str):
        return UserPolicy(policy)
    match ReplicaPolicy(policy):
        case ReplicaPolicy.ROUND_ROBIN:
            return RoundRobin()
        case ReplicaPolicy.LEAST_OUTSTANDING:
            return LeastOutstanding()
        case ReplicaPolicy.CONSISTENT_HASH:
            return ConsistentHash(bound)
        case _:
            return PeakEwmaChoices(choices)
