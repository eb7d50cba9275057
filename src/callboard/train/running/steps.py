"""``Steps``: steps that survive lost devices."""

import asyncio
import itertools
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from callboard.actors.errors import ActorStopped
from callboard.actors.handles import Handle
from callboard.core.backend.machine import cores, workers
from callboard.core.errors import ContextLost, DeviceStopped
from callboard.device.client.handle import Device
from callboard.device.client.line.copying import Copier
from callboard.events.kinds import MARK
from callboard.events.ring import EVENTS, now
from callboard.train.batches import Batch, as_arrays, rows_of, tokens_of
from callboard.train.errors import NotFinite, TrainerClosed
from callboard.train.job import Job
from callboard.train.opening import Opened
from callboard.train.replicas.participants import Participants
from callboard.train.replicas.rates import Rates
from callboard.train.replicas.replica import Update
from callboard.train.replicas.snapshots import Snapshots
from callboard.train.running.modelfiles import ModelFiles
from callboard.train.running.sampling import Cursor
from callboard.train.running.schedule import Schedule
from callboard.train.states import Kept, State
from callboard.train.stats import StepRecovery, StepStats

__all__ = ["Steps"]

_log = logging.getLogger(__name__)

REPEATS = 20
"""Losses in a row after which a step fails."""

SKIPPED = 10
"""Steps in a row that may be skipped."""

S = TypeVar("S", State, Kept)
T = TypeVar("T")


