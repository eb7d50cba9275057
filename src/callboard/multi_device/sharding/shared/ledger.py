"""``Ledger``: which application owns which shard of a region, until when, and under which fence. Pure.

An application (*member*) has a lease that it renews. A shard changes its owner in two steps: its owner is asked to hand
it over, and only when it has released the shard, or its lease has expired, the shard is granted to another member, with
a greater fence. So a shard has one owner at a time as long as members stop what they own before their lease expires.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from callboard.multi_device.sharding.table import ShardTable

__all__ = ["Closing", "Fences", "Granted", "Ledger"]

AT_ONCE = 16
"""Shards that are handed over at the same time, so that a change does not stop all entities at once."""


class Granted(NamedTuple):
    """A member owns a shard from now on."""

    member: str
    shard: int
    device: str
    fence: int


class Closing(NamedTuple):
    """A member is to stop a shard's actors and release it."""

    member: str
    shard: int
    fence: int


class Fences:
    """Numbers that grow with each grant, and exceed the generations of all contexts of earlier owners.

    A generation is ``unix_ms << 20 | counter`` by its application's clock, which may be ahead of this one. The members
    tell their clocks; a message is at most a lease old when it arrives, or its sender's lease has expired.

    Members keep what is known here, and tell it to another holder of the table.

    Attributes:
        last: The greatest fence.
        ahead: Milliseconds by which a member's clock is ahead of the holder's, at most.
    """

    def __init__(self) -> None:
        self.last = 0
        self.ahead = 0

    def heard(self, clock: int, now: int) -> None:
        """Note a member's clock; both in milliseconds."""
        self.ahead = max(self.ahead, clock - now)

    def seen(self, fence: int, ahead: int = 0) -> None:
        """Note what an earlier holder of the table knew."""
        self.last = max(self.last, fence)
        self.ahead = max(self.ahead, ahead)

    def next(self, now: int, lease: float) -> int:
        """The next fence. The distance of 1 ms leaves room for the owner's own generations after it."""
        self.last = max(self.last + (1 << 20), (now + self.ahead + int(lease * 1000)) << 20)
        return self.last


class Member:
    """An application.

    Attributes:
        devices: Weights of its devices by UUID.
        until: When its lease expires.
        away: Its connection was cut, and its lease has not expired.
    """

    __slots__ = ("away", "devices", "until")

    def __init__(self, devices: Mapping[str, float], until: float) -> None:
        self.devices = dict(devices)
        self.until = until
        self.away = False


class Shard:
    """A shard: its owner (None: it has none), and the last fence."""

    __slots__ = ("closing", "device", "fence", "member")

    def __init__(self) -> None:
        self.member: str | None = None
        self.device = ""
        self.fence = 0
        self.closing = False


