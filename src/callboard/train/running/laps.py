"""``Laps``: the times of the phases of a recovery."""

import time
from collections import Counter

from callboard.train.stats import StepRecovery

__all__ = ["Laps"]


class Laps:
    """Measures from lap to lap; a phase that comes again, after a further loss, is added up."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self._last = time.perf_counter_ns()
        self._micros: Counter[str] = Counter()
        self._steps = 1

    def lap(self, phase: str) -> None:
        """A phase has ended; see :class:`.StepRecovery`."""
        now = time.perf_counter_ns()
        self._micros[phase] += (now - self._last) // 1000
        self._last = now

    def repeat(self, steps: int) -> None:
        """So many steps before this one are done again."""
        self._steps += steps

    def recovery(self) -> StepRecovery | None:
        """The step is done; None if no phase came before its end."""
        if not self._micros:
            return None
        self.lap("repeated")
        return StepRecovery(**self._micros, steps=self._steps)
