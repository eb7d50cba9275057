"""``Fleet``: the context hosts of a device that may still run, and the arenas that they share with the application."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable

from callboard.device.arena import Arena, ArenaPool
from callboard.device.hosts.base import Host
from callboard.device.protocol import UnmapArena

__all__ = ["Fleet"]

LEAVE_TIME = 1.0
"""Seconds that a poisoned host gets to leave by itself before it is killed."""

REAP_TIME = 10.0
"""Seconds for which a want of memory waits for lost hosts to give theirs back: leaving, being killed, and a driver that
takes a process apart."""


class Fleet:
    """What is kept of hosts from their start until nothing of them can run or write any more.

    Args:
        loop: Of the device; methods are called on its thread unless they say otherwise.
        max_staged_bytes: Of all arenas.
        shared: Hosts are processes, so arenas have to be memory that can be shared.
        serving: Those that calls may go to: the active host and the standby, as far as there are any.

    Attributes:
        hosts: All that may still run.
        arenas: Host memory that they read and write.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_staged_bytes: int,
        shared: bool,
        serving: Callable[[], Iterable[Host]],
    ) -> None:
        self.hosts: set[Host] = set()
        self.arenas = ArenaPool(max_staged_bytes, self.announce, self.retire, shared=shared)
        self._loop = loop
        self._serving = serving

    def add(self, host: Host) -> None:
        """A host has been started: tell it of the arenas that there are."""
        self.hosts.add(host)
        host.reaped.add_done_callback(lambda _: self._reaped(host))
        for arena in self.arenas.arenas:
            host.send_arena(arena.id, arena.descriptor, arena.nbytes, arena.address)

    def announce(self, arena: Arena) -> None:
        """Have every host map a new arena (a hot standby page-locks it early). Any thread; back when it is sent."""
        if asyncio._get_running_loop() is self._loop:
            self._announce(arena)
            return
        sent: concurrent.futures.Future[None] = concurrent.futures.Future()

        def send() -> None:
            self._announce(arena)
            sent.set_result(None)

        self._loop.call_soon_threadsafe(send)
        sent.result(10.0)  # calls that name the arena must not overtake it

    def _announce(self, arena: Arena) -> None:
        for host in self._serving():
            host.send_arena(arena.id, arena.descriptor, arena.nbytes, arena.address)

    def retire(self, arena: Arena) -> None:
        """The pool gives an arena up."""
        for host in self._serving():
            host.post(UnmapArena(arena.id))

    def dismiss(self, host: Host) -> None:
        """A lost host leaves by itself, or is made to; what it could still write is not reused before it is gone."""
        if not host.reaped.done():
            self.arenas.quarantine(host)
            self._loop.call_later(LEAVE_TIME, lambda: host.reaped.done() or host.kill("lost"))

    def when_reaped(self, then: Callable[[], None]) -> None:
        """Call ``then`` when no lost host holds memory of the device any more, or after :data:`REAP_TIME`."""
        serving = set(self._serving())
        lost = [host.reaped for host in self.hosts - serving]
        if not lost:
            then()
            return
        gone = asyncio.gather(*map(asyncio.shield, lost))
        late = self._loop.call_later(REAP_TIME, gone.cancel)

        def done(_: object) -> None:
            late.cancel()
            then()

        gone.add_done_callback(done)

    async def close(self, timeout: float) -> None:
        """Have all hosts leave, and wait; each gets about ``timeout`` seconds."""
        await asyncio.gather(*(host.close(timeout) for host in self.hosts))

    def _reaped(self, host: Host) -> None:
        self.hosts.discard(host)
        self.arenas.release(host)
