"""``Standby``: the host that waits to take over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from callboard.device.protocol.messages import Open
from callboard.device.supervision.hosts.base import Host

__all__ = ["Standby"]

DELAYS = (0.0, 0.5, 2.0, 10.0, 30.0)
"""Seconds before a standby that keeps failing is started again. Its failures affect no op, so the attempts never
end."""


class Standby:
    """Keeps one spare host: ``ensure`` starts it, ``take`` hands it over.

    Args:
        start: Starts a host.
        configured: Returns the message that opens the standby; None if none is wanted.
        log: Logger for the standby's failures, which fail no op and are not counted in the restart budget.
    """

    def __init__(
        self, start: Callable[[str], Awaitable[Host]], configured: Callable[[], Open | None], log: logging.Logger
    ) -> None:
        self._start = start
        self._configured = configured
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._stopped = False
        self._hot = False
        self._is_ready = False
        self._waiting: list[asyncio.Future[None]] = []
        self.host: Host | None = None

    @property
    def state(self) -> str:
        """``"none"``, ``"starting"``, ``"ready"`` or ``"failed"`` (another is started)."""
        if self.host is not None:
            return "ready" if self._is_ready else "starting"
        if self._task is not None:
            return "failed" if self._failures else "starting"
        return "none"

    def ensure(self) -> None:
        """Start a spare host unless there is one."""
        if self._stopped or self.host is not None or self._task is not None or self._configured() is None:
            return
        self._task = asyncio.get_running_loop().create_task(self._run(), name="callboard-standby")

    def is_ready(self) -> None:
        """Note that the standby has imported everything (and, if hot, has its context)."""
        self._is_ready = True
        self._failures = 0
        self._tell()

    async def until_ready(self) -> bool:
        """Wait until the standby could take over; False if standbys are no longer started."""
        while not self._is_ready and not self._stopped:
            await self.changed()
        return self._is_ready

    async def changed(self) -> None:
        """Wait until a spare host has started or become ready, or no more are started."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def failed(self, why: str) -> None:
        """The standby has died: start another, with a growing delay."""
        host, self.host, self._is_ready = self.host, None, False
        if host is not None and not host.reaped.done():
            host.kill("standby failed")
        if not self._stopped:
            self._failures += 1
            self._log.warning("a standby host has died (%s); another is started", why)
            self.ensure()

    def drop(self, why: str) -> None:
        """End the standby, if there is one, and start another."""
        if self.host is not None:
            self.failed(why)

    def take(self) -> tuple[Host | None, str]:
        """The standby host, ready or still starting, and its kind, ``"hot"`` or ``"warm"``; None if there is none."""
        host, self.host = self.host, None
        hot, self._hot = self._hot and self._is_ready, False
        self._is_ready = False
        return host, "hot" if hot else "warm"

    def stop(self) -> Host | None:
        """Stop starting standbys; returns the spare host, for the caller to end."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
        self._is_ready = False
        self._tell()
        return self.host

    async def _run(self) -> None:
        delay = DELAYS[min(self._failures, len(DELAYS) - 1)]
        if delay:
            await asyncio.sleep(delay)
        message = self._configured()
        host: Host | None = None
        try:
            if message is not None:
                host = await self._start("standby")
        except Exception as e:  # it fails no op: another is tried later
            self._task = None
            self.failed(str(e))  # starts another task
            return
        self._task = None
        if host is not None and message is not None:
            self.host, self._hot = host, message.hot
            host.post(message)
            self._tell()
