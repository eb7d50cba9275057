"""``Trainer``: the base of the trainers: ``fit``, ``evaluate``, checkpoints."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from callboard.actors.errors import AccelError
from callboard.train.checkpoints import read, write, write_dcp
from callboard.train.replicas.measuring import Metric
from callboard.train.running.feed import Feed
from callboard.train.running.history import History
from callboard.train.running.loggers import Logger
from callboard.train.running.loop import fit
from callboard.train.running.sampling import Cursor
from callboard.train.running.settings import Settings
from callboard.train.running.sources import Source
from callboard.train.running.steps import Steps
from callboard.train.running.validation import evaluate, source_to_evaluate
from callboard.train.states import Kept, State, unpack
from callboard.train.stats import Evaluation, StepStats

__all__ = ["Trainer"]


class Trainer(Steps):
    """Base of the trainers, with what all of them do beside single steps.

    Attributes:
        resumed: Where the checkpoint was that the trainer went on from last.
        stopping: A run that goes on is to end after its step.
        feed, source: The data of a run that goes on.
    """

    resumed: Cursor | None = None
    stopping = False
    feed: Feed[Any] | None = None
    source: Source | None = None

    async def evaluate(
        self, data: Any, *, batch_size: int | None = None, metrics: Mapping[str, Metric] | None = None
    ) -> Evaluation:
        """Mean loss and metrics over the samples of a data set, in evaluation mode and without gradients.

        All devices compute; the weights stay as they are, and steps wait. A lost device costs time only.

        Args:
            data: As for :meth:`fit`; arrays and data sets are read in their order.
            batch_size: Samples of a batch; None: 64, where the data does not give batches itself.
            metrics: By name, functions of the model's outputs and the targets (tensors on the device), which travel to
                the devices. Each gives the mean over its samples; those of all batches are weighed by their samples. Or
                objects with ``reset``, ``update`` and ``compute``, such as those of torchmetrics, for what is no mean:
                they get outputs and targets as tensors of the host, here. With ``loss=None``, metrics get what the
                model gave, and the batch.

        Raises:
            TypeError, ValueError: Data or metrics that cannot be.
            Exception: What the data, the model, the loss or a metric raised.
        """
        source = data if isinstance(data, Source) else source_to_evaluate(data, batch_size)
        if self.source is not None:
            source = source.beside(self.source)
        async with self._lock:
            members = self._training()
            await self._as_before(members)
            step = self._done
            return await evaluate(
                source,
                metrics,
                step,
                lambda batch, code: self._survived(members, lambda: members.evaluate(step, batch, code)),
            )

    async def fit(
        self,
        data: Any,
        *,
        batch_size: int | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        shuffle: bool | None = None,
        validate: Any = None,
        validate_every: int | None = None,
        metrics: Mapping[str, Metric] | None = None,
        monitor: Callable[[Evaluation], float] | str | None = None,
        mode: Literal["min", "max"] | None = None,
        patience: int | None = None,
        loggers: Sequence[Logger] = (),
        checkpoints: str | Path | None = None,
        checkpoint_every: int = 100,
        keep: int | None = 3,
        progress: bool | None = None,
        on_step: Callable[[StepStats], Any] | None = None,
    ) -> History:
        """Train on a data set; after :meth:`resume`, from the place where the checkpoint was saved.

        A thread reads two batches ahead.

        Args:
            data: Arrays of all samples, in tuples or dicts; a map-style ``Dataset`` of torch; a ``DataLoader``; an
                ``IterableDataset``, of samples if ``batch_size`` is given; an iterable of batches, also an asynchronous
                one, or a function that gives one for each pass. An iterator is read once, from where it is, and cannot
                be resumed.
            batch_size: Samples of a batch, over all devices; the last one of a pass may have fewer. None where the data
                gives batches.
            epochs: Passes over the data, counted from the beginning of training; None: one, or what ``steps`` need.
            steps: The number of the last step, likewise counted; None: as many as the passes have.
            shuffle: Of arrays and data sets: a new order in each pass, which ``seed`` and the number of the pass
                decide. None: yes.
            validate: Data for :meth:`evaluate`, after each pass and at the end; no iterator.
            validate_every: After each step whose number is a multiple of this, in place of each pass.
            metrics: See :meth:`evaluate`.
            monitor: Name of a metric, ``"accuracy"``, or what of an :class:`.Evaluation` is to be low, ``lambda found:
                found.metrics["a"] - found.metrics["b"]``. None: the loss. NaN is never the best.
            mode: Whether low (``"min"``) or high (``"max"``) values of the metric are good. None: as usual for names
                with such words as accuracy, f1 or auc, error or mae; others need it.
            patience: End after so many evaluations in a row that were not the best.
            loggers: Called with the number of a step and its figures by name, and with those of evaluations. What one
                raises is logged, once.
            checkpoints: Folder for checkpoints; one is written after each step whose number is a multiple of
                ``checkpoint_every``, and one at the end. The one after the best evaluation is in its folder ``best``.
            checkpoint_every, keep: Steps between two checkpoints, and how many are kept.
            progress: A progress bar of tqdm; None: if it is installed and stderr is a terminal.
            on_step: Called with the figures of each step; awaited, if it is a coroutine function. What it raises ends
                the run.

        Returns:
            The steps that were done now, and their evaluations: ``print(history)`` draws the loss.

        Raises:
            TypeError, ValueError: An argument that cannot be.
            RuntimeError: Another ``fit`` of this trainer goes on.
            Exception: What :meth:`step`, the data or a hook raised.
        """
        settings = Settings(
            batch_size=batch_size,
            epochs=epochs,
            steps=steps,
            shuffle=shuffle,
            validate=validate,
            validate_every=validate_every,
            metrics=metrics,
            monitor=monitor,
            mode=mode,
            patience=patience,
            loggers=loggers,
            checkpoints=checkpoints,
            checkpoint_every=checkpoint_every,
            keep=keep,
        )
        return await fit(self, data, settings, self._job, progress, on_step)

    def stop(self) -> None:
        """Have :meth:`fit` end after the step that is being done, with a checkpoint if it writes any. Any thread.

        While none goes on, nothing happens.
        """
        feed = self.feed
        if feed is not None:
            self.stopping = True
            feed.end()

    # -- weights -------------------------------------------------------------------------------------------------------

    async def state(self) -> State:
        """Weights and all that the next step depends on, in host memory."""
        async with self._lock:
            members = self._training()
            return await self._settled(members, members.state)

    async def state_dict(self) -> dict[str, Any]:
        """The model's ``state_dict``, with tensors of the host."""
        model, _, _ = await asyncio.to_thread(unpack, await self.state())
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
                await self._follow(members, state.updates)
            except BaseException as error:  # of another model, or cancelled: a part of it may be loaded
                self._snapshots.take(before)
                if isinstance(error, AccelError) or not isinstance(error, Exception):
                    raise
                raise RuntimeError(
                    f"{folder}: the checkpoint does not fit; it is damaged, or of another model, optimizer or "
                    f"schedule: {type(error).__name__}: {error}"
                ) from error
            members.begun = 0
            self._done, self._updates = state.step, state.updates
            self.cursor = self.resumed = cursor
        return state.step
