"""``Hub``: a shared region at the holder of its table: relays calls to owners, and keeps them while there is none.

A call is relayed to the owner of its shard in the order in which the calls of the shard came. While the shard changes
hands, calls wait here. The old owner gives back what it has not begun, before it releases the shard.
"""

import bisect
import logging
from collections.abc import Callable, Iterable

from callboard.actors.errors import MailboxFull
from callboard.core.errors import ContextLost
from callboard.device.protocol.messages import Plain, ProtocolError
from callboard.device.protocol.residents.exceptions import described
from callboard.device.protocol.sharing import (
    Bounced,
    CloseShard,
    EntityAnswer,
    EntityCall,
    Grant,
    Join,
    Joined,
    Leave,
    Offer,
    Owners,
    OwnersSettled,
    Released,
    Renew,
    Renewed,
)
from callboard.multi_device.sharding.errors import RegionStopped
from callboard.multi_device.sharding.shared.ledger import Closing, Granted, Ledger

__all__ = ["MOST_BYTES", "Hub"]

log = logging.getLogger("callboard.regions")

MOST_BYTES = 256 << 20
"""Bytes of arguments of a region's calls that have no answer; a further call fails with ``MailboxFull``."""

Send = Callable[[Plain], None]


class Relay:
    """A call on its way. ``caller`` is None when its application has left; its answer is then dropped."""

    __slots__ = ("call", "caller", "id", "number", "owner")

    def __init__(self, id: int, caller: str, call: EntityCall) -> None:
        self.id = id
        self.caller: str | None = caller
        self.number = call.id
        self.call = call
        self.owner: tuple[str, int] = "", 0  # member and fence


