"""``TrainingRun``: a trainer with its data, as ``callboard train`` runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callboard.train.batches import Batch, data_set, rows_of
from callboard.train.running.history import History
from callboard.train.running.loop import steps_in
from callboard.train.stats import StepStats
from callboard.train.trainer import Trainer

__all__ = ["TrainingRun"]


@dataclass(frozen=True)
class TrainingRun:
    """A trainer, its data, and how far it is to go: ``callboard train module:run`` runs it.

    ::

        run = cb.TrainingRun(cb.DataParallelTrainer(make_model, ...), (x, y), batch_size=64, epochs=10)

    Attributes:
        trainer: Not open; the run opens and closes it.
        data, batch_size, epochs, steps, shuffle, checkpoint_every, keep: See :meth:`.DataParallelTrainer.fit`.
        checkpoints: Folder for checkpoints, and where ``--resume`` looks.
    """

    trainer: Trainer
    data: Batch
    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    shuffle: bool = True
    checkpoints: str | Path = "checkpoints"
    checkpoint_every: int = 100
    keep: int | None = 3

    def __post_init__(self) -> None:
        if not isinstance(self.trainer, Trainer):
            raise TypeError(f"TrainingRun: trainer is {self.trainer!r:.80}; pass a cb.DataParallelTrainer, for example")

    def total(self) -> int:
        """The number of its last step.

        Raises:
            TypeError, ValueError: Data that cannot be, or a number that is less than 1.
        """
        return steps_in(rows_of(data_set(self.data)), self.batch_size, self.epochs, self.steps)

    async def fit(self, *, progress: bool | None, on_step: Callable[[StepStats], Any]) -> History:
        """Train; the trainer is open."""
        return await self.trainer.fit(
            self.data,
            batch_size=self.batch_size,
            epochs=self.epochs,
            steps=self.steps,
            shuffle=self.shuffle,
            checkpoints=self.checkpoints,
            checkpoint_every=self.checkpoint_every,
            keep=self.keep,
            progress=progress,
            on_step=on_step,
        )
