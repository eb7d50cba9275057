"""``Settings``: what a run is told beside its data."""

import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from callboard.actors.errors import returned
from callboard.train.replicas.measuring import LOSS, Metric
from callboard.train.running.loggers import Logger
from callboard.train.running.sources import Source
from callboard.train.stats import Evaluation

__all__ = ["Settings"]

COUNTS = "batch_size", "epochs", "steps", "validate_every", "patience", "checkpoint_every", "keep"
OF_VALIDATION = "validate_every", "metrics", "monitor", "mode", "patience"
HIGH = "acc", "auc", "auroc", "bleu", "dice", "f1", "iou", "map", "precision", "r2", "recall", "score"
LOW = "err", "error", "loss", "mae", "mape", "mse", "nll", "perplexity", "ppl", "rmse"
"""Parts of names of metrics that say what is good."""


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
    monitor: Callable[[Evaluation], float] | str | None = None
    mode: Literal["min", "max"] | None = None
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

        self._check_monitor()

    def _check_monitor(self) -> None:
        if isinstance(self.monitor, str):
            known = [LOSS, *(self.metrics or ())]
            if self.monitor not in known:
                raise ValueError(f"fit: monitor is {self.monitor!r}; there are {', '.join(map(repr, known))}")
            if self.mode is None and _mode_of(self.monitor) is None:
                raise ValueError(
                    f"fit: monitor is {self.monitor!r}; pass mode='min' or mode='max', too: what is better?"
                )
        elif self.monitor is not None and not callable(self.monitor):
            raise TypeError(f"fit: monitor is {self.monitor!r:.80}; pass the name of a metric, or a function")
        elif self.mode is not None:
            raise ValueError("fit: mode is given, but no name of a metric; pass monitor='...', too")
        if self.mode not in (None, "min", "max"):
            raise ValueError(f"fit: mode is {self.mode!r}; use 'min' or 'max'")

    def value(self, found: Evaluation) -> float:
        """What is to be low of an evaluation.

        Raises:
            TypeError, ValueError: ``monitor`` gave no number, or one that no float can hold.
        """
        if callable(self.monitor):
            value = self.monitor(found)
            try:
                return float(value)
            except OverflowError:
                raise ValueError("monitor returned a whole number that is too large for a float") from None
            except (TypeError, ValueError):
                raise returned("monitor", value, "a number; the lowest is the best") from None
        if self.monitor is None or self.monitor == LOSS:
            return -found.loss if self.mode == "max" else found.loss
        value = found.metrics[self.monitor]
        return -value if (self.mode or _mode_of(self.monitor)) == "max" else value

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


def _mode_of(name: str) -> str | None:
    """Whether low or high values are good, as the name of a metric says; None: it does not."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    high = words.intersection(HIGH) or "accuracy" in name.lower()
    low = words.intersection(LOW) or name.lower().endswith(("loss", "error"))
    return None if bool(high) == bool(low) else "max" if high else "min"
