"""``TrainingRun``: a trainer with its data, as ``callboard train`` runs it."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from callboard.train.running.history import History
from callboard.train.running.settings import Settings
from callboard.train.running.sources import source_of
from callboard.train.stats import StepStats
from callboard.train.trainer import Trainer

__all__ = ["TrainingRun"]


@dataclass(frozen=True)
class TrainingRun(Settings):
    """A trainer, its data, and how far it is to go: ``callboard train module:run`` runs it.

    ::

        run = cb.TrainingRun(cb.DataParallelTrainer(make_model, ...), (x, y), batch_size=64, epochs=10)

    All other settings are those of :meth:`.DataParallelTrainer.fit`.

    Attributes:
        trainer: Not open; the run opens and closes it.
        data: See :meth:`.DataParallelTrainer.fit`.
        checkpoints: Folder for checkpoints, and where ``--resume`` looks.
    """

    trainer: Trainer
    data: Any
    checkpoints: str | Path = field(default="checkpoints", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.trainer, Trainer):
            raise TypeError(f"TrainingRun: trainer is {self.trainer!r:.80}; pass a cb.DataParallelTrainer, for example")

    def total(self) -> int | None:
        """The number of its last step; None: the length of the data is not known.

        Raises:
            TypeError, ValueError: Data that cannot be.
        """
        return self.last_step(source_of(self.data, self.batch_size, self.shuffle, 0))

    async def fit(self, *, progress: bool | None, on_step: Callable[[StepStats], Any]) -> History:
        """Train; the trainer is open."""
        settings = {one.name: getattr(self, one.name) for one in fields(Settings)}
        return await self.trainer.fit(self.data, **settings, progress=progress, on_step=on_step)