class Steps(Handle):
    """A trainer as far as it takes steps. Subclasses say who takes part, and how these take one.

    Args:
        name: The class of the trainer, for errors.
        job: What is trained, and how.
        devices, not_finite, snapshot_every, flops_per_sample, peak_flops: See :class:`.DataParallelTrainer`.

    Attributes:
        cursor: Where a run is.
    """

    cursor = Cursor()

    def __init__(
        self,
        name: str,
        job: Job,
        devices: Sequence[Device | str],
        not_finite: str,
        snapshot_every: int,
        flops_per_sample: float | None,
        peak_flops: float | None,
    ) -> None:
        job.check(name)
        if not_finite not in ("skip", "stop", "roll_back"):
            raise ValueError(f"{name}: not_finite is {not_finite!r}; use 'skip', 'stop' or 'roll_back'")
        for key, value in (("flops_per_sample", flops_per_sample), ("peak_flops", peak_flops)):
            if value is not None and not 0 < value <= sys.float_info.max:
                raise ValueError(f"{name}: {key} is {value}; it is a number above 0, or None")
        self._job = job
        self._schedule = Schedule(job.schedule, job.optimizer, name)
        self._opened = Opened(name, devices)
        self._not_finite = not_finite
        self._snapshots = Snapshots(snapshot_every)
        self._members: Participants[Any] | None = None
        self._files = ModelFiles()
        self._copier = Copier()
        self._lock = asyncio.Lock()
        self._done = self._updates = 0
        self._skipped = 0
        self._flops = flops_per_sample
        self._peak = peak_flops

    def _participants(self, job: Job) -> Participants[Any]:
        """Those that take steps, of no device yet."""
        raise NotImplementedError

    def _models(self) -> Sequence[Any]:
        """The modules, or functions that give them, that the hosts get."""
        return [self._job.model]

    async def __aenter__(self) -> Self:
        try:
            devices = await self._opened.open()
            members = self._members = self._participants(await self._job_on(devices))
            await members.change(devices)
            await self._until_agreed(members)
            await self._follow(members, 0)
            await self._snapshot(members)
        except BaseException as error:  # also a cancelled start gives its devices back
            await self.close()
            if isinstance(error, ActorStopped) and isinstance(error.__cause__, Exception):
                raise error.__cause__ from None  # of the model or the optimizer
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def _job_on(self, devices: Sequence[Device]) -> Job:
        """What the hosts of these devices are told to train.

        Raises:
            OSError: There is no room for the files of a large module.
        """
        await asyncio.to_thread(self._files.write, self._models(), devices)
        return replace(self._job.for_hosts(threads(devices)), model=self._files.of(self._job.model))

    async def close(self) -> None:
        """Stop the actors; close the devices that the trainer has opened. A step that runs fails."""
        members, self._members = self._members, None
        if members is not None:
            await members.close()
        await self._opened.close()
        self._copier.close()
        await asyncio.to_thread(self._files.close)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that take part, in the order of their actors."""
        return tuple(self._training().devices)

    @property
    def steps(self) -> int:
        """Steps done."""
        return self._done

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def step(self, batch: Batch) -> StepStats:
        """Train with one batch. Steps are done one after the other, in the order of the calls.

        Args:
            batch: ``(inputs, targets)``, or what the model takes if ``loss`` is None: arrays or tensors with one row
                for each sample, in tuples or dicts. Floating-point arrays get the dtype of the model's parameters. They
                are copied when the step is asked for: a loss may have it repeated long after.

        Raises:
            TypeError, ValueError: A batch that cannot be.
            NotFinite: See ``not_finite``.
            Exception: What the model, the loss or the optimizer raised; the weights are as before, as they are when a
                step was cancelled.
            DeviceStopped: The last device has stopped for good.
        """
        return await self.take(as_arrays(batch, copy=self._copier.copy))

    async def take(self, arrays: Batch) -> StepStats:
        """:meth:`step` with arrays that stay as they are: they are not copied."""
        if not rows_of(arrays):
            raise ValueError("the batch has no samples")
        async with self._lock:
            members, began = self._training(), time.perf_counter_ns()
            members.laps.begin()
            await self._as_before(members)
            await self._count_flops(members, arrays)
            rates = self._schedule.rates(self._updates, self.cursor.factor)
            update, repeats = await self._repeated(members, arrays, rates)
            self._done, self._updates = self._done + 1, update.updates
            stats = self._stats(members, update, arrays, (time.perf_counter_ns() - began) // 1000, repeats)
            self._snapshots.keep(arrays, rates, stats.step_micros / 1e6)
            if stats.skipped:
                if self._not_finite == "roll_back":
                    undone = len(self._snapshots.since(0)) - 1
                    stats = msgspec.structs.replace(stats, undone=undone)
                await self._after_skipped(members, stats)
            else:
                self._skipped = 0
                if self._snapshots.due(early=not members.copied and self._not_finite != "roll_back"):
                    await self._snapshot(members)
            return stats

    async def _change(self, devices: Sequence[Device | str]) -> None:
        """Train on these devices from the next step on."""
        async with self._lock:
            members = self._training()
            await self._snapshot(members)
            opened = await self._opened.open(devices)
            members.use(await self._job_on(opened))
            await members.change(opened)
            await self._until_agreed(members)
            await self._opened.close_others()

    async def _repeated(self, members: Participants[Any], batch: Batch, rates: Rates) -> tuple[Update, int]:
        """The update, and how many losses came before it."""
        for repeats in itertools.count():
            generations = members.generations
            try:
                return await self._attempt(members, batch, rates), repeats
            except Exception as error:  # raised again unless a loss is the reason
                if not await _is_loss(error, members, generations):  # it is of the model, the loss or the optimizer
                    error.add_note(f"in step {self._done + 1}, with a batch of {rows_of(batch)} samples")
                    raise
                members.laps.lap("noticed")
                self._check_repeat(error, repeats)
        raise AssertionError("unreachable")

    async def _attempt(self, members: Participants[Any], batch: Batch, rates: Rates) -> Update:
        number = self._done + 1
        if not members.agreed:
            update = await self._agree(members)
            if update.step == number:  # a survivor took the step
                members.micros = ()  # those of all are not known
                return update
        return await members.take(number, batch, rates)

    async def _as_before(self, members: Participants[Any]) -> None:
        """All in the state after the last step, if one failed or was cancelled while it was being applied."""
        if members.begun > self._done:
            await self._load(members)
            await self._until_agreed(members)
            members.begun = 0

    async def _until_agreed(self, members: Participants[Any]) -> None:
        members.doubt()
        await self._survived(members, _nothing)

    async def _agree(self, members: Participants[Any]) -> Update:
        """All in the state after the last step, or after the one that is being done."""
        update = await members.agree(self._snapshots.state)
        given = self._snapshots.since(update.step)
        members.laps.repeat(len(given))
        for number, (batch, rates) in zip(range(update.step + 1, self._done + 1), given, strict=False):
            update = await members.take(number, batch, rates)
        return update

    def _check_repeat(self, error: Exception, repeats: int) -> None:
        members = self._members
        if repeats >= REPEATS or members is None or all(device.stopped for device in members.devices):
            raise error
        _log.warning("step %d begins again: %s", self._done + 1, error)

    def _stats(self, members: Participants[Any], update: Update, batch: Batch, micros: int, repeats: int) -> StepStats:
        rows = rows_of(batch)
        recovery = members.laps.recovery()
        if recovery is not None:
            _tell(self._done, recovery)
        return StepStats(
            step=self._done,
            loss=update.loss,
            grad_norm=update.norm,
            lr=update.lr,
            samples=rows,
            tokens=tokens_of(batch),
            flops=None if self._flops is None else self._flops * rows,
            peak_flops=None if self._peak is None else self._peak * len(members.devices),
            step_micros=micros,
            skipped=update.skipped,
            repeats=repeats,
            recovery=recovery,
            replica_micros=members.micros,
            devices=tuple(device.name for device in members.devices),
        )

    async def _count_flops(self, members: Participants[Any], batch: Batch) -> None:
        """Count the operations of a sample, once, if they are needed and were not given."""
        if self._peak is not None and self._flops is None:
            self._flops = await self._survived(members, lambda: members.flops(batch))

    async def _after_skipped(self, members: Participants[Any], stats: StepStats) -> None:
        self._skipped += 1
        _log.warning("step %d was skipped: its gradient is not finite (loss %s)", stats.step, stats.loss)
        if self._not_finite == "roll_back":
            await self._roll_back(members)
        if self._not_finite == "stop" or self._skipped >= SKIPPED:
            raise NotFinite(
                f"step {stats.step}: the gradient is not finite (loss {stats.loss}), for {self._skipped} steps in a "
                "row; the weights are those before them. Lower the step size, set gradient_clip, or look for NaN in "
                "the batch"
            )

    async def _roll_back(self, members: Participants[Any]) -> None:
        """Back to the weights of the last snapshot; the number of steps goes on."""
        state = self._snapshots.state
        assert state is not None  # taken when the trainer was opened
        self._snapshots.take(state.at(self._done))
        self._updates = state.updates
        members.begun = self._done + 1
        await self._load(members)
        members.begun = 0

    async def _follow(self, members: Participants[Any], updates: int) -> None:
        """Have a scheduler of torch go on after so many updates, from the step sizes that the optimizers began with."""
        if self._schedule.follows:
            groups = await self._survived(members, members.groups)
            await asyncio.to_thread(self._schedule.begin, groups, updates)

    async def foresee(self, steps: int) -> None:
        """Check that a scheduler of torch has step sizes for so many more steps.

        Raises:
            Exception: What the scheduler raised, with a note.
        """
        if self._schedule.follows:
            await asyncio.to_thread(self._schedule.check, self._updates + steps)

    async def _load(self, members: Participants[Any]) -> None:
        """Give all the last snapshot."""
        state = self._snapshots.state
        assert state is not None  # taken when the trainer was opened
        for repeats in itertools.count():
            generations = members.generations
            try:
                await members.load(state)
                return
            except Exception as error:  # raised again unless a loss is the reason
                if not await _is_loss(error, members, generations):
                    raise
                self._check_repeat(error, repeats)
                await self._until_agreed(members)

    async def _settled(self, members: Participants[Any], read: Callable[[], Awaitable[S]]) -> S:
        """What is read is of the last step."""

        async def of_now() -> S:
            state = await read()
            if state.step != self._done:
                raise ContextLost("a device was lost while the state was being read")
            return state

        await self._as_before(members)
        return await self._survived(members, of_now)

    async def _survived(self, members: Participants[Any], call: Callable[[], Awaitable[T]]) -> T:
        """What a call gives that changes nothing; it is made again after a loss, when all have the last state."""
        for repeats in itertools.count():
            generations = members.generations
            try:
                if not members.agreed:
                    await self._agree(members)
                return await call()
            except Exception as error:  # raised again unless a loss is the reason
                if not await _is_loss(error, members, generations):
                    raise
                members.doubt()
                self._check_repeat(error, repeats)
        raise AssertionError("unreachable")

    async def _snapshot(self, members: Participants[Any]) -> None:
        self._snapshots.take(await self._settled(members, members.keep))

    def _training(self) -> Participants[Any]:
        if self._members is None:
            raise TrainerClosed("the trainer is not open; use it inside `async with`")
        return self._members


async def _is_loss(error: Exception, members: Participants[Any], generations: list[int]) -> bool:
    """A loss is the reason: others fail with errors of their own then, also before the loss is known."""
    return isinstance(error, ContextLost | DeviceStopped) or await members.lost_since(generations)


async def _nothing() -> None:
    """Once all are at one."""


def _tell(step: int, recovery: StepRecovery) -> None:
    _log.warning("step %d was done after a loss, in %s", step, recovery)
    ring = EVENTS.ring
    if ring is not None:
        values = {"step": step, **msgspec.structs.asdict(recovery)}
        ring.append((next(ring.numbers), now(), MARK, "training", "recovery", values))


def threads(devices: Sequence[Device]) -> int | None:
    """Threads that torch gets in each host: CPU devices share the cores, and ``OMP_NUM_THREADS`` may allow fewer."""
    hosts = [device for device in devices if device.backend == "cpu" and device.config.isolation == "process"]
    return max(1, min(workers(), cores() // len(hosts))) if hosts else None
