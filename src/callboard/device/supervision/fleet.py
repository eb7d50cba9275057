"""``Fleet``: the context hosts of a device that may still run, and the arenas that they share with the application."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Iterable

from callboard.device.protocol.arena import Arena, ArenaPool
from callboard.device.supervision.hosts.base import Host

__all__ = ["Fleet"]

SETTLE_TIME = 10.0
"""Seconds of a period; arenas that were not needed in two periods in a row are released."""

LEAVE_TIME = 1.0
"""Seconds that a poisoned host gets to leave by itself before it is killed."""

REAP_TIME = 10.0
"""Seconds that an op which lacks memory waits for lost hosts to release theirs: to exit, to be killed, and for the
driver to clean up the process."""


class Fleet:
    """The hosts of a device, from their start until they can neither run nor write any more.

    Args:
        loop: The device's loop. Methods are called on its thread unless their docstrings allow any thread.
        max_staged_bytes: Limit for all arenas together.
        shared: Hosts are processes, so arenas have to be shared memory.
        serving: Returns the hosts that calls may go to: the active host and the standby, as far as they exist.

    Attributes:
        hosts: All hosts that may still run.
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
        self._settling: asyncio.TimerHandle | None = None
        self._hurried: asyncio.Future[float] | None = None
        self._patience = 0.0  # seconds that the hosts get that are being closed

    def add(self, host: Host) -> None:
        """Add a host that has been started, and send it all arenas."""
        self.hosts.add(host)
        host.reaped.add_done_callback(lambda _: self._reaped(host))
        for arena in self.arenas.arenas:
            host.send_arena(arena)

    def announce(self, arena: Arena) -> None:
        """Have every host map a new arena (a hot standby page-locks it early). Any thread; returns when it is sent."""
        if asyncio._get_running_loop() is self._loop:
            self._announce(arena)
            return
        sent: concurrent.futures.Future[None] = concurrent.futures.Future()

        def send() -> None:
            try:
                self._announce(arena)
            except BaseException as e:  # of any class: raised to the caller
                sent.set_exception(e)
            else:
                sent.set_result(None)

        self._loop.call_soon_threadsafe(send)
        sent.result(10.0)  # calls that name the arena must not overtake it

    def _announce(self, arena: Arena) -> None:
        for host in self._serving():
            host.send_arena(arena)
        if self._settling is None:
            self._settling = self._loop.call_later(SETTLE_TIME, self._settle)

    def _settle(self) -> None:
        left = self.arenas.settle()
        self._settling = self._loop.call_later(SETTLE_TIME, self._settle) if left else None

    def retire(self, arena: Arena) -> None:
        """Have every host unmap an arena that the pool releases. Any thread."""
        if asyncio._get_running_loop() is self._loop:
            self._retire(arena)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the hosts
            self._loop.call_soon_threadsafe(self._retire, arena)

    def _retire(self, arena: Arena) -> None:
        for host in self._serving():
            host.retire_arena(arena)

    def dismiss(self, host: Host) -> None:
        """Let a lost host exit, or kill it. Arenas that it could still write are not reused before it is reaped."""
        if not host.reaped.done():
            self.arenas.quarantine(host)
            self._loop.call_later(LEAVE_TIME, lambda: host.reaped.done() or host.kill("lost"))

    def when_reaped(self, then: Callable[[], None]) -> None:
        """Call ``then`` when no lost host holds device memory any more, or after :data:`REAP_TIME` seconds."""
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
        """Close all hosts and wait until they have ended; each gets about ``timeout`` seconds."""
        if self._settling is not None:
            self._settling.cancel()
        self._patience = timeout
        hurried = self._hurried = asyncio.get_running_loop().create_future()
        closing = asyncio.ensure_future(self._close_hosts(timeout))
        try:
            await asyncio.wait([closing, hurried], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not closing.done():  # a cancel, too
                closing.cancel()
        await (self._close_hosts(hurried.result()) if hurried.done() else closing)

    async def _close_hosts(self, timeout: float) -> None:
        await asyncio.gather(*(host.close(timeout) for host in self.hosts))

    def hurry(self, timeout: float) -> None:
        """Let a :meth:`close` that is under way begin again with a shorter time."""
        if self._hurried is not None and not self._hurried.done() and timeout < self._patience:
            self._hurried.set_result(timeout)

    def _reaped(self, host: Host) -> None:
        self.hosts.discard(host)
        self.arenas.release(host)
