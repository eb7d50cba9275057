"""``DataParallelTrainer``: one model on several devices, each with its part of every batch."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callboard.actors.handles import Handle
from callboard.actors.props import Props
from callboard.core.errors import ContextLost, DeviceStopped
from callboard.device.client.handle import Device
from callboard.train.batches import Batch, as_arrays, part, rows_of, shares
from callboard.train.checkpoints import read, write
from callboard.train.errors import NotFinite, TrainerClosed
from callboard.train.history import History
from callboard.train.job import Job
from callboard.train.kinds import Loss, Optimizer
from callboard.train.loop import fit
from callboard.train.opening import Opened
from callboard.train.replicas.members import Members, every
from callboard.train.replicas.replica import Gradients, Replica, Update
from callboard.train.replicas.snapshots import Snapshots
from callboard.train.sampling import Cursor
from callboard.train.states import State, unpack
from callboard.train.stats import StepStats

__all__ = ["DataParallelTrainer"]

_log = logging.getLogger(__name__)

REPEATS = 20
"""Losses in a row after which a step fails."""

SKIPPED = 10
"""Steps in a row that may be skipped."""


class DataParallelTrainer(Handle):
    """Trains a ``torch.nn.Module`` on several devices; a lost device costs time, and no progress.

    ::

        async with cb.DataParallelTrainer(
            make_model,
            loss=cb.LossKind.CrossEntropy(),
            optimizer=cb.OptimizerKind.AdamW(lr=3e-4),
            devices=["cuda:0", "cuda:1"],
        ) as trainer:
            for x, y in batches:
                stats = await trainer.step((x, y))

    Each step computes the gradient of the mean loss over the whole batch, as one device would: parts of different sizes
    are weighed by their samples. The devices' gradients are added up by a :class:`.World`, and each replica updates its
    own weights with the same bits.

    When a device is lost in a step, the step is repeated as soon as the device has its next context, which gets the
    weights from another replica; numbers and random numbers of the repeat are those of the first attempt. A device that
    has stopped for good leaves, and the others go on. When all devices are lost at once, training starts at the last
    snapshot in host memory, and repeats the steps since then with the batches that were kept: at most
    ``snapshot_every`` steps of time.

    Args:
        model: A module, or a function that gives one. Replicas start with the same weights in any case.
        optimizer: One of :class:`.OptimizerKind`, or a function from parameters to a torch optimizer.
        loss: One of :class:`.LossKind`, or a function from outputs and targets to their mean loss; batches are then
            ``(inputs, targets)``, with a tuple or dict of inputs for a model that takes several. None: the model gives
            its loss (or an object with an attribute ``loss``) when it is called with the batch.
        devices: Open devices, or names of devices that the trainer opens, each in a process of its own with a hot
            standby, and closes at its end.
        gradient_clip, schedule, micro_batch_size, precision, seed, deterministic: See :class:`.Job`.
        not_finite: What follows a gradient with NaN or infinity: ``"skip"`` the update (ten in a row are an error),
            ``"stop"``: raise :class:`.NotFinite`, or ``"roll_back"`` to the last snapshot, without the batches since.
        snapshot_every: Steps between two snapshots; each copies weights and optimizer state to the host's memory.

    Raises:
        TypeError, ValueError: A setting that cannot be.
    """

    def __init__(
        self,
        model: Any,
        *,
        optimizer: Optimizer,
        loss: Loss | None,
        devices: Sequence[Device | str] = ("auto",),
        gradient_clip: float | None = None,
        schedule: Callable[[int], float] | None = None,
        micro_batch_size: int | None = None,
        precision: str = "f32",
        seed: int = 0,
        deterministic: bool = False,
        not_finite: str = "skip",
        snapshot_every: int = 100,
    ) -> None:
        self._job = Job(
            model, optimizer, loss, gradient_clip, schedule, micro_batch_size, precision, seed, deterministic
        )
        self._job.check("DataParallelTrainer")
        if not_finite not in ("skip", "stop", "roll_back"):
            raise ValueError(f"DataParallelTrainer: not_finite is {not_finite!r}; use 'skip', 'stop' or 'roll_back'")
        self.cursor = Cursor()
        self._opened = Opened("DataParallelTrainer", devices)
        self._not_finite = not_finite
        self._snapshots = Snapshots(snapshot_every)
        self._members: Members | None = None
        self._lock = asyncio.Lock()
        self._done = 0
        self._begun = 0  # the step whose updates were sent last; beyond _done: replicas may have taken a part of it
        self._skipped = 0
        self._gradients: tuple[int, list[Gradients]] = (0, [])

    async def __aenter__(self) -> Self:
        try:
            devices = await self._opened.open()
            job = self._job.with_threads(Members.threads(devices))
            self._members = Members(Props(Replica, job))
            await self._members.change(devices)
            await self._until_agreed(self._members)
            await self._snapshot(self._members)
        except BaseException:  # also a cancelled start gives its devices back
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the replicas; close the devices that the trainer has opened. A step that runs fails."""
        members, self._members = self._members, None
        if members is not None:
            await members.close()
        await self._opened.close()

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that take part, in the order of their replicas."""
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
            await self._as_before(members)
            update, repeats = await self._repeated(members, arrays)
            self._done += 1
            stats = self._stats(update, arrays, (time.perf_counter_ns() - began) // 1000, repeats)
            self._snapshots.keep(arrays)
            if stats.skipped:
                await self._after_skipped(members, stats)
            else:
                self._skipped = 0
                if self._snapshots.due:
                    await self._snapshot(members)
            return stats

    async def set_replicas(self, devices: Sequence[Device | str]) -> None:
        """Train on these devices from the next step on; those that come get the weights of those that stay.

        Args:
            devices: As for the trainer.

        Raises:
            BackendUnavailable, DeviceStopped: A device cannot be opened; the old ones stay.
        """
        async with self._lock:
            members = self._training()
            await self._as_before(members)
            await self._snapshot(members)
            opened = await self._opened.open(devices)
            await members.change(opened)
            await self._until_agreed(members)
            await self._opened.close_others()

    async def _repeated(self, members: Members, batch: Batch) -> tuple[Update, int]:
        """The update, and how many losses came before it."""
        for repeats in itertools.count():
            try:
                return await self._attempt(members, batch), repeats
            except (ContextLost, DeviceStopped) as error:
                self._check_repeat(error, repeats)
        raise AssertionError("unreachable")

    async def _attempt(self, members: Members, batch: Batch) -> Update:
        number = self._done + 1
        if not members.agreed:
            update = await self._agree(members)
            if update.step == number:  # a survivor took the step
                return update
        return await self._take(members, number, batch)

    async def _take(self, members: Members, number: int, batch: Batch) -> Update:
        rows = rows_of(batch)
        parts = [part(batch, share) for share in shares(rows, len(members.replicas))]
        try:
            gradients: list[Gradients] = await every(
                replica.call(Replica.gradients, number, rank, rows, own)
                for rank, (replica, own) in enumerate(zip(members.replicas, parts, strict=True))
            )
            self._gradients = number, gradients
            buckets, averages = [one.buckets for one in gradients], [one.averages for one in gradients]
            await every(members.add_up(buckets, averages))  # an update behind a sum that fails may run all the same
            self._begun = max(self._begun, number)
            updates: list[Update] = await every(
                replica.call(Replica.update, number, own, means)
                for replica, own, means in zip(members.replicas, buckets, averages, strict=True)
            )
        except BaseException:  # also a cancelled step leaves replicas apart
            members.doubt()
            raise
        return updates[0]

    async def _as_before(self, members: Members) -> None:
        """All replicas in the state after the last step, if one failed or was cancelled while it was being applied."""
        if self._begun > self._done:
            await self._load(members)
            members.doubt()
            await self._until_agreed(members)
            self._begun = 0

    async def _until_agreed(self, members: Members) -> None:
        for repeats in itertools.count():
            try:
                await self._agree(members)
                return
            except ContextLost as error:
                self._check_repeat(error, repeats)

    async def _agree(self, members: Members) -> Update:
        """All replicas in the state after the last step, or after the one that is being done."""
        update = await members.agree(self._snapshots.state)
        batches = self._snapshots.since(update.step)
        for number, batch in zip(range(update.step + 1, self._done + 1), batches, strict=False):
            update = await self._take(members, number, batch)
        return update

    def _check_repeat(self, error: Exception, repeats: int) -> None:
        if repeats >= REPEATS or self._members is None:
            raise error
        _log.warning("step %d begins again: %s", self._done + 1, error)

    def _stats(self, update: Update, batch: Batch, micros: int, repeats: int) -> StepStats:
        rows = rows_of(batch)
        _, gradients = self._gradients
        return StepStats(
            step=self._done,
            loss=sum(one.loss for one in gradients) / rows,
            grad_norm=update.norm,
            lr=update.lr,
            samples=rows,
            step_micros=micros,
            skipped=update.skipped,
            repeats=repeats,
            replica_micros=tuple(one.micros for one in gradients),
        )

    async def _after_skipped(self, members: Members, stats: StepStats) -> None:
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

    async def _roll_back(self, members: Members) -> None:
        """Back to the weights of the last snapshot; the number of steps goes on."""
        state = self._snapshots.state
        assert state is not None  # taken when the trainer was opened
        self._snapshots.take(state.at(self._done))
        self._begun = self._done + 1
        await self._load(members)
        self._begun = 0

    # -- weights -------------------------------------------------------------------------------------------------------

    async def state(self) -> State:
        """Weights and all that the next step depends on, in host memory."""
        async with self._lock:
            return await self._settled(self._training())

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
            state, cursor = await self._settled(self._training()), self.cursor
        return await asyncio.to_thread(write, Path(folder), state, cursor, keep)

    async def resume(self, folder: str | Path) -> int:
        """Go on from a checkpoint: weights, optimizer, random numbers and place in the data are as they were.

        Args:
            folder: A checkpoint's own folder, or one with several, of which the latest counts.

        Returns:
            The number of steps done.

        Raises:
            FileNotFoundError: There is no checkpoint.
            RuntimeError: It is damaged, or of another model; the trainer is as before.
        """
        state, cursor = await asyncio.to_thread(read, Path(folder))
        async with self._lock:
            members = self._training()
            before = await self._settled(members)
            self._snapshots.take(state)
            self._begun = self._done + 1
            try:
                await self._load(members)
            except BaseException:  # of another model, or cancelled: a part of it may be loaded
                self._snapshots.take(before)
                raise
            self._begun = 0
            self._done, self.cursor = state.step, cursor
        return state.step

    async def fit(
        self,
        data: Batch,
        *,
        batch_size: int,
        epochs: int = 1,
        shuffle: bool = True,
        checkpoints: str | Path | None = None,
        checkpoint_every: int = 100,
        keep: int | None = 3,
        progress: bool | None = None,
        on_step: Callable[[StepStats], Any] | None = None,
    ) -> History:
        """Train on a data set; after :meth:`resume`, from the place where the checkpoint was saved.

        Args:
            data: All samples: arrays as for :meth:`step`.
            batch_size: Samples of a batch, over all devices; the last one of a pass may have fewer.
            epochs: Passes over the data, counted from the beginning of training.
            shuffle: A new order in each pass, which ``seed`` and the number of the pass decide.
            checkpoints: Folder for checkpoints; one is written after ``checkpoint_every`` steps, and one at the end.
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
            seed=self._job.seed,
            shuffle=shuffle,
            checkpoints=checkpoints,
            every=checkpoint_every,
            keep=keep,
            progress=progress,
            on_step=on_step,
        )

    async def _load(self, members: Members) -> None:
        """Give every replica the last snapshot."""
        state = self._snapshots.state
        assert state is not None  # taken when the trainer was opened
        for repeats in itertools.count():
            try:
                await every(replica.call(Replica.load, state) for replica in members.replicas)
                return
            except (ContextLost, DeviceStopped) as error:
                members.doubt()
                self._check_repeat(error, repeats)
                await self._until_agreed(members)

    async def _settled(self, members: Members) -> State:
        await self._as_before(members)
        return await self._state_now(members)

    async def _state_now(self, members: Members) -> State:
        for repeats in itertools.count():
            try:
                if not members.agreed:
                    await self._agree(members)
                return await members.replicas[0].call(Replica.state, True)
            except (ContextLost, DeviceStopped) as error:
                members.doubt()
                self._check_repeat(error, repeats)
        raise AssertionError("unreachable")

    async def _snapshot(self, members: Members) -> None:
        self._snapshots.take(await self._state_now(members))

    def _training(self) -> Members:
        if self._members is None:
            raise TrainerClosed("the trainer is not open; use it inside `async with`")
        return self._members
