"""``Router``: the members of a pool, selection of a member for a request, and feedback from runs. Pure."""

from collections.abc import Hashable
from typing import Any

from callboard.patterns.replicas.ejection import Ejection, Ejector, Outcome
from callboard.patterns.replicas.member import Member, Phase
from callboard.patterns.replicas.picking import Picker

__all__ = ["Router"]


class Router:
    """Decides about the replicas of one pool. Time is an argument, and never goes back.

    Args:
        picker: The policy.
        ejection: When a replica is taken out of service; None never.
    """

    def __init__(self, picker: Picker, ejection: Ejection | None) -> None:
        self.members: list[Member] = []
        self._picker = picker
        self._ejector = Ejector(ejection)
        self._picks = 0

    def add(self, member: Member) -> None:
        """Another replica, after the others."""
        self.members.append(member)
        self._picker.changed(self.members)

    def remove(self, member: Member) -> None:
        """Remove the member permanently."""
        self.members.remove(member)
        self._picker.changed(self.members)

    @property
    def usable(self) -> bool:
        """True if any replica may take a request again; also while there are no replicas."""
        return not self.members or any(member.phase is not Phase.STOPPED for member in self.members)

    @property
    def has_room(self) -> bool:
        """True if any replica would be given a request now."""
        return any(member.room > 0 for member in self.members)

    @property
    def pace(self) -> float | None:
        """Seconds from one request that ends to the next while all in service are busy; None: nothing was measured."""
        rate = sum(each.limit / each.mean for each in self.members if each.phase is Phase.READY and each.mean)
        return 1 / rate if rate else None

    @property
    def next_probe(self) -> float | None:
        """The time at which an ejected replica may be tried again."""
        return self._ejector.next_probe

    def pick(self, item: Any, key: Hashable, avoid: frozenset[Member], now: float) -> Member | None:
        """The replica for a request; None while none has room for it.

        Args:
            item, key: Item and key of the request.
            avoid: Members on which the request has failed; picked only if no other is in service.
            now: Seconds.

        Raises:
            Exception: Raised by the caller's policy function.
        """
        self._ejector.tick(self.members, now)
        free = [member for member in self.members if member.room > 0]
        if avoid and any(member.phase is Phase.READY and member not in avoid for member in self.members):
            free = [member for member in free if member not in avoid]
        if self._ejector.probing:  # one request decides whether it returns to service, whatever the policy
            for member in free:
                if member.phase is Phase.PROBING:
                    return member
        return self._picker.pick(free, item, key, now) if free else None

    def other(self, busy: Member, item: Any, key: Hashable, now: float) -> Member | None:
        """The replica for the second run of a request that runs on another one; never one that is being probed."""
        free = [each for each in self.members if each.room > 0 and each is not busy and each.phase is Phase.READY]
        return self._picker.pick(free, item, key, now) if free else None

    def begin(self, member: Member) -> None:
        """It runs a request."""
        self._picks += 1
        member.picked = self._picks
        member.started += 1
        member.count(1)

    def end(self, member: Member, outcome: Outcome, seconds: float, now: float) -> None:
        """A run on it has ended."""
        member.count(-1)
        if outcome is Outcome.OK:
            member.completed += 1
            member.latency.add(seconds)
        elif outcome is Outcome.FAULT:
            member.failed += 1
        self._ejector.ended(member, outcome, seconds, self.members, now)
