"""``Standby``: the host that waits to take over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from callboard.device.hosts.base import Host
from callboard.device.protocol import Open

__all__ = ["Standby"]

DELAYS = (0.0, 0.5, 2.0, 10.0, 30.0)
"""Seconds before a standby that keeps dying is started again: it costs nobody but itself, so it is never given up."""


class Standby:
    """Keeps one spare host: ``ensure`` starts it, ``take`` hands it over.

    Args:
        start: Starts a host.
        configured: What the host is told; None where no standby is wanted.
        log: For its failures; they fail no op and spend no budget.
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
        """``"none"``, ``"starting"``, ``"ready"`` or ``"failed"`` (and to be started again)."""
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
        """It has imported everything (and, hot, has its context)."""
        self._is_ready = True
        self._failures = 0
        self._tell()

    async def until_ready(self) -> bool:
        """Wait until it could take over; False if there will be none any more."""
        while not self._is_ready and not self._stopped:
            await self.changed()
        return self._is_ready

    async def changed(self) -> None:
        """Wait until there is another spare host, or the one there is has become ready, or no more are started."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def failed(self, why: str) -> None:
        """It has died; start another, later if that happens again and again."""
        host, self.host, self._is_ready = self.host, None, False
        if host is not None and not host.reaped.done():
            host.kill("standby failed")
        if not self._stopped:
            self._failures += 1
            self._log.warning("a standby host has died (%s); another is started", why)
            self.ensure()

    def take(self) -> tuple[Host | None, str]:
        """The spare host, ready or still starting, and what it is: ``"hot"`` or ``"warm"``; None when there is none."""
        host, self.host = self.host, None
        hot, self._hot = self._hot and self._is_ready, False
        self._is_ready = False
        return host, "hot" if hot else "warm"

    def stop(self) -> Host | None:
        """Start no more; gives the spare host, to be ended."""
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
        except Exception as e:  # whatever kept it from starting, it fails no op: another is tried later
            self._task = None
            self.failed(str(e))  # which begins another task
            return
        self._task = None
        if host is not None and message is not None:
            self.host, self._hot = host, message.hot
            host.post(message)
            self._tell()
