"""``PipelineStage``: one step of a pipeline, and how it is called."""

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable
from typing import Any

from callboard.core.ref import GpuRef
from callboard.patterns.requests.calling import deliverable
from callboard.patterns.requests.inside import part_of_this

__all__ = ["PipelineStage"]


class PipelineStage:
    """A function of one item.

    It may return a value, an awaitable, or a ``GpuRef``. A ref is passed to the next stage unchanged, before its value
    is computed: the device orders the work of the stages itself, and the host waits only for the last one.

    Args:
        function: Called with the result of the previous stage, on the event loop; it must not block there.
        name: Name of the stage, for errors and statistics; the function's name by default.
        parallelism: Items that may be in this stage at once; None: as many as the pipeline has in flight. The stage
            holds an item until the function has returned and its result was awaited.
        thread: Call the function on a thread, one for each item that may be in the stage: for code that blocks or
            computes.

    Raises:
        TypeError: ``function`` cannot be called, or is async and has ``thread``.
        ValueError: ``parallelism`` is below 1.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        name: str | None = None,
        *,
        parallelism: int | None = None,
        thread: bool = False,
    ) -> None:
        given: Any = function
        if not callable(given):
            raise TypeError(f"a stage has to be a function, but is {given!r}")
        if thread and inspect.iscoroutinefunction(function):
            raise TypeError(f"{function!r} is async: it runs on the event loop, so leave thread=True out")
        if parallelism is not None and parallelism < 1:
            raise ValueError(f"parallelism is {parallelism}; it is at least 1, or None")
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.parallelism = parallelism
        self.thread = thread

    async def enqueue(self, item: Any, pool: concurrent.futures.Executor | None) -> Any:
        """Call the stage's function; a ref is returned pending, any other awaitable is awaited.

        Raises:
            Exception: Raised by the function.
        """
        if pool is None:
            value = self.function(item)
        else:
            value = await asyncio.get_running_loop().run_in_executor(
                pool, part_of_this(_called, pool), self.function, item
            )
        return await value if inspect.isawaitable(value) and not isinstance(value, GpuRef) else value

    def __repr__(self) -> str:
        return f"<PipelineStage {self.name!r}>"


def _called(function: Callable[[Any], Any], item: Any) -> Any:
    try:
        return function(item)
    except BaseException as e:  # a SystemExit there ends an item, not the event loop
        raise deliverable(e) from None