class Ledger:
    """The table of one region. Each method returns what its members are to be told, in order.

    Args:
        shards: Number of shards.
        lease: Seconds that a member's ownership lasts without a renewal.
        fences: Source of the fences.
        opens: Until then shards are granted only to members that claim them: members of an earlier holder of the table
            may own the others.
    """

    def __init__(self, shards: int, lease: float, fences: Fences, *, opens: float = 0.0) -> None:
        self.lease = lease
        self.opens = opens
        self.members: dict[str, Member] = {}
        self.shards = [Shard() for _ in range(shards)]
        self.fences = fences
        self._target = ShardTable.empty(shards)
        self._waits = False  # a change of the target waits for `opens`

    # -- members -------------------------------------------------------------------------------------------------------

    def join(
        self, name: str, devices: Mapping[str, float], claims: Mapping[int, tuple[str, int]], now: float, ms: int
    ) -> list[Granted | Closing]:
        """A member joins, or comes back. It owns nothing but what it claims under the present fence."""
        self.members[name] = Member(devices, now + self.lease)
        told: list[Granted | Closing] = []
        for number, shard in enumerate(self.shards):
            claimed = claims.get(number)
            fence = 0 if claimed is None else claimed[1]
            if shard.member == name and shard.fence != fence:
                self._free(shard)
            if claimed is None:
                continue
            self.fences.seen(fence)
            if shard.member is None and now < self.opens and fence > shard.fence:
                shard.member, (shard.device, shard.fence) = name, claimed
            elif shard.member != name or shard.closing:
                told.append(Closing(name, number, fence))
        return told + self._replan(now, ms)

    def renew(self, name: str, now: float) -> bool:
        """Extend a member's lease; False if it has expired."""
        member = self.members.get(name)
        if member is None:
            return False
        member.until = now + self.lease
        return True

    def offer(self, name: str, devices: Mapping[str, float], now: float, ms: int) -> list[Granted | Closing]:
        """A member has other devices now."""
        self.members[name].devices = dict(devices)
        return self._replan(now, ms)

    def cut(self, name: str) -> None:
        """A member's connection was cut: it owns its shards until its lease expires."""
        self.members[name].away = True

    def leave(self, name: str, now: float, ms: int) -> list[Granted | Closing]:
        """A member owns nothing any more, as it says, or as its lease has expired."""
        if self.members.pop(name, None) is None:
            return []
        for shard in self.shards:
            if shard.member == name:
                self._free(shard)
        return self._replan(now, ms)

    def expired(self, now: float) -> list[str]:
        """Members whose lease has expired, which are to leave."""
        return [name for name, member in self.members.items() if member.until <= now]

    # -- shards --------------------------------------------------------------------------------------------------------

    def released(self, name: str, number: int, fence: int, now: float, ms: int) -> list[Granted | Closing]:
        """A member has handed a shard over. Nothing happens if it does not own the shard under this fence."""
        if not self.owns(name, number, fence):
            return []
        self._free(self.shards[number])
        return self._apply(now, ms)

    def owns(self, name: str, number: int, fence: int) -> bool:
        """True if the member owns the shard under this fence: only then its answers count."""
        shard = self.shards[number]
        return shard.member == name and shard.fence == fence

    def tick(self, now: float, ms: int) -> list[Granted | Closing]:
        """Grant what had to wait for ``opens``."""
        return self._replan(now, ms) if self._waits and now >= self.opens else []

    @property
    def settled(self) -> bool:
        """True if all shards have the owners that follow from the members' devices."""
        owners = tuple(_key(shard.member, shard.device) for shard in self.shards)
        return not self._waits and owners == self._target.owners

    @property
    def has_devices(self) -> bool:
        """True if a member has a device, or may come back with one."""
        return self._waits or any(member.devices for member in self.members.values())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _replan(self, now: float, ms: int) -> list[Granted | Closing]:
        self._waits = now < self.opens
        if self._waits:
            return []
        present = tuple(_key(shard.member, shard.device) for shard in self.shards)
        weights = {
            f"{name}/{device}": weight for name, member in self.members.items() for device, weight in _sorted(member)
        }
        self._target = ShardTable(present, self._target.version).over(weights)
        return self._apply(now, ms)

    def _apply(self, now: float, ms: int) -> list[Granted | Closing]:
        """Take the next steps towards the target."""
        if self._waits:
            return []
        told: list[Granted | Closing] = []
        room = AT_ONCE - sum(shard.closing for shard in self.shards)
        for number, (shard, target) in enumerate(zip(self.shards, self._target.owners, strict=True)):
            if shard.closing or _key(shard.member, shard.device) == target:
                continue
            if shard.member is not None:
                away = self.members[shard.member].away  # released when it comes back, or expires
                gone = shard.device not in self.members[shard.member].devices
                if not away and (room > 0 or gone):
                    room -= 1
                    shard.closing = True
                    told.append(Closing(shard.member, number, shard.fence))
            elif target is not None:
                name, _, device = target.partition("/")
                if not self.members[name].away:
                    shard.member, shard.device = name, device
                    shard.fence = self.fences.next(ms, self.lease)
                    told.append(Granted(name, number, device, shard.fence))
        return told

    @staticmethod
    def _free(shard: Shard) -> None:
        shard.member, shard.device, shard.closing = None, "", False


def _sorted(member: Member) -> Iterable[tuple[str, float]]:
    return sorted(member.devices.items())


def _key(member: str | None, device: str) -> str | None:
    return None if member is None else f"{member}/{device}"
