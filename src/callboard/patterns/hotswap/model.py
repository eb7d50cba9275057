"""``LoadedModel``: the result of a version's ``load``, for any kind of callable or server."""

import asyncio
from typing import Any

from callboard.core.ref import GpuRef
from callboard.patterns.hotswap.versions import ModelVersion
from callboard.patterns.requests.calling import Executor, UserCall
from callboard.patterns.requests.entries import Entry
from callboard.patterns.requests.fitting import check_fits
from callboard.patterns.requests.needs import limit_runs, needs_of
from callboard.patterns.requests.runs import RunLimit
from callboard.patterns.requests.server import RequestServer

__all__ = ["LoadedModel", "made_by", "to_the_end", "unload"]


class LoadedModel:
    """A model that can be called and unloaded.

    Args:
        made: The result of ``load``.
        executor: The executor that calls it; see :class:`UserCall`.
        threads: Threads at most.
        limit: Bounds each of its runs; None: no bound.

    Raises:
        TypeError: It cannot be called with an item, and is not a server; or its runs cannot be ended.
    """

    def __init__(self, made: Any, executor: Executor, threads: int, limit: RunLimit | None = None) -> None:
        self._made = made
        self.server: RequestServer[Any, Any] | None = None
        self._call: UserCall | None = None
        if isinstance(made, RequestServer):
            self.server = made
        else:
            check_fits(made, 1)
            self._call = UserCall(made, executor, threads)
        if limit is not None:
            limit_runs(made if self._call is None else self._call, limit)

    @property
    def on_thread(self) -> bool:
        """True if a call cannot be interrupted."""
        return self._call is not None and self._call.on_thread

    async def start(self) -> None:
        """Start it, if it is a server that was not started, and wait until the actors and devices it calls are ready.

        Raises:
            ActorStopped, DeviceStopped: One of them will not be.
        """
        if self.server is not None and not self.server.started:
            await self.server.start()
        for need in needs_of(self._made):
            await need.ready()

    async def __call__(self, item: Any, entry: Entry | None = None, timeout: float | None = None) -> Any:
        """Return the response to an item.

        Args:
            item: The item.
            entry: The request for which it is called; see :meth:`left`.
            timeout: Seconds that a server has for it.
        """
        if self._call is not None:
            return await self._call(item, entries=None if entry is None else [entry])
        assert self.server is not None
        return await self.server.submit(item, timeout=timeout)

    def left(self, entry: Entry) -> None:
        """A request has ended before its call; see :meth:`UserCall.left`."""
        if self._call is not None:
            self._call.left(entry)

    async def host(self, item: Any) -> Any:
        """Return the response to an item, copied to the host if it is an array on a device."""
        found = await self(item)
        return await found.get() if isinstance(found, GpuRef) else found

    async def update(self, settings: ModelVersion) -> None:
        """Put the weights of a version into it. Cancelled meanwhile, this waits for the end.

        Raises:
            Exception: Raised by ``update``.
        """
        assert settings.update is not None
        await to_the_end(UserCall(settings.update, "auto", 1), self._made)

    async def unload(self, settings: ModelVersion) -> None:
        """Unload it: no request runs on it any more.

        Raises:
            Exception: Raised by ``unload``.
        """
        self.close()
        await unload(self._made, settings)

    def close(self) -> None:
        """Call it no more; a call that runs on a thread continues."""
        if self._call is not None:
            self._call.close()


async def made_by(settings: ModelVersion) -> Any:
    """Call ``load``. If cancelled while it runs on a thread, wait for its end and unload its result."""
    call = UserCall(settings.load, "auto", 1)
    work = asyncio.ensure_future(call())
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not call.on_thread:
            work.cancel()
        await asyncio.wait({work})
        if not work.cancelled() and work.exception() is None:
            await unload(work.result(), settings)
        raise
    finally:
        call.close()


async def to_the_end(call: UserCall, *arguments: Any) -> Any:
    """Call it, and close it. Where this is cancelled and the call is on a thread, it is waited for."""
    work = asyncio.ensure_future(call(*arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not call.on_thread:
            work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()
        raise
    finally:
        call.close()


async def unload(made: Any, settings: ModelVersion) -> None:
    """Unload the result of these settings' ``load``.

    Raises:
        Exception: Raised by ``unload``.
    """
    if settings.unload is not None:
        call = UserCall(settings.unload, "auto", 1)
        try:
            await call(made)
        finally:
            call.close()
    elif isinstance(made, RequestServer):
        await made.stop()
