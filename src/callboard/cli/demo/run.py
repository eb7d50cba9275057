"""The demo's main job: principal components of the digits, with the context lost in the middle."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from callboard.cli.demo.fault import Fault
from callboard.cli.demo.pca import Problem, pose, step, variances
from callboard.cli.demo.settings import CHECKPOINT, FAULT_AT, MOST, RANK, SETTLED, first_block
from callboard.core.errors import ContextLost
from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.device.supervision.watch import Lost, Recovered

__all__ = ["Job", "Outcome"]

Array = np.ndarray[Any, np.dtype[np.float64]]


class Outcome(NamedTuple):
    """The result of a run and its events.

    Attributes:
        components: ``[rank, features]``, orthonormal rows.
        explained: ``[rank]``, the part of all variance along each.
        plane: ``[n, 2]``, the samples along the first two.
        iterations: Number of all iterations, including repeated ones.
        generations: Contexts used.
        ops: Messages that were answered, the failed ones included.
        failed: Messages that failed with a lost context.
        seconds: Seconds of the whole job.
        takeover: Seconds from the report of the loss to the next context; None without a loss.
        delay: Seconds from the fault to the checkpoint that it delayed; None without a loss.
    """

    components: Array
    explained: Array
    plane: Array
    iterations: int
    generations: int
    ops: int
    failed: int
    seconds: float
    takeover: float | None
    delay: float | None


class Job:
    """The iteration and its checkpoint.

    Args:
        device: The device.
        samples: ``[n, d]``.
        say: Called with a line of text for each event.
        tick: Called with the iteration that was checkpointed.
    """

    def __init__(self, device: Device, samples: Array, say: Callable[[str], None], tick: Callable[[int], None]) -> None:
        self._device = device
        self._say = say
        self._tick = tick
        self._problem = device.per_generation(lambda device: pose(device, samples))
        # The checkpoint, which outlives a context: a block, its iteration, its variances.
        self._block = first_block(RANK, samples.shape[1])
        self._at = 0
        self._variances = np.zeros(RANK)
        self._iterations = 0
        self._lost: list[Lost] = []
        self._recovered: list[Recovered] = []
        self._struck: float | None = None
        self._delay: float | None = None

    async def run(self, fault: Fault | None) -> Outcome:
        """Iterate until the variances have settled, from the checkpoint again when a context is lost.

        Args:
            fault: Happens after iteration :data:`FAULT_AT <callboard.cli.demo.settings.FAULT_AT>`.
        """
        watch = asyncio.create_task(self._watch())
        await asyncio.sleep(0)  # it listens
        started = time.monotonic()
        try:
            while True:
                try:
                    settled = await self._stretch(fault)
                    if settled or self._at >= MOST:
                        return await self._finish(started)
                except ContextLost as e:
                    await self._device.ready()
                    await asyncio.sleep(0)  # the watcher prints its lines first
                    self._say(f"{type(e).__name__}: {_first_line(e)}; going on from iteration {self._at}")
                if self._struck is not None:
                    fault = None
        finally:
            watch.cancel()

    async def _stretch(self, fault: Fault | None) -> bool:
        """Iterate from the checkpoint to the next one; True when the variances have settled."""
        problem = await self._problem()
        block = self._device.put(self._block)
        for i in range(self._at + 1, self._at + CHECKPOINT + 1):
            block = step(self._device, problem, block)
            self._iterations += 1
            if fault is not None and i == FAULT_AT:
                self._say(f"iteration {i}: {fault.what}")
                self._struck = time.monotonic()
                await fault.strike()
        return await self._checkpoint(problem, block)

    async def _checkpoint(self, problem: Problem, block: GpuRef) -> bool:
        copy, now = block.get(), variances(self._device, problem, block).get()
        found = await now
        change = float(np.max(np.abs(found - self._variances) / found))
        self._block, self._variances = await copy, found
        self._at += CHECKPOINT
        if self._struck is not None and self._delay is None:
            self._delay = time.monotonic() - self._struck
        self._tick(self._at)
        return change < SETTLED

    async def _finish(self, started: float) -> Outcome:
        problem = await self._problem()
        block = self._device.put(self._block)
        plane = self._device.blas.gemm(problem.centred, block[:2], transpose_b=True)
        total, flat = problem.total.get(), plane.get()
        explained = self._variances / float(await total)
        found = await flat * _signs(self._block[:2])
        seconds = time.monotonic() - started
        stats = await self._device.stats()
        return Outcome(
            self._block,
            explained,
            found,
            self._iterations,
            stats.ordinal,
            stats.completed + stats.failed,
            sum(lost.failed for lost in self._lost),
            seconds,
            sum(event.seconds for event in self._recovered) if self._recovered else None,
            self._delay,
        )

    async def _watch(self) -> None:
        async for event in self._device.events():
            if isinstance(event, Lost):
                self._lost.append(event)
                self._say(f"context lost: {_first_line(event.error)}; {event.failed} messages in flight failed")
            elif isinstance(event, Recovered):
                self._recovered.append(event)
                self._say(f"{event.standby} standby took over {event.seconds * 1e3:.2f} ms after the report")


def _signs(components: Array) -> Array:
    """Signs that make the largest entry of each row positive: components have no sign, pictures do."""
    largest = np.abs(components).argmax(axis=1)
    signs: Array = np.sign(components[np.arange(len(components)), largest])
    return signs


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
