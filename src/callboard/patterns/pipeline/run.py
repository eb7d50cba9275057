"""``PipelineRun``: one pass of a source through the stages of a pipeline."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from typing import TYPE_CHECKING, Any

from callboard.actors.errors import HandlerCancelled
from callboard.actors.loops.threads import Threads
from callboard.core.errors import ContextLost
from callboard.core.ref import GpuRef
from callboard.device.client.line.port import request_key
from callboard.patterns.contract.taking import taken
from callboard.patterns.pipeline.errors import OUTCOMES, ItemError
from callboard.patterns.pipeline.order import Turnstile
from callboard.patterns.requests.calling import deliverable

if TYPE_CHECKING:
    from callboard.patterns.pipeline.executor import PipelineExecutor

__all__ = ["END_OF_RUN", "PipelineRun", "Taken"]

_log = logging.getLogger(__name__)

END_OF_RUN: Any = object()
"""In place of a result: there is none any more."""
_SKIPPED: Any = object()


class Taken:
    """An item of a source that has taken it from its caller already."""

    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class PipelineRun:
    """One pass of a source through the stages.

    Attributes:
        open: Items that were taken and whose result was not read.
    """

    def __init__(self, executor: "PipelineExecutor[Any]", source: Any) -> None:
        self.open = 0
        self._executor = executor
        self._source: AsyncIterator[Any] = aiter(source) if hasattr(source, "__aiter__") else _each(source)
        self._room = asyncio.Event()
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._done: dict[int, Any] = {}  # results by index; if not ordered: in the order of completion
        self._ready = asyncio.Event()
        self._next = 0
        self._taken = 0
        self._exhausted = False
        self._draining = False
        self._gates = [Turnstile() for _ in executor.stages]
        width = executor.in_flight
        self._places = [asyncio.Semaphore(min(width, stage.parallelism or width)) for stage in executor.stages]
        self._pools = [
            Threads(min(width, stage.parallelism or width), f"pipeline {stage.name}") if stage.thread else None
            for stage in executor.stages
        ]
        self._feeder = asyncio.create_task(self._feed(), name=f"{executor.name} source")

    # -- the reader's side ---------------------------------------------------------------------------------------------

    async def next(self) -> Any:
        """The next result, or the end."""
        while True:
            key = self._next if self._executor.ordered else next(iter(self._done), None)
            if key is not None and key in self._done:
                found = self._done.pop(key)
                self._next += 1
                self.open -= 1
                self._room.set()
                if found is _SKIPPED:
                    continue
                if isinstance(found, _Failure):
                    raise found.error
                return found
            if self._exhausted and self._next >= self._taken:
                if not self._feeder.done():
                    await asyncio.wait({self._feeder})
                if not self._feeder.cancelled():
                    self._feeder.result()  # raises the exception of the source
                return END_OF_RUN
            self._ready.clear()
            await self._ready.wait()

    @property
    def jobs(self) -> Collection["asyncio.Task[None]"]:
        """The tasks of the items in the stages."""
        return self._jobs.values()

    async def drain(self) -> None:
        """End the source; wait until no item is in a stage."""
        self._draining = True
        if not self._exhausted:
            self._feeder.cancel()
        while self._jobs or not self._feeder.done():
            await asyncio.wait({self._feeder, *self._jobs.values()})

    async def close(self) -> None:
        """Cancel items in flight and close the source."""
        tasks = [self._feeder, *self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pool in self._pools:
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    # -- the source's side ---------------------------------------------------------------------------------------------

    async def _feed(self) -> None:
        counts = self._executor._counts
        try:
            while not self._draining:
                while self.open >= self._executor.in_flight:
                    self._room.clear()
                    await self._room.wait()
                try:
                    found = await anext(self._source)
                except StopAsyncIteration:
                    break
                item = found.item if type(found) is Taken else taken(found)
                index = self._taken
                self._taken += 1
                self.open += 1
                counts["taken"] += 1
                job = asyncio.create_task(self._item(index, item), name=f"{self._executor.name} {index}")
                self._jobs[index] = job
        finally:
            self._exhausted = True
            self._ready.set()
            close = getattr(self._source, "aclose", None)
            if close is not None:
                await close()

    async def _item(self, index: int, item: Any) -> None:
        executor, counts = self._executor, self._executor._counts
        token = request_key.set(f"{executor.name} {index}")
        attempt = 0
        try:
            while True:
                attempt += 1
                at = 0
                value = item
                try:
                    for at, stage in enumerate(executor.stages):
                        gate = self._gates[at] if executor.ordered else None
                        if gate is not None:
                            await gate.wait(index)
                        async with self._places[at]:
                            if gate is not None:
                                gate.passed(index)  # items that wait there run after the first step of this call
                            value = await stage.enqueue(value, self._pools[at])
                    if isinstance(value, GpuRef):
                        at = len(executor.stages) - 1
                        value = await value
                except ContextLost as e:
                    if attempt < executor._attempts:
                        counts["retried"] += 1
                        continue
                    self._failed(ItemError(index, item, executor.stages[at].name, e, attempt))
                except asyncio.CancelledError as e:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():
                        raise
                    error = HandlerCancelled("something that the stage waited for was cancelled")
                    error.__cause__ = e
                    self._failed(ItemError(index, item, executor.stages[at].name, error, attempt))
                except Exception as e:  # an exception of the user's stages: the policy decides
                    self._failed(ItemError(index, item, executor.stages[at].name, deliverable(e), attempt))
                else:
                    counts["completed"] += 1
                    self._done[index] = value
                return
        finally:
            request_key.reset(token)
            for gate in self._gates:
                gate.passed(index)
            self._jobs.pop(index, None)
            self._ready.set()

    def _failed(self, found: ItemError) -> None:
        executor = self._executor
        executor._counts["failed"] += 1
        found.error.add_note(f"item {found.index} of {executor.name}, stage {found.stage}, attempt {found.attempts}")
        try:
            outcome = executor._on_error(found) if callable(executor._on_error) else executor._on_error
            if outcome not in OUTCOMES:
                raise ValueError(f"on_error returned {outcome!r}; it returns 'fail', 'skip' or 'item'")
        except Exception as e:  # of the user's policy: the reader gets it
            e.__context__ = found.error
            self._done[found.index] = _Failure(e)
            return
        if outcome == "item":
            self._done[found.index] = found
        elif outcome == "skip":
            executor._counts["skipped"] += 1
            _log.warning("%s: item %d is skipped: %r", executor.name, found.index, found.error)
            self._done[found.index] = _SKIPPED
        else:
            self._done[found.index] = _Failure(found.error)


async def _each(source: Iterable[Any]) -> AsyncGenerator[Any, None]:
    try:
        for item in source:
            yield item
    finally:
        if inspect.isgenerator(source):
            source.close()
