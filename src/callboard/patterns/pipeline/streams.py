"""Streams as async iterators: a queue as a source, a stage over a source, all results in a list; a sink to push to."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from callboard.actors.errors import MailboxFull
from callboard.actors.loops.end import END
from callboard.patterns.contract.atcall import at_the_call
from callboard.patterns.pipeline.executor import PipelineExecutor
from callboard.patterns.pipeline.run import Taken
from callboard.patterns.pipeline.stage import PipelineStage
from callboard.patterns.requests.errors import ServerStopped

__all__ = ["PipelineSink", "gpu_stage", "run_collect", "source_from_unbounded"]

T = TypeVar("T")
R = TypeVar("R")


async def source_from_unbounded(queue: "asyncio.Queue[T]") -> AsyncGenerator[T, None]:
    """Yield the items of a queue, until :data:`END` arrives.

    A producer is never held back, because the queue is unbounded.
    """
    while (item := await queue.get()) is not END:
        yield item


def gpu_stage(
    source: AsyncIterable[T] | Iterable[T],
    parallelism: int,
    function: Callable[[T], Any],
    **options: Any,
) -> AsyncGenerator[Any, None]:
    """One stage over a source: ``function`` of each item, ``parallelism`` of them at once, in order.

    The function may be async, return a ``GpuRef`` or a reply; it is called with the next item before the previous value
    is available.

    Args:
        source: Any iterable; closed when this ends.
        parallelism: Items at once, at least 1.
        function: Function of one item.
        options: Options of :class:`.PipelineExecutor`: ``ordered``, ``on_error``, ``attempts``, ``name``.
    """
    stage = PipelineStage(function)
    return PipelineExecutor[Any](stage, in_flight=parallelism, **options).run(source)


async def run_collect(
    source: AsyncIterable[T] | Iterable[T], parallelism: int, function: Callable[[T], Any], **options: Any
) -> list[Any]:
    """The results of :func:`gpu_stage`, as a list."""
    async with contextlib.aclosing(gpu_stage(source, parallelism, function, **options)) as results:
        return [result async for result in results]


class PipelineSink(Generic[T, R]):
    """A pipeline to push to: :meth:`submit` items, and iterate over the results.

    ::

        async with cb.PipelineSink(pipeline, capacity=8) as sink:
            await sink.submit(item)
            ...
            sink.close()
            async for result in sink:
                ...

    Leaving the block cancels the items in flight. When the pipeline ends by an error, the sink is closed.

    Args:
        executor: The pipeline.
        capacity: Items that wait for it at most.
    """

    def __init__(self, executor: PipelineExecutor[R], capacity: int = 16) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; it is at least 1")
        self._executor = executor
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._free = capacity
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._results = executor.run(self._items())

    @at_the_call
    async def submit(self, item: T) -> None:
        """Submit an item, waiting for room in order of submission. It is taken as it is at the call.

        Raises:
            ServerStopped: It is closed, or was while this waited.
        """
        self._check()
        if self._free <= 0 or self._waiting:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
                self._check()
            except BaseException:  # a cancel, too
                if turn.done() and not turn.cancelled():
                    self._give_back()
                raise
        else:
            self._free -= 1
        self._queue.put_nowait(item)

    @at_the_call
    def try_submit(self, item: T) -> None:
        """The same without waiting.

        Raises:
            MailboxFull: There is no room.
            ServerStopped: It is closed.
        """
        self._check()
        if self._free <= 0 or self._waiting:
            raise MailboxFull(f"{self._executor.name}: {self._queue.qsize()} items wait already")
        self._free -= 1
        self._queue.put_nowait(item)

    def close(self) -> None:
        """No more items come: the results end after those that were submitted. Nothing the second time."""
        if not self._closed:
            self._closed = True
            self._queue.put_nowait(END)

    def _check(self) -> None:
        if self._closed:
            raise ServerStopped(f"{self._executor.name} was closed and takes no items")

    def _give_back(self) -> None:
        """Room for one item: of the first that waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _items(self) -> AsyncGenerator[Taken, None]:
        try:
            while (item := await self._queue.get()) is not END:
                self._give_back()
                yield Taken(item)
        finally:
            self.close()
            while self._waiting:  # they find it closed
                self._give_back()

    def __aiter__(self) -> AsyncIterator[R]:
        """The results; they may be iterated over once, also while items are submitted."""
        return self._results

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self._results.aclose()
        while self._waiting:
            self._give_back()
