"""``PipelineExecutor``: items through stages, several in flight, so that copies and computing overlap."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from callboard.actors.handles import Handle
from callboard.core.ref import GpuRef
from callboard.patterns.pipeline.errors import OUTCOMES, OnError
from callboard.patterns.pipeline.run import END_OF_RUN, PipelineRun
from callboard.patterns.pipeline.stage import PipelineStage

if TYPE_CHECKING:
    import numpy.typing as npt

    from callboard.device.client.handle import Device

__all__ = ["PipelineExecutor", "PipelineStats"]

R = TypeVar("R")

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
    back. Arrays and other buffers are copied when they are taken, so a source may yield the same one again and again.

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
        self._runs: set[PipelineRun] = set()
        self._counts = dict.fromkeys(("taken", "completed", "failed", "skipped", "retried"), 0)

    @staticmethod
    def on(device: "Device", compute: Callable[[GpuRef], Any], **options: Any) -> "PipelineExecutor[npt.NDArray[Any]]":
        """Three stages: host array to the device, ``compute`` of the ref, its result (a ref) to the host.

        Copies to the device, computation and copies to the host of different items overlap. Arrays of
        :meth:`Device.host_empty` and of pinned pools are read by the device directly, and must stay unchanged until
        their result is available. Others are copied when they are taken from the source.

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
        run = PipelineRun(self, source)
        self._runs.add(run)
        try:
            while (found := await run.next()) is not END_OF_RUN:
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
