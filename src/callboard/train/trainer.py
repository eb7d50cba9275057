"""``Trainer``: the base of the trainers: steps that survive lost devices, snapshots, checkpoints, ``fit``."""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from callboard.actors.errors import AccelError
from callboard.actors.handles import Handle
from callboard.core.errors import ContextLost, DeviceStopped
from callboard.device.client.handle import Device
from callboard.events.kinds import MARK
from callboard.events.ring import EVENTS, now
from callboard.train.batches import Batch, as_arrays, rows_of, tokens_of
from callboard.train.checkpoints import read, write, write_dcp
from callboard.train.errors import NotFinite, TrainerClosed
from callboard.train.job import Job
from callboard.train.opening import Opened
from callboard.train.replicas.participants import Participants
from callboard.train.replicas.replica import Update
from callboard.train.replicas.snapshots import Snapshots
from callboard.train.running.history import History
from callboard.train.running.loop import fit
from callboard.train.running.sampling import Cursor
from callboard.train.states import Kept, State, unpack
from callboard.train.stats import StepRecovery, StepStats

__all__ = ["Trainer"]

_log = logging.getLogger(__name__)

REPEATS = 20
"""Losses in a row after which a step fails."""

SKIPPED = 10
"""Steps in a row that may be skipped."""


S = TypeVar("S", State, Kept)


