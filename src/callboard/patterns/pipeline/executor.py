"""``PipelineExecutor``: items through stages, several in flight, so that copies and computing overlap."""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from callboard.actors.errors import HandlerCancelled
from callboard.actors.handles import Handle
from callboard.actors.loops.threads import Threads
from callboard.core.errors import ContextLost
from callboard.core.ref import GpuRef
from callboard.device.client.line.port import request_key
from callboard.patterns.pipeline.errors import OUTCOMES, ItemError, OnError
from callboard.patterns.pipeline.order import Turnstile
from callboard.patterns.pipeline.stage import PipelineStage
from callboard.patterns.requests.calling import deliverable

if TYPE_CHECKING:
    import numpy.typing as npt

    from callboard.device.client.handle import Device

__all__ = ["PipelineExecutor", "PipelineStats"]

R = TypeVar("R")
_log = logging.getLogger(__name__)

IN_FLIGHT = 4
"""Triple buffering (one item on its way to the device, one computed, one on its way back), and one more, so that the
device does not wait for the host in between."""


@dataclass(frozen=True, slots=True)
class PipelineStats:
    """Figures of a pipeline, over all of its runs.

    Attributes:
        taken: Items taken from the sources.
        completed: Results that were read, or are ready to be.
        failed: Items that ended in an error, whatever became of it.
        skipped: Failed items that were left out of the results.
        retried: Attempts beyond the first.
        in_flight: Items that are in stages, or whose result was not read.
    """

    taken: int
    completed: int
    failed: int
    skipped: int
    retried: int
    in_flight: int


class PipelineExecutor(Handle, Generic[R]):
    """Runs items through stages.

    ::

        pipeline = cb.PipelineExecutor.on(gpu, lambda x: gpu.blas.gemm(x, weights))
        async for result in pipeline.run(images):
            ...

    Items enter each stage in the order of the source, unless ``ordered`` is false. The next item is taken when fewer
    than ``in_flight`` are in the pipeline, those included whose result was not taken: a slow reader holds the source
    back.

    An item that is interrupted by a lost context fails with ``ContextPoisoned``, or is tried again from the first
    stage, up to ``attempts`` times. Items that have not entered a stage are not affected; they run in the next context.

    Args:
        stages: Stages, at least one: functions, or :class:`PipelineStage` objects.
        in_flight: Items at once.
        ordered: True if results are in the order of the source; otherwise they are in the order of completion.
        on_error: Policy for an item's error, see :data:`.OnError`.
        attempts: Number of tries of an item, including those after lost contexts. A value above 1 declares that the
            stages may be repeated.
        name: Name of the pipeline, for errors; ops of item 3 carry the request key ``"<name> 3"``.

    Raises:
        TypeError, ValueError: No stage, or a number that is too small.
    """

    def __init__(
        self,
        *stages: "PipelineStage | Callable[[Any], Any]",
        in_flight: int = IN_FLIGHT,
        ordered: bool = True,
        on_error: OnError = "fail",
        attempts: int = 1,
        name: str = "pipeline",
    ) -> None:
        if not stages:
            raise ValueError("a pipeline needs at least one stage")
        if in_flight < 1 or attempts < 1:
            raise ValueError(f"in_flight is {in_flight} and attempts {attempts}; both are at least 1")
        if not callable(on_error) and on_error not in OUTCOMES:
            raise ValueError(f"on_error is {on_error!r}; use 'fail', 'skip' or 'item', or pass a function")
        self.name = name
        self.stages = [stage if isinstance(stage, PipelineStage) else PipelineStage(stage) for stage in stages]
        self.in_flight = in_flight
        self.ordered = ordered
        self._on_error = on_error
        self._attempts = attempts
        self._runs: set[_Run] = set()
        self._counts = dict.fromkeys(("taken", "completed", "failed", "skipped", "retried"), 0)

    @staticmethod
    def on(device: "Device", compute: Callable[[GpuRef], Any], **options: Any) -> "PipelineExecutor[npt.NDArray[Any]]":
        """Three stages: host array to the device, ``compute`` of the ref, its result (a ref) to the host.

        Copies to the device, computation and copies to the host of different items overlap. Arrays of
        :meth:`Device.host_empty` are read by the device directly; others are copied on another thread, and must stay
        unchanged until their result is available.

        Args:
            device: Computes.
            compute: Returns a ref, without waiting for it.
            options: Options of :class:`PipelineExecutor`.
        """

        def h2d(array: Any) -> Any:
            return device.put(array, non_blocking=True)

        def d2h(ref: Any) -> Any:
            if not isinstance(ref, GpuRef):
                raise TypeError(f"compute returned a {type(ref).__name__}; it has to return a GpuRef")
            return ref.get()

        found: PipelineExecutor[npt.NDArray[Any]] = PipelineExecutor(
            h2d, PipelineStage(compute, "compute"), d2h, **options
        )
        return found

    @property
    def stage_count(self) -> int:
        """Number of stages."""
        return len(self.stages)

    @property
    def stats(self) -> PipelineStats:
        """Figures so far."""
        return PipelineStats(**self._counts, in_flight=sum(run.open for run in self._runs))

    async def run(self, source: "AsyncIterable[Any] | Iterable[Any]") -> AsyncGenerator[R, None]:
        """Take items from the source and yield their results.

        Leaving the loop early, or cancelling the reader, cancels the items in flight and closes the source; as with all
        async generators, that is when this one is closed: ``async with contextlib.aclosing(pipeline.run(source))``.

        Raises:
            Exception: Raised by a stage, with ``on_error="fail"``; or by the source, after the results of the
                items before.
        """
        run = _Run(self, source)
        self._runs.add(run)
        try:
            while (found := await run.next()) is not _END:
                yield found
        finally:
            self._runs.discard(run)
            await run.close()

    async def collect(self, source: "AsyncIterable[Any] | Iterable[Any]") -> list[R]:
        """The results of all items."""
        async with contextlib.aclosing(self.run(source)) as results:
            return [result async for result in results]

    async def drain(self) -> None:
        """Stop taking items; runs end when those in flight are done and read. Returns when none is in a stage.

        Raises:
            RuntimeError: Called in one of the stages: the item there would wait for itself.
        """
        current = asyncio.current_task()
        if any(current in run.jobs for run in self._runs):
            raise RuntimeError(
                f"{self.name}: drain() in a stage of this pipeline would wait for itself; "
                "start it with asyncio.create_task(pipeline.drain()) and do not await it there"
            )
        await asyncio.gather(*(run.drain() for run in list(self._runs)))

    def __repr__(self) -> str:
        names = " → ".join(stage.name for stage in self.stages)
        return f"<PipelineExecutor {self.name!r}: {names}, {self.in_flight} in flight>"


_END: Any = object()
_SKIPPED: Any = object()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Run:
    """One pass of a source through the stages.

    Attributes:
        open: Items that were taken and whose result was not read.
    """

    def __init__(self, executor: PipelineExecutor[Any], source: Any) -> None:
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
                return _END
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
                    item = await anext(self._source)
                except StopAsyncIteration:
                    break
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
