"""``Stage``: a step of a query that is computed for many queries at once, with a time limit and a way to go on."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

from callboard.agents.checks import positive
from callboard.agents.rag.answer import RagRun
from callboard.core.errors import ContextLost
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.requests.calling import deliverable
from callboard.patterns.requests.errors import DeadlineExceeded

__all__ = ["Deadline", "RagStage", "Stage", "left_out"]

T = TypeVar("T")
R = TypeVar("R")
OnFailure = Literal["fail", "skip"]
log = logging.getLogger("callboard.agents.rag")


@dataclass(frozen=True)
class RagStage:
    """Settings of a stage of a :class:`RagPipeline`.

    Attributes:
        timeout: Seconds that a query may spend in it; None: as long as the whole query may take.
        on_failure: ``"fail"``: an error, or the end of that time, is the query's. ``"skip"``: the query goes on without
            this stage, and the answer says so in ``skipped``.
        max_batch: Queries that are computed at once; of ``generate``: that are generated at the same time.
        max_queue: Queries that wait at most.
    """

    timeout: float | None = None
    on_failure: OnFailure = "fail"
    max_batch: int = 32
    max_queue: int = 1024

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout is {self.timeout}; it must be positive, or None for no limit")
        if self.on_failure not in get_args(OnFailure):
            raise ValueError(f"on_failure is {self.on_failure!r}; it must be 'fail' or 'skip'")
        positive("max_batch", self.max_batch)
        positive("max_queue", self.max_queue)


class Stage(Generic[T, R]):
    """A function of many items, called for one query at once if no other is in the stage, else for a batch.

    A lone query calls the function in its own task: a server would add more than the rest of the pipeline takes.

    Args:
        name: Of the stage.
        function: Gets a list of items, is awaited for one result for each.
        options: The settings.
        key: Items of equal keys may share a batch.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[list[T]], Awaitable[list[Any]]],
        options: RagStage,
        *,
        key: Callable[[T], Hashable] | None = None,
    ) -> None:
        self.name, self.options = name, options
        self._function = function
        self._idle = asyncio.Event()  # a lock would take a coroutine
        self._idle.set()
        self._joined = 0
        self._server: DynamicBatchingServer[T, R] = DynamicBatchingServer(
            self._batch,
            max_batch=options.max_batch,
            max_queue=options.max_queue,
            bucket=key,
            name=f"the stage {name!r}",
        )

    async def __call__(self, item: T, run: RagRun, otherwise: R) -> R:
        """The result of an item; ``otherwise`` if it fails or takes too long, and may be left out.

        Raises:
            DeadlineExceeded: It took too long.
            Exception: Raised by the function.
        """
        begun = time.perf_counter()
        deadline = None
        try:
            if self.options.timeout is None:
                return await self._result(item)
            deadline = Deadline(f"the stage {self.name!r}", self.options.timeout)
            with deadline:
                return await self._result(item)
        except Exception as e:  # of the user's function
            if self.options.on_failure == "fail":
                raise
            left_out(run, self.name, e)
            return otherwise
        finally:
            if deadline is not None:
                deadline.close()
            run.spent(self.name, begun)

    async def _result(self, item: T) -> R:
        idle = self._idle
        if not self._joined and idle.is_set():
            found: Any
            idle.clear()
            try:
                (found,) = await self._function([item])
            except ContextLost:  # once more, as one that may run again
                pass
            else:
                if isinstance(found, BaseException):
                    raise deliverable(found)
                value: R = found
                return value
            finally:
                idle.set()
        self._joined += 1
        try:
            return await self._server.submit(item)
        finally:
            self._joined -= 1

    async def _batch(self, items: list[T]) -> list[Any]:
        while not self._idle.is_set():
            await self._idle.wait()
        self._idle.clear()
        try:
            return await self._function(items)
        finally:
            self._idle.set()

    async def start(self) -> None:
        """Accept items, on this loop."""
        await self._server.start()

    async def stop(self) -> None:
        """Accept no more; those that wait fail."""
        await self._server.stop()


class Deadline:
    """A time by which the sections under it have to end: ``with deadline: await …``, as often as need be.

    One timer serves them all. Between the sections nothing is interrupted; the next one then fails at its start.

    Args:
        what: What took too long, for the error.
        seconds: The time, from now.
    """

    __slots__ = ("_before", "_over", "_seconds", "_task", "_timer", "_what")

    def __init__(self, what: str, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._over, self._before = False, 0
        self._task: asyncio.Task[Any] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end)

    def _end(self) -> None:
        self._over = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> None:
        if self._over:
            raise self._error()
        task = self._task = asyncio.current_task()
        assert task is not None
        self._before = task.cancelling()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        task, self._task = self._task, None
        if self._over and task is not None:  # during this section: the task was cancelled here
            left = task.uncancel()
            if left <= self._before and kind is asyncio.CancelledError:
                raise self._error() from error

    def _error(self) -> DeadlineExceeded:
        text = f"{self._what} took longer than {self._seconds:.3g} s"
        return DeadlineExceeded(text, stage="run", waited=self._seconds)

    def close(self) -> None:
        """No section follows."""
        self._timer.cancel()


def left_out(run: RagRun, stage: str, error: Exception) -> None:
    """Note that a query goes on without a stage."""
    run.skipped[stage] = str(error) or type(error).__name__
    log.warning("a query goes on without the stage %r: %s", stage, run.skipped[stage])
