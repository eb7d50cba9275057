"""Shared by the tests of the hot-swap server: versions whose loading and calls the test lets go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from batching_lab import no_internal_error, turns

import callboard as cb

LIMIT = 30.0
"""Seconds after which a wait in a test has failed."""


class Held:
    """A version's model: it answers ``(version, item)`` at once, or when the test says so."""

    def __init__(self, name: str, *, hold: bool = False) -> None:
        self.name = name
        self.hold = hold
        self.calls: list[tuple[Any, asyncio.Future[Any]]] = []
        self.seen: list[Any] = []
        self.loaded = self.unloaded = 0
        self.unload_error: Exception | None = None

    def version(self, **settings: Any) -> cb.ModelVersion:
        return cb.ModelVersion(self.name, self.load, unload=self.unload, **settings)

    async def load(self) -> Any:
        self.loaded += 1
        return self.model

    async def unload(self, model: Any) -> None:
        assert model == self.model
        assert not self.calls, "unloaded while calls run"
        self.unloaded += 1
        if self.unload_error is not None:
            raise self.unload_error

    async def model(self, item: Any) -> Any:
        assert self.loaded > self.unloaded, "called when it is not loaded"
        self.seen.append(item)
        if not self.hold:
            return self.name, item
        call = item, asyncio.get_running_loop().create_future()
        self.calls.append(call)
        try:
            return await call[1]
        finally:
            self.calls.remove(call)

    async def release(self, outcome: Any = None) -> None:
        """Answer the oldest call, with an exception if one is given."""
        item, future = next(call for call in self.calls if not call[1].done())
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result((self.name, item))
        await turns()


@asynccontextmanager
async def lab(first: Held, **options: Any) -> AsyncIterator[cb.ModelHotSwapServer[Any, Any]]:
    """A server; stopped at the end, whatever the test left."""
    server: cb.ModelHotSwapServer[Any, Any] = cb.ModelHotSwapServer(first.version(), **options)
    await server.start()
    try:
        with no_internal_error():
            yield server
    finally:
        await server.stop()


async def bounded(work: Any) -> Any:
    """The result of work that must end."""
    async with asyncio.timeout(LIMIT):
        return await work
