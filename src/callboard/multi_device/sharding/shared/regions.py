"""``Regions``: the shared regions of one holder: a ``callboard host``, or a named actor of a cluster's engine."""

import asyncio
import math
import time
from collections.abc import Callable

from callboard.device.protocol.messages import Plain, ProtocolError
from callboard.device.protocol.sharing import Join, Renew
from callboard.multi_device.sharding.shared.hub import Hub
from callboard.multi_device.sharding.shared.ledger import Fences, Ledger

__all__ = ["Guest", "Regions"]

TICKS = 8
"""Times in a lease that expired leases are looked for."""


class Guest:
    """The connection of one application in one region.

    Args:
        regions: The holder.
        message: Its first message.
        send: Sends to the application.
        end: Ends the connection, with the reason.

    Raises:
        ValueError: The region has another number of shards.
    """

    def __init__(
        self, regions: "Regions", message: Join, send: Callable[[Plain], None], end: Callable[[str], None]
    ) -> None:
        self._regions = regions
        self._member = message.member
        self._end: Callable[[str], None] | None = end
        self._hub = regions.hub(message)
        earlier = regions.guests.get((message.region, message.member))
        if earlier is not None:
            earlier.cut()
        regions.guests[message.region, message.member] = self
        regions.fences.heard(message.clock, _ms())
        regions.fences.seen(message.fence, message.ahead)
        self._hub.join(message, send, time.monotonic(), _ms())

    def take(self, message: Plain) -> None:
        """A message of the application. Raises ``ProtocolError``."""
        if self._end is None:
            raise ProtocolError("the application has another connection")
        if isinstance(message, Renew):
            self._regions.fences.heard(message.clock, _ms())
        self._hub.take(self._member, message, time.monotonic(), _ms())
        self._regions.tidy()

    def cut(self) -> None:
        """The connection has ended, or is ended."""
        end, self._end = self._end, None
        if end is not None:
            del self._regions.guests[self._hub.region, self._member]
            self._hub.cut(self._member)
            end("the application has left the region, or connected again")


class Regions:
    """All regions of a holder; belongs to one event loop.

    Args:
        follows: An earlier holder may have granted shards shortly before. Then they are granted anew only to who owned
            them, until the leases that it gave have expired. False: there was none.
    """

    def __init__(self, *, follows: bool = True) -> None:
        self.fences = Fences()
        self.guests: dict[tuple[str, str], Guest] = {}
        self._began = time.monotonic() if follows else -math.inf
        self._hubs: dict[str, Hub] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.used = time.monotonic()

    def enter(self, message: Join, send: Callable[[Plain], None], end: Callable[[str], None]) -> Guest:
        """Accept an application. Raises as :class:`Guest`."""
        guest = Guest(self, message, send, end)
        if self._timer is None:
            self._tick()
        return guest

    def hub(self, message: Join) -> Hub:
        """The region of this message, made if there is none.

        Raises:
            ValueError: It has another number of shards.
        """
        hub = self._hubs.get(message.region)
        if hub is None:
            ledger = Ledger(message.shards, message.lease, self.fences, opens=self._began + message.lease)
            hub = self._hubs[message.region] = Hub(message.region, ledger)
        elif len(hub.ledger.shards) != message.shards:
            raise ValueError(
                f"region {message.region} has shards={len(hub.ledger.shards)}, but this application has "
                f"shards={message.shards}; pass the same number in all of its applications"
            )
        return hub

    @property
    def idle(self) -> float:
        """Seconds since the last application left; 0 while there is one."""
        return 0.0 if self._hubs else time.monotonic() - self.used

    def tidy(self) -> None:
        """Drop regions without members."""
        for name in [name for name, hub in self._hubs.items() if not hub.ledger.members]:
            del self._hubs[name]
            self.used = time.monotonic()

    def _tick(self) -> None:
        for hub in self._hubs.values():
            hub.tick(time.monotonic(), _ms())
        self.tidy()
        lease = min((hub.ledger.lease for hub in self._hubs.values()), default=None)
        loop = asyncio.get_running_loop()
        self._timer = None if lease is None else loop.call_later(lease / TICKS, self._tick)


def _ms() -> int:
    return int(time.time() * 1000)