class Hub:
    """One region. The methods take the wall clock in milliseconds as ``ms``, and a monotonic clock as ``now``.

    Args:
        region: Name of the region.
        ledger: Its table.

    Attributes:
        refused: Answers that came too late: from a member that did not own the shard any more.
    """

    def __init__(self, region: str, ledger: Ledger) -> None:
        self.region = region
        self.ledger = ledger
        self.refused = 0
        self._sends: dict[str, Send] = {}
        self._flights: dict[int, Relay] = {}
        self._waiting: list[list[Relay]] = [[] for _ in ledger.shards]
        self._offers: dict[str, int] = {}  # offers that are not settled
        self._next = 0
        self._bytes = 0

    # -- members -------------------------------------------------------------------------------------------------------

    def join(self, message: Join, send: Send, now: float, ms: int) -> None:
        """A member connects, for the first time or again; its earlier connection must have been cut."""
        name = message.member
        self._sends[name] = send
        self._offers[name] = message.number
        send(Joined(self.ledger.lease))
        self._tell(self.ledger.join(name, message.devices, message.claims, now, ms))
        self._tell_owners([name])

    def cut(self, name: str) -> None:
        """A member's connection has ended: its calls are forgotten, and those that it executes have failed."""
        self._sends.pop(name, None)
        self._offers.pop(name, None)
        if name in self.ledger.members:
            self.ledger.cut(name)
        self._forget(name)

    def tick(self, now: float, ms: int) -> None:
        """Let leases expire; called several times in a lease."""
        for name in self.ledger.expired(now):
            log.warning("region %s: the lease of application %s has expired; its entities move", self.region, name)
            self._sends.pop(name, None)
            self._offers.pop(name, None)
            self._forget(name)
            self._tell(self.ledger.leave(name, now, ms))
        self._tell(self.ledger.tick(now, ms))

    # -- messages ------------------------------------------------------------------------------------------------------

    def take(self, name: str, message: Plain, now: float, ms: int) -> None:
        """A message of a member.

        Raises:
            ProtocolError: It is of no use here.
        """
        if name not in self.ledger.members:
            raise ProtocolError(f"{type(message).__name__} of an application whose lease has expired")
        if isinstance(message, EntityCall):
            self._call(name, message)
        elif isinstance(message, EntityAnswer):
            self._answer(name, message)
        elif isinstance(message, Bounced):
            self._bounced(name, message)
        elif isinstance(message, Renew):
            self.ledger.renew(name, now)
            self._send(name, Renewed(message.number, self.ledger.fences.last, self.ledger.fences.ahead))
        elif isinstance(message, Released):
            self._check_shard(message.shard)
            self._tell(self.ledger.released(name, message.shard, message.fence, now, ms))
        elif isinstance(message, Offer):
            self._offers[name] = message.number
            self._tell(self.ledger.offer(name, message.devices, now, ms))
        elif isinstance(message, Leave):
            self._sends.pop(name, None)
            self._offers.pop(name, None)
            self._forget(name)
            self._tell(self.ledger.leave(name, now, ms))
        else:
            raise ProtocolError(f"{type(message).__name__} in a shared region")

    def _check_shard(self, shard: int) -> None:
        if not 0 <= shard < len(self._waiting):
            raise ProtocolError(f"shard {shard} of {len(self._waiting)}")

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, name: str, call: EntityCall) -> None:
        self._check_shard(call.shard)
        self._next += 1
        relay = Relay(self._next, name, call)
        if self._bytes + len(call.arguments) > MOST_BYTES:
            full = MailboxFull(
                f"calls of region {self.region} with {self._bytes} bytes of arguments have no answer; send fewer"
            )
            full.retryable = len(call.arguments) <= MOST_BYTES
            self._fail(relay, full)
            return
        self._bytes += len(call.arguments)
        self._route(relay)

    def _route(self, relay: Relay) -> None:
        shard = self.ledger.shards[relay.call.shard]
        waiting = self._waiting[relay.call.shard]
        if shard.member in self._sends and not shard.closing and not waiting:
            self._relay(relay, shard.member, shard.fence)
        elif shard.member is None and not self.ledger.has_devices:
            self._close(relay, RegionStopped(f"region {self.region}: none of its applications has a device"))
        else:
            waiting.append(relay)

    def _relay(self, relay: Relay, member: str, fence: int) -> None:
        relay.owner = member, fence
        self._flights[relay.id] = relay
        call = relay.call
        self._send(member, EntityCall(relay.id, call.shard, call.entity, call.method, call.arguments))

    def _answer(self, name: str, answer: EntityAnswer) -> None:
        relay = self._flights.get(answer.id)
        if relay is None or relay.owner[0] != name:
            self.refused += 1
            return
        del self._flights[answer.id]
        if not self.ledger.owns(name, relay.call.shard, relay.owner[1]):
            self.refused += 1
            self._close(relay, self._late(relay))
            return
        self._bytes -= len(relay.call.arguments)
        if relay.caller is not None:
            self._send(relay.caller, EntityAnswer(relay.number, answer.value, answer.failure))

    def _bounced(self, name: str, message: Bounced) -> None:
        relay = self._flights.get(message.id)
        if relay is None or relay.owner[0] != name:
            return
        del self._flights[message.id]
        if relay.caller is None:  # its application has left, and it has not begun
            self._bytes -= len(relay.call.arguments)
            return
        bisect.insort(self._waiting[relay.call.shard], relay, key=lambda one: one.id)
        self._flush(relay.call.shard)

    def _late(self, relay: Relay) -> ContextLost:
        return ContextLost(
            f"the application that owned entity {relay.call.entity!r} of region {self.region} was lost during this "
            "call, which may have been executed"
        )

    def _flush(self, number: int) -> None:
        """Relay what waits for a shard, or refuse it if there will be no owner."""
        relays, self._waiting[number] = self._waiting[number], []
        for at, relay in enumerate(relays):
            self._route(relay)
            if self._waiting[number]:  # it waits again, and so do those behind it
                self._waiting[number] += relays[at + 1 :]
                return

    def _forget(self, name: str) -> None:
        """Fail the calls that a member executes; forget those that it has made."""
        for relay in [relay for relay in self._flights.values() if relay.owner[0] == name]:
            del self._flights[relay.id]
            self._close(relay, self._late(relay))
        for relay in self._flights.values():
            if relay.caller == name:
                relay.caller = None
        for number, waiting in enumerate(self._waiting):
            if any(relay.caller == name for relay in waiting):
                self._bytes -= sum(len(relay.call.arguments) for relay in waiting if relay.caller == name)
                self._waiting[number] = [relay for relay in waiting if relay.caller != name]

    def _close(self, relay: Relay, error: Exception) -> None:
        self._bytes -= len(relay.call.arguments)
        self._fail(relay, error)

    def _fail(self, relay: Relay, error: Exception) -> None:
        if relay.caller is not None:
            self._send(relay.caller, EntityAnswer(relay.number, b"", described(0, error)))

    # -- the table -----------------------------------------------------------------------------------------------------

    def _tell(self, steps: Iterable[Granted | Closing]) -> None:
        steps = list(steps)
        for step in steps:
            if isinstance(step, Closing):
                self._send(step.member, CloseShard(step.shard, step.fence))
            else:
                self._send(step.member, Grant(step.shard, step.device, step.fence))
                self._flush(step.shard)
        if any(isinstance(step, Granted) for step in steps):
            self._tell_owners(self._sends)
        if not self.ledger.has_devices:
            for number, waiting in enumerate(self._waiting):
                if waiting:
                    self._flush(number)
        if self._offers and self.ledger.settled:
            for name, number in self._offers.items():
                self._send(name, OwnersSettled(number))
            self._offers.clear()

    def _tell_owners(self, names: Iterable[str]) -> None:
        """Tell members the device of each shard, which they show, and do not rely on."""
        places: dict[str, int] = {}
        shards = [-1 if not s.device else places.setdefault(s.device, len(places)) for s in self.ledger.shards]
        for name in names:
            self._send(name, Owners(list(places), shards))

    def _send(self, name: str, message: Plain) -> None:
        send = self._sends.get(name)
        if send is not None:
            send(message)