class Trainer(Handle):
    """Base of the trainers. Subclasses say who takes part, and how these take a step.

    Args:
        name: The class of the trainer, for errors.
        job: What is trained, and how.
        devices, not_finite, snapshot_every, flops_per_sample, peak_flops: See :class:`.DataParallelTrainer`.
    """

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
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}: {key} is {value}; it is a number above 0, or None")
        self.cursor = Cursor()
        self.stopping = False
        self._job = job
        self._opened = Opened(name, devices)
        self._not_finite = not_finite
        self._snapshots = Snapshots(snapshot_every)
        self._members: Participants[Any] | None = None
        self._lock = asyncio.Lock()
        self._done = 0
        self._skipped = 0
        self._flops = flops_per_sample
        self._peak = peak_flops

    def _participants(self, job: Job) -> Participants[Any]:
        """Those that take steps, of no device yet."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        try:
            devices = await self._opened.open()
            members = self._members = self._participants(self._job.with_threads(threads(devices)))
            await members.change(devices)
            await self._until_agreed(members)
            await self._snapshot(members)
        except BaseException:  # also a cancelled start gives its devices back
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the actors; close the devices that the trainer has opened. A step that runs fails."""
        members, self._members = self._members, None
        if members is not None:
            await members.close()
        await self._opened.close()

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
                for each sample, in tuples or dicts. Floating-point arrays get the dtype of the model's parameters.

        Raises:
            TypeError, ValueError: A batch that cannot be.
            NotFinite: See ``not_finite``.
            Exception: What the model, the loss or the optimizer raised; the weights are as before, as they are when a
                step was cancelled.
            DeviceStopped: The last device has stopped for good.
        """
        arrays = as_arrays(batch)
        if not rows_of(arrays):
            raise ValueError("the batch has no samples")
        async with self._lock:
            members, began = self._training(), time.perf_counter_ns()
            members.laps.begin()
            await self._as_before(members)
            await self._count_flops(members, arrays)
            update, repeats = await self._repeated(members, arrays)
            self._done += 1
            stats = self._stats(members, update, arrays, (time.perf_counter_ns() - began) // 1000, repeats)
            self._snapshots.keep(arrays, stats.step_micros / 1e6)
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
            await self._as_before(members)
            await self._snapshot(members)
            opened = await self._opened.open(devices)
            await members.change(opened)
            await self._until_agreed(members)
            await self._opened.close_others()

    async def _repeated(self, members: Participants[Any], batch: Batch) -> tuple[Update, int]:
        """The update, and how many losses came before it."""
        for repeats in itertools.count():
            try:
                return await self._attempt(members, batch), repeats
            except (ContextLost, DeviceStopped) as error:
                members.laps.lap("noticed")
                self._check_repeat(error, repeats)
        raise AssertionError("unreachable")

    async def _attempt(self, members: Participants[Any], batch: Batch) -> Update:
        number = self._done + 1
        if not members.agreed:
            update = await self._agree(members)
            if update.step == number:  # a survivor took the step
                return update
        return await members.take(number, batch)

    async def _as_before(self, members: Participants[Any]) -> None:
        """All in the state after the last step, if one failed or was cancelled while it was being applied."""
        if members.begun > self._done:
            await self._load(members)
            members.doubt()
            await self._until_agreed(members)
            members.begun = 0

    async def _until_agreed(self, members: Participants[Any]) -> None:
        for repeats in itertools.count():
            try:
                await self._agree(members)
                return
            except ContextLost as error:
                self._check_repeat(error, repeats)

    async def _agree(self, members: Participants[Any]) -> Update:
        """All in the state after the last step, or after the one that is being done."""
        update = await members.agree(self._snapshots.state)
        batches = self._snapshots.since(update.step)
        members.laps.repeat(len(batches))
        for number, batch in zip(range(update.step + 1, self._done + 1), batches, strict=False):
            update = await members.take(number, batch)
        return update

    def _check_repeat(self, error: Exception, repeats: int) -> None:
        if repeats >= REPEATS or self._members is None:
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
        for repeats in itertools.count():
            if self._peak is None or self._flops is not None:
                return
            try:
                await self._until_agreed(members)
                self._flops = await members.flops(batch)
            except (ContextLost, DeviceStopped) as error:
                members.doubt()
                self._check_repeat(error, repeats)

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
        members.begun = self._done + 1
        await self._load(members)
        members.begun = 0

    # -- weights -------------------------------------------------------------------------------------------------------

    async def state(self) -> State:
        """Weights and all that the next step depends on, in host memory."""
        async with self._lock:
            members = self._training()
            return await self._settled(members, members.state)

    async def state_dict(self) -> dict[str, Any]:
        """The model's ``state_dict``, with tensors of the host."""
        model, _, _ = unpack(await self.state())
        return dict(model)

    async def save(self, folder: str | Path, *, keep: int | None = None) -> Path:
        """Write a checkpoint, complete or not at all; steps go on while its files are written.

        Args:
            folder: Where checkpoints are; this one gets a folder ``step-00000042`` in it, with the weights as
                ``model.safetensors``.
            keep: Keep this number of checkpoints, this one included; older ones are removed. Those of later steps,
                of another run, stay.

        Returns:
            The checkpoint's own folder.

        Raises:
            OSError: It cannot be written; older ones are as they were.
            TypeError: The model's or the optimizer's state has an object that a checkpoint cannot hold.
        """
        if keep is not None and keep < 1:
            raise ValueError(f"save: keep is {keep}; it is a number of checkpoints, at least 1, or None")
        async with self._lock:
            members = self._training()
            state, cursor = await self._settled(members, members.state), self.cursor
        return await asyncio.to_thread(write, Path(folder), state, cursor, keep)

    async def save_dcp(self, folder: str | Path) -> None:
        """Write weights and the optimizer's state as a checkpoint of ``torch.distributed.checkpoint``.

        Its keys are ``model`` and ``optimizer``, with what torch's ``get_state_dict`` gives for them: also modules of
        FSDP can load it. :meth:`resume` does not read it.

        Args:
            folder: The checkpoint's own; one that is there is replaced, once this one is complete.

        Raises:
            OSError: It cannot be written.
        """
        await asyncio.to_thread(write_dcp, Path(folder), await self.state())

    async def resume(self, folder: str | Path) -> int:
        """Go on from a checkpoint: weights, optimizer, random numbers and place in the data are as they were.

        Args:
            folder: A checkpoint's own folder, or one with several, of which the latest counts.

        Returns:
            The number of steps done.

        Raises:
            FileNotFoundError: There is no checkpoint.
            PermissionError: It may not be read.
            RuntimeError: It is damaged, or of another model; the trainer is as before. The text names the latest
                earlier one that can be read.
        """
        state, cursor = await asyncio.to_thread(read, Path(folder))
        async with self._lock:
            members = self._training()
            before = await self._settled(members, members.keep)
            self._snapshots.take(Kept([state]))
            members.begun = self._done + 1
            try:
                await self._load(members)
            except BaseException as error:  # of another model, or cancelled: a part of it may be loaded
                self._snapshots.take(before)
                if isinstance(error, AccelError) or not isinstance(error, Exception):
                    raise
                raise RuntimeError(
                    f"{folder}: the checkpoint does not fit; it is damaged, or of another model or optimizer: "
                    f"{type(error).__name__}: {error}"
                ) from error
            members.begun = 0
            self._done, self.cursor = state.step, cursor
        return state.step

    async def fit(
        self,
        data: Batch,
        *,
        batch_size: int,
        epochs: int | None = None,
        steps: int | None = None,
        shuffle: bool = True,
        checkpoints: str | Path | None = None,
        checkpoint_every: int = 100,
        keep: int | None = 3,
        progress: bool | None = None,
        on_step: Callable[[StepStats], Any] | None = None,
    ) -> History:
        """Train on a data set; after :meth:`resume`, from the place where the checkpoint was saved.

        Args:
            data: All samples: arrays as for :meth:`step`. No loader or iterator: call :meth:`step` for its batches.
            batch_size: Samples of a batch, over all devices; the last one of a pass may have fewer.
            epochs: Passes over the data, counted from the beginning of training; None: one, or what ``steps`` need.
            steps: The number of the last step, likewise counted; None: as many as the passes have.
            shuffle: A new order in each pass, which ``seed`` and the number of the pass decide.
            checkpoints: Folder for checkpoints; one is written after each step whose number is a multiple of
                ``checkpoint_every``, and one at the end.
            checkpoint_every, keep: Steps between two checkpoints, and how many are kept.
            progress: A progress bar of tqdm; None: if it is installed and stderr is a terminal.
            on_step: Called with the figures of each step; awaited, if it is a coroutine function.

        Returns:
            The steps that were done now: ``print(history)`` draws the loss.
        """
        return await fit(
            self,
            data,
            batch_size=batch_size,
            epochs=epochs,
            steps=steps,
            seed=self._job.seed,
            shuffle=shuffle,
            checkpoints=checkpoints,
            every=checkpoint_every,
            keep=keep,
            progress=progress,
            on_step=on_step,
        )

    def stop(self) -> None:
        """Have :meth:`fit` end after the step that is being done, with a checkpoint if it writes any. Any thread."""
        self.stopping = True

    async def _load(self, members: Participants[Any]) -> None:
        """Give all the last snapshot."""
        state = self._snapshots.state
        assert state is not None  # taken when the trainer was opened
        for repeats in itertools.count():
            try:
                await members.load(state)
                return
            except (ContextLost, DeviceStopped) as error:
                members.doubt()
                self._check_repeat(error, repeats)
                await self._until_agreed(members)

    async def _settled(self, members: Participants[Any], read: Callable[[], Awaitable[S]]) -> S:
        await self._as_before(members)
        return await self._now(members, read)

    async def _now(self, members: Participants[Any], read: Callable[[], Awaitable[S]]) -> S:
        """What is read is of the last step."""
        for repeats in itertools.count():
            try:
                if not members.agreed:
                    await self._agree(members)
                state = await read()
                if state.step == self._done:
                    return state
                raise ContextLost("a device was lost while the state was being read")
            except (ContextLost, DeviceStopped) as error:
                members.doubt()
                self._check_repeat(error, repeats)
        raise AssertionError("unreachable")

    async def _snapshot(self, members: Participants[Any]) -> None:
        self._snapshots.take(await self._now(members, members.keep))

    def _training(self) -> Participants[Any]:
        if self._members is None:
            raise TrainerClosed("the trainer is not open; use it inside `async with`")
        return self._members


def _tell(step: int, recovery: StepRecovery) -> None:
    _log.warning("step %d was done after a loss, in %s", step, recovery)
    ring = EVENTS.ring
    if ring is not None:
        values = {"step": step, **msgspec.structs.asdict(recovery)}
        ring.append((next(ring.numbers), now(), MARK, "training", "recovery", values))


def threads(devices: Sequence[Device]) -> int | None:
    """Threads that torch gets in each host, so that the hosts of CPU devices share the cores."""
    hosts = [device for device in devices if device.backend == "cpu" and device.config.isolation == "process"]
    return max(1, (os.cpu_count() or 1) // len(hosts)) if hosts else None
