"""``Membership``: an application's connection to the holder of a region's table, and its lease.

The lease is counted here from when a renewal was sent, and is shorter by a margin: it ends here before it ends at the
holder. A cut connection is opened again; what the application owns stays its own meanwhile, as long as the lease lasts.
"""

import asyncio
import logging
import math
import secrets
import time
from typing import Protocol

from callboard.core.errors import BackendUnavailable
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import Plain
from callboard.device.protocol.remote import PulseMessage, Refused
from callboard.device.protocol.sharing import FromHolder, Join, Joined, Leave, Renew, Renewed
from callboard.device.supervision.hosts.base import HostEnd
from callboard.device.supervision.remote.host import Address, open_node
from callboard.device.supervision.remote.link import Link

__all__ = ["Keeper", "Membership"]

log = logging.getLogger("callboard.regions")

PATIENCE = 60.0
"""Seconds that calls wait for the holder of the table to answer again."""
AGAIN = 0.05, 1.0
"""Seconds between two attempts to reach it: at first, and at most."""
SHARE = 0.75
"""Part of the lease after which an application that has heard nothing counts it as expired."""
RENEWALS = 5
"""Renewals in a lease."""

_union = FromHolder | Refused | PulseMessage


class Keeper(Protocol):
    """Where the table of a shared region is held: a ``cb.Cluster`` or a ``cb.Node``.

    Attributes:
        lost_after: Seconds of silence after which an application counts as lost, and its entities move.
    """

    @property
    def lost_after(self) -> float: ...

    async def locate(self) -> Address:
        """Address of the process that holds it. Raises ``HostEnd`` or ``BackendUnavailable`` if there is none."""
        ...


class Events(Protocol):
    """What the membership reports."""

    def join(self, member: str) -> Join: ...
    def joined(self) -> None: ...
    def take(self, message: Plain) -> None: ...
    def cut(self, why: str) -> None: ...
    def expired(self) -> None: ...
    def given_up(self, why: str) -> None: ...
    async def stopped_all(self) -> None: ...


class Membership:
    """Keeps the application in its region until :meth:`leave`.

    Args:
        region: Name of the region, for logs and errors.
        keeper: Where the table is held.
        events: Gets the messages and the changes.

    Attributes:
        known: What the holder knew of fences and clocks, for the next holder.
    """

    def __init__(self, region: str, keeper: Keeper, events: Events) -> None:
        self._region = region
        self._keeper = keeper
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._member = secrets.token_hex(16)
        self._lease = keeper.lost_after
        self.known = 0, 0
        self._valid = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._link: Link[Plain] | None = None
        self._joined = False
        self._sent: dict[int, float] = {}
        self._number = 0
        self._down = self._loop.time()
        self._gave_up = False
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._running: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Join the region.

        Raises:
            BackendUnavailable: The holder of its table cannot be reached, or is of another kind.
            ValueError: The region has other settings.
        """
        self._running = asyncio.create_task(self._run(), name=f"region {self._region}")
        await self._first

    async def leave(self) -> None:
        """Say that nothing is owned any more, and close the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._first.cancel()
        if self._running is not None:
            link = self._link
            if link is not None and self._joined:
                link.send(Leave())
                link.end("the application leaves the region", flush=True)
            self._running.cancel()
            await asyncio.wait([self._running])

    @property
    def owns(self) -> bool:
        """True while the lease lasts."""
        return self._loop.time() < self._valid

    @property
    def connected(self) -> bool:
        return self._joined

    @property
    def gave_up(self) -> bool:
        """True if the holder has not answered for so long that no call waits for it any more."""
        return self._gave_up

    def send(self, message: Plain) -> None:
        """Send to the holder; dropped while there is no connection."""
        if self._link is not None and self._joined:
            self._link.send(message)

    # -- connecting ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        first, most = AGAIN
        pause = first
        while True:
            why = "it cannot be reached"
            try:
                why = await self._session()
                pause = first
            except (HostEnd, BackendUnavailable, OSError, EOFError, ValueError) as e:
                why = e.detail if isinstance(e, HostEnd) else str(e)
                if not self._first.done():
                    error = e if isinstance(e, ValueError) else BackendUnavailable(self._lost(why))
                    self._first.set_exception(error)
                    return
                log.warning("region %s: %s", self._region, why)
            if not self._gave_up and self._loop.time() - self._down >= PATIENCE:
                self._gave_up = True
                self._events.given_up(self._lost(why))
                if not self._first.done():
                    self._first.set_exception(BackendUnavailable(self._lost(why)))
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, most)

    def _lost(self, why: str) -> str:
        return f"region {self._region}: the process that holds its table does not answer: {why}"

    async def _session(self) -> str:
        """One connection, until it ends; the reason."""
        reader, writer = await open_node(await self._keeper.locate())
        ended: asyncio.Future[str] = self._loop.create_future()
        refused: list[Exception] = []

        def take(message: Plain) -> None:
            if isinstance(message, Refused):
                refused.append(as_error(message.failure))
            elif isinstance(message, Joined):
                self._enter(message)
            elif isinstance(message, Renewed):
                self.known = message.fence, message.ahead
                sent = self._sent.pop(message.number, None)
                if sent is not None:
                    self._renewed(sent)
            else:
                self._events.take(message)

        def end(why: str, _: bool) -> None:
            self._disconnected(why)
            if not ended.done():
                ended.set_result(why)

        link: Link[Plain] = Link(*(reader, writer, _union, self._lease / RENEWALS, max(self._lease, 1.0), take, end))
        try:
            await self._events.stopped_all()  # what an expired lease had owned
            self._link = link
            self._sent = {0: self._loop.time()}
            self._number = 0
            link.send(self._events.join(self._member))
            while not ended.done():
                await asyncio.wait([ended], timeout=self._lease / RENEWALS)
                if self._joined:
                    self._number += 1
                    self._sent[self._number] = self._loop.time()
                    link.send(Renew(self._number, int(time.time() * 1000)))
            if refused:
                raise refused[0]
            return ended.result()
        finally:
            link.end("given up", flush=True)
            self._link = None

    def _disconnected(self, why: str) -> None:
        if self._joined:
            self._joined = False
            self._down = self._loop.time()
            self._events.cut(why)

    def _enter(self, message: Joined) -> None:
        self._lease = message.lease
        self._joined, self._gave_up = True, False
        self._renewed(self._sent.pop(0))
        self._events.joined()
        if not self._first.done():
            self._first.set_result(None)

    # -- the lease -----------------------------------------------------------------------------------------------------

    def _renewed(self, sent: float) -> None:
        self._valid = max(self._valid, sent + SHARE * self._lease)
        if self._timer is None:
            self._timer = self._loop.call_at(self._valid, self._check)

    def _check(self) -> None:
        if self.owns:
            self._timer = self._loop.call_at(self._valid, self._check)
            return
        self._timer = None
        self._valid = -math.inf
        if self._link is not None:
            self._link.end("the lease has expired")
        self._events.expired()
