"""``Crew``: the devices of a pipeline, a worker beside each, and which stages it computes."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from callboard.actors.props import Props
from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.train.batches import Batch, rows_of
from callboard.train.job import Job
from callboard.train.kinds import share_of
from callboard.train.pipeline.messages import Assigned, Described, Finished
from callboard.train.pipeline.passage import Passage
from callboard.train.pipeline.plans import MicroBatch, Plan
from callboard.train.pipeline.routes import From
from callboard.train.pipeline.schedules.actions import Kind
from callboard.train.pipeline.schedules.tables import placement, table
from callboard.train.pipeline.shapes import apart, joined
from callboard.train.pipeline.values import Value
from callboard.train.pipeline.worker import Worker
from callboard.train.replicas.calls import every
from callboard.train.replicas.measuring import Measures, added
from callboard.train.replicas.participants import Participants
from callboard.train.replicas.rates import Groups, Rates
from callboard.train.replicas.replica import Update
from callboard.train.states import Kept, State, check_alike

__all__ = ["Crew"]


class Crew(Participants[Worker]):
    """The devices that take part, as :class:`.Trainer` knows them.

    Args:
        assigned: The training, without stages.
        plan: How batches are cut, and in which order their parts are computed.

    Attributes:
        devices: In the order of their stages.
        placed: For each stage, the number of its device.
    """

    def __init__(self, assigned: Assigned, plan: Plan) -> None:
        super().__init__()
        self.placed: list[int] = []
        self._assigned = assigned
        self._plan = plan
        self._stages: list[Described] = []
        self._adds_up = False  # the divisor, as far as it was seen

    def use(self, job: Job) -> None:
        self._assigned = replace(self._assigned, job=job)

    async def change(self, devices: Sequence[Device]) -> None:
        """Let these devices take part, as many as there are stages at most. Their workers have no state."""
        await self.close()
        count = self._assigned.last + 1
        self.devices = list(devices)[:count]
        self.placed = placement(self._plan.schedule, len(self.devices), count)
        self.actors = [device.actor_of(Props(Worker, self._of(rank))) for rank, device in enumerate(self.devices)]
        self._generations = []

    def _of(self, rank: int) -> Assigned:
        own = tuple(stage for stage, where in enumerate(self.placed) if where == rank)
        models = self._assigned.models
        if models is not None:
            models = [model if at in own else None for at, model in enumerate(models)]
        device = self.devices[rank]
        in_host_memory = device.backend == "cpu" and device.isolation == "process"
        job = replace(self._assigned.job, born=device.generation)
        return replace(self._assigned, job=job, models=models, stages=own, in_host_memory=in_host_memory)

    async def _at_one(self, kept: Kept | None) -> Update:
        if not self._stages:
            described = await every(worker.call(Worker.describe) for worker in self.actors)
            of = {number: one for each in described for number, one in each.items()}
            self._stages = [of[number] for number in sorted(of)]
            _check(self._stages)
        done = await self._updates()
        step = done[0].step
        if step < 0 or any(one.step != step for one in done):
            step = 0 if kept is None else kept.step
            await self._load(kept, [rank for rank, one in enumerate(done) if one.step != step])
            done = [Update(step)]
        self.laps.lap("state")
        return _of_all(done)

    async def _updates(self) -> list[Update]:
        return await every(worker.call(Worker.done) for worker in self.actors)

    async def load(self, kept: Kept) -> None:
        await self._load(kept, range(len(self.actors)))

    async def _load(self, kept: Kept | None, ranks: Sequence[int]) -> None:
        parts: Sequence[State] = [] if kept is None else kept.parts
        if kept is not None and kept.cut != self._stages:
            whole = parts[0] if kept.cut is None else await asyncio.to_thread(joined, parts, kept.cut)
            parts = await asyncio.to_thread(apart, whole, self._stages)
        step = 0 if kept is None else kept.step
        of = [{at: one for at, one in enumerate(parts) if self.placed[at] == rank} for rank in range(len(self.actors))]
        await every(self.actors[rank].call(Worker.load, step, of[rank]) for rank in ranks)

    async def state(self) -> State:
        kept = await self.keep()
        return await asyncio.to_thread(joined, kept.parts, kept.cut)

    async def keep(self) -> Kept:
        per_worker: list[dict[int, State]] = await every(worker.call(Worker.states) for worker in self.actors)
        states = [per_worker[rank][stage] for stage, rank in enumerate(self.placed)]
        check_alike(states)
        return Kept(states, self._stages)

    async def take(self, number: int, batch: Batch, rates: Rates) -> Update:
        try:
            micros = self._cut(batch)
            self._check_divisor(batch, micros)
            finished = await self._passed(number, micros)
            loss = share_of(sum(one.loss for one in finished), sum(one.weight for one in micros))
            self.micros = tuple(one.micros for one in finished)
            norm = math.sqrt(math.fsum(norm * norm for one in finished for norm in one.norms))
            self.begun = max(self.begun, number)
            updates: list[Update] = await every(
                worker.call(Worker.update, number, rates, norm, loss) for worker in self.actors
            )
        except BaseException:  # also a cancelled step leaves stages apart
            self.doubt()
            raise
        return _of_all(updates)

    async def groups(self) -> list[Groups]:
        per_worker: list[dict[int, Groups]] = await every(worker.call(Worker.groups) for worker in self.actors)
        return [per_worker[rank][stage] for stage, rank in enumerate(self.placed)]

    async def flops(self, batch: Batch) -> float:
        first = self._cut(batch)[:1]
        return sum(one.flops for one in await self._passed(0, first, count=True)) / first[0].rows

    def _check_divisor(self, batch: Batch, micros: list[MicroBatch]) -> None:
        job = self._assigned.job
        if job.divisor is not None and self._plan.trim is None and not self._adds_up:
            rows = rows_of(batch)
            self._adds_up = job.adds_up(job.weight_of(batch, rows), rows, [(one.weight, one.rows) for one in micros])

    def _cut(self, batch: Batch) -> list[MicroBatch]:
        ports = [stage.ports for stage in self._stages]
        dtype = next(stage.dtype for stage in self._stages if stage.dtype)
        return self._plan.cut(batch, ports, self._stages[0].entry, dtype, len(self.devices))

    async def evaluate(self, step: int, batch: Batch, metrics: bytes) -> Measures:
        try:
            finished = await self._passed(step, self._cut(batch), metrics=metrics)
        except BaseException:  # also a cancelled one leaves stages apart
            self.doubt()
            raise
        return added(one.measures for one in finished if one.measures is not None)

    async def _passed(
        self, number: int, micros: list[MicroBatch], *, count: bool = False, metrics: bytes | None = None
    ) -> list[Finished]:
        """Pass micro-batches through the stages and back; those of an evaluation not back."""
        actions = table(self._plan.schedule, len(self.devices), len(self.placed), len(micros))
        if metrics is not None:
            actions = [[action for action in row if action.kind is Kind.FORWARD] for row in actions]
        return await Passage(self, actions, micros, number, count=count, metrics=metrics).run()

    def beside(self, given: From, stage: int) -> Value:
        """A value of one stage, where another one can use it: the same memory, or a copy on its device."""
        value = given.value
        if not isinstance(value.array, GpuRef) or self.placed[given.stage] == self.placed[stage]:
            return value
        array: Any = value.array.to(self.devices[self.placed[stage]])
        return Value(array, value.dtype, value.shape, value.needs_gradient)


def _of_all(updates: Sequence[Update]) -> Update:
    """The update of a device that has parameters, and so a step size."""
    return next((one for one in updates if one.lr == one.lr), updates[0])


def _check(stages: Sequence[Described]) -> None:
    if not any(stage.dtype for stage in stages):
        raise ValueError("the model has no parameter that requires a gradient; there is nothing to train")
