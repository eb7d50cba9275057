"""``Settings``: what a run is told beside its data."""

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callboard.train.replicas.measuring import Metric
from callboard.train.running.loggers import Logger
from callboard.train.running.sources import Source
from callboard.train.stats import Evaluation

__all__ = ["Settings"]

COUNTS = "batch_size", "epochs", "steps", "validate_every", "patience", "checkpoint_every", "keep"
OF_VALIDATION = "validate_every", "metrics", "monitor", "patience"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of :meth:`.DataParallelTrainer.fit`, which describes them.

    Raises:
        TypeError, ValueError: One that cannot be.
    """

    batch_size: int | None = None
    epochs: int | None = None
    steps: int | None = None
    shuffle: bool | None = None
    validate: Any = None
    validate_every: int | None = None
    metrics: Mapping[str, Metric] | None = None
    monitor: Callable[[Evaluation], float] | None = None
    patience: int | None = None
    loggers: Sequence[Logger] = ()
    checkpoints: str | Path | None = None
    checkpoint_every: int = 100
    keep: int | None = 3

    def __post_init__(self) -> None:
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and operator.index(value) < 1:
                raise ValueError(f"fit: {name} is {value}; it is at least 1")
        for name in OF_VALIDATION:
            if self.validate is None and getattr(self, name) is not None:
                raise ValueError(f"fit: {name} is given, but no data to validate with; pass validate, too")

    def passes(self, source: Source) -> int:
        """Passes over the data in total: one, where nothing else is said.

        Raises:
            ValueError: More than an iterator gives.
        """
        if source.once and (self.epochs or 1) > 1:
            raise ValueError(
                f"fit: epochs is {self.epochs}, but data is an iterator, which gives its batches once; pass a function "
                "that gives the iterator"
            )
        return self.epochs or (1 if self.steps is None or source.once else sys.maxsize)

    def last_step(self, source: Source) -> int | None:
        """The number of the last step, if training has had no other data; None: it is not known."""
        if source.count is None:
            return self.steps
        return min(source.count * self.passes(source), self.steps or sys.maxsize)
