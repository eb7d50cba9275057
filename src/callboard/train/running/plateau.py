"""``ReduceLROnPlateau``: a schedule that reacts on the evaluations of a run."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ReduceLROnPlateau"]


@dataclass(frozen=True)
class ReduceLROnPlateau:
    """A schedule of a trainer: the step size becomes smaller when the monitored value of a run has stopped falling.

    The value is that of ``monitor`` of :meth:`.DataParallelTrainer.fit`, for the data in ``validate``. The factor that
    has come of it is part of each step, and of checkpoints: repeated steps and resumed runs have the same numbers.

    Args:
        factor: The step size is multiplied by this, above 0 and below 1.
        patience: After so many evaluations in a row that were not the best, and again after as many more.
        least: The product of all factors is at least this.
        schedule: A schedule besides (a warm-up): a function of the number of updates, or a scheduler of torch; see
            :class:`.Job`. None: the step size is that of the optimizer.

    Raises:
        ValueError: A number is out of its range.
    """

    factor: float = 0.1
    patience: int = 10
    least: float = 0.0
    schedule: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1:
            raise ValueError(f"ReduceLROnPlateau: factor is {self.factor}; it is a number above 0 and below 1")
        if self.patience < 1:
            raise ValueError(
                f"ReduceLROnPlateau: patience is {self.patience}; it is a number of evaluations, at least 1"
            )
        if not (self.least >= 0 and math.isfinite(self.least)):
            raise ValueError(f"ReduceLROnPlateau: least is {self.least}; it is a finite factor, at least 0")

    def __call__(self, given: Any) -> Any:
        """What the schedule besides gives for a number of updates, or for an optimizer."""
        return 1.0 if self.schedule is None else self.schedule(given)

    def after(self, factor: float, waited: int) -> float:
        """The factor of the evaluations, after one more.

        Args:
            factor: The one before.
            waited: Evaluations since the best one.
        """
        is_over = waited > 0 and waited % self.patience == 0
        return max(min(factor, self.least), factor * self.factor) if is_over else factor
