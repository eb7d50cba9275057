"""``Truce``: while a request runs alone, no other quarantine of the event loop begins anything."""

import asyncio
from contextvars import ContextVar, Token
from typing import Self

__all__ = ["Truce"]

LONGEST = 15.0
"""Seconds that a truce lasts at most: a context may be replaced meanwhile."""

_inside: ContextVar["Truce | None"] = ContextVar("callboard_truce", default=None)

_held: dict[asyncio.AbstractEventLoop, "Truce"] = {}


class Truce:
    """``async with``: work of this task runs, and what other quarantines of the loop would begin waits for its end.

    Servers of one device have a quarantine each. Where suspects of two of them ran at the same time, each alone in its
    own, either may have lost the context: each then runs again under a truce. Work in progress is not waited for: what
    was on the device has just failed.
    """

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self._token: Token[Truce | None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @staticmethod
    def others() -> "Truce | None":
        """The truce that this task has to wait for; None if there is none, or it is part of it."""
        if not _held:
            return None
        held = _held.get(asyncio.get_running_loop())
        return None if held is None or held is _inside.get() else held

    async def over(self) -> None:
        """Wait for its end; another may have begun."""
        await self._over.wait()

    @classmethod
    async def none(cls) -> None:
        """Wait until there is none that this task has to wait for."""
        while (other := cls.others()) is not None:
            await other.over()

    async def __aenter__(self) -> Self:
        await self.none()
        loop = asyncio.get_running_loop()
        _held[loop] = self
        self._timer = loop.call_later(LONGEST, self._end, loop)
        self._token = _inside.set(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._token is not None
        assert self._timer is not None
        _inside.reset(self._token)
        self._timer.cancel()
        self._end(asyncio.get_running_loop())

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        if _held.get(loop) is self:
            del _held[loop]
        self._over.set()
