"""Shared by the tests of the batching server: a function that is let go by the test, and virtual time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields
from typing import Any

from callboard.actors import ManualClock
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.batching.settings import BatchOptions, BatchSettings
from callboard.patterns.requests.waiting import QueueOptions

TURNS = 30


def set_done(future: "asyncio.Future[None]") -> None:
    """As a callback of a timer."""
    if not future.done():
        future.set_result(None)


async def turns(n: int = TURNS) -> None:
    """Let the event loop run."""
    for _ in range(n):
        await asyncio.sleep(0)


class Model:
    """A batch function that answers when the test says so; ``batches`` are the items that it was given."""

    def __init__(self, answer: Callable[[list[Any]], Any] | None = None) -> None:
        self.batches: list[list[Any]] = []
        self._answer = answer or (lambda items: [f"<{item}>" for item in items])
        self._gates: list[asyncio.Future[Any]] = []

    async def __call__(self, items: list[Any]) -> Any:
        self.batches.append(list(items))
        gate = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        found = await gate
        if isinstance(found, BaseException):
            raise found
        return self._answer(items) if found is None else found

    @property
    def waiting(self) -> int:
        """Batches that have no answer yet."""
        return sum(not gate.done() for gate in self._gates)

    async def release(self, outcome: Any = None) -> None:
        """Answer the oldest batch: as the function does, with this value, or with this exception."""
        next(gate for gate in self._gates if not gate.done()).set_result(outcome)
        await turns()

    async def release_all(self) -> None:
        while self.waiting:
            await self.release()


def grouped(settings: dict[str, Any]) -> BatchSettings:
    """The settings; those of batches and of the queue may be given without their objects."""
    parts: dict[str, Any] = {}
    for part, kind in (("form", BatchOptions), ("queue", QueueOptions)):
        names = settings.keys() & {field.name for field in fields(kind)}
        parts[part] = kind(**{name: settings.pop(name) for name in names})
    return BatchSettings(**settings, **parts)


class InternalErrors(logging.Handler):
    """Collects what a server logs as an error of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "callboard.patterns.quarantine.guard":  # a conviction
            self.texts.append(f"{record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")


@contextmanager
def no_internal_error() -> Iterator[None]:
    """In the block no server logs an error of its own."""
    logger, found = logging.getLogger("callboard.patterns"), InternalErrors()
    logger.addHandler(found)
    try:
        yield
    finally:
        logger.removeHandler(found)
    assert found.texts == []


@asynccontextmanager
async def lab(model: Any, clock: ManualClock, **options: Any) -> AsyncIterator[DynamicBatchingServer[Any, Any]]:
    """A server in virtual time; stopped at the end, whatever the test left."""
    server: DynamicBatchingServer[Any, Any] = DynamicBatchingServer(model, clock=clock, **options)
    await server.start()
    try:
        with no_internal_error():
            yield server
    finally:
        await server.stop()


async def outcome(future: Any) -> Any:
    """The value, or the exception."""
    try:
        return await future
    except (Exception, asyncio.CancelledError) as e:  # either is what the test looks at
        return e
