"""``Crew``: the devices of a pipeline, a worker beside each, and which stages it computes."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from callboard.actors.errors import AskTimeout
from callboard.actors.props import Props
from callboard.core.errors import ContextLost, DeviceStopped
from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.device.client.residents.ref import ResidentRef
from callboard.train.pipeline.flows import From
from callboard.train.pipeline.kept import Kept
from callboard.train.pipeline.schedules import placement
from callboard.train.pipeline.values import Value
from callboard.train.pipeline.worker import Assigned, Described, Worker
from callboard.train.replicas.members import every
from callboard.train.states import State

__all__ = ["Crew"]

STOPPING = 5.0
"""Seconds that a worker's current call gets when it is stopped."""

_log = logging.getLogger(__name__)


class Crew:
    """The devices that take part.

    Args:
        assigned: The training, without stages.
        schedule: It decides the device of each stage.

    Attributes:
        devices: In the order of their stages.
        workers: The actors, one beside each device.
        placed: For each stage, the number of its device.
        stages: What is known of each stage.
    """

    def __init__(self, assigned: Assigned, schedule: str) -> None:
        self.devices: list[Device] = []
        self.workers: list[ResidentRef[Worker]] = []
        self.placed: list[int] = []
        self.stages: list[Described] = []
        self._assigned = assigned
        self._schedule = schedule
        self._generations: list[int] = []

    async def change(self, devices: Sequence[Device]) -> None:
        """Let these devices take part, with as many as there are stages at most; their workers have no state."""
        await self.close()
        count = self._assigned.last + 1
        self.devices = list(devices)[:count]
        self.placed = placement(self._schedule, len(self.devices), count)
        self.workers = [device.actor_of(Props(Worker, self._of(rank))) for rank, device in enumerate(self.devices)]
        self._generations = []

    def _of(self, rank: int) -> Assigned:
        own = tuple(stage for stage, where in enumerate(self.placed) if where == rank)
        job = self._assigned.job
        if self._assigned.at is None:
            job = replace(job, model=[model if at in own else None for at, model in enumerate(job.model)])
        return replace(self._assigned, job=job, stages=own)

    async def close(self) -> None:
        """Stop the workers."""
        await asyncio.gather(*map(_end, self.workers))

    @property
    def agreed(self) -> bool:
        """No device has been lost since all stages were brought to one step."""
        return [device.generation for device in self.devices] == self._generations

    def doubt(self) -> None:
        """Something failed: look at every worker again before the next step."""
        self._generations = []

    async def agree(self, kept: Kept, step: int) -> int:
        """Wait for lost devices, and bring all stages to the same step.

        Args:
            kept: The states for stages that are elsewhere.
            step: The step after which they may stay as they are.

        Returns:
            The step after which they are: that one, or that of the kept states.

        Raises:
            ContextLost: Another device was lost meanwhile: try again.
            DeviceStopped: The last device has stopped for good.
        """
        await self._without_stopped()
        generations = [device.generation for device in self.devices]
        if not self.stages:
            described = await every(worker.call(Worker.describe) for worker in self.workers)
            self.stages = [one for _, one in sorted((number, one) for each in described for number, one in each.items())]
        done: list[int] = await every(worker.call(Worker.done) for worker in self.workers)
        if any(one != step for one in done):
            await every(
                worker.call(Worker.load, kept.step, self._states_of(rank, kept.states))
                for rank, worker in enumerate(self.workers)
                if done[rank] != kept.step
            )
            step = kept.step
        self._generations = generations
        return step

    async def load(self, step: int, states: Sequence[State]) -> None:
        """Give every stage its state."""
        await every(
            worker.call(Worker.load, step, self._states_of(rank, states)) for rank, worker in enumerate(self.workers)
        )

    def _states_of(self, rank: int, states: Sequence[State]) -> dict[int, State]:
        return {stage: state for stage, state in enumerate(states) if self.placed[stage] == rank}

    async def states(self) -> list[State]:
        """The state of each stage, in host memory."""
        per_worker: list[dict[int, State]] = await every(worker.call(Worker.states) for worker in self.workers)
        return [per_worker[rank][stage] for stage, rank in enumerate(self.placed)]

    def beside(self, given: From, stage: int) -> Value:
        """A value of one stage, where another one can use it: the same memory, or a copy on its device."""
        value = given.value
        if not isinstance(value.array, GpuRef) or self.placed[given.stage] == self.placed[stage]:
            return value
        array: Any = value.array.to(self.devices[self.placed[stage]])
        return Value(array, value.dtype, value.shape, value.needs_gradient)

    async def _without_stopped(self) -> None:
        """Wait until all devices and workers are ready; deal the stages out again if devices have stopped for good."""
        ready = await asyncio.gather(*(_ready(*one) for one in zip(self.devices, self.workers, strict=True)))
        errors = [error for error in ready if error is not None]
        if errors and len(errors) == len(self.devices):
            raise errors[0]
        if errors:
            for device, error in zip(self.devices, ready, strict=True):
                if error is not None:
                    _log.warning("training goes on without %s, which has stopped", device.name)
            await self.change([one for one, error in zip(self.devices, ready, strict=True) if error is None])
            await self._without_stopped()


async def _ready(device: Device, worker: ResidentRef[Worker]) -> DeviceStopped | None:
    try:
        await device.ready()
        await worker.ready()
    except DeviceStopped as error:
        return error
    return None


async def _end(worker: ResidentRef[Worker]) -> None:
    with contextlib.suppress(AskTimeout, ContextLost, DeviceStopped):  # it goes with its device
        await worker.stop_and_wait(timeout=STOPPING)
