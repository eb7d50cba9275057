"""``Kept``: the states of all stages in host memory, and the batches since, for the case that a device is lost."""

from collections.abc import Sequence

from callboard.train.batches import Batch
from callboard.train.states import State

__all__ = ["Kept"]

SHARE = 20
"""Steps since the last snapshot may take so many times as long as the snapshot did, if ``every`` is None."""


class Kept:
    """The last snapshot. None of a trainer that has just begun: the states that the stages are built with.

    Args:
        every: Steps between two snapshots; None: as many as keep their cost below 1/20 of the steps' time.

    Attributes:
        step: The step after which the states were taken.
        states: One for each stage.
        batches: Those of the steps since.

    Raises:
        ValueError: ``every`` is less than 1.
    """

    def __init__(self, every: int | None) -> None:
        if every is not None and every < 1:
            raise ValueError(f"snapshot_every is {every}; it is a number of steps, at least 1, or None")
        self.step = 0
        self.states: Sequence[State] = ()
        self.batches: list[Batch] = []
        self._every = every
        self._cost = 0
        self._since = 0

    def take(self, step: int, states: Sequence[State], micros: int = 0) -> None:
        """These are the states after a step; taking them took so long."""
        self.step, self.states = step, states
        self.batches.clear()
        self._cost, self._since = micros, 0

    def keep(self, batch: Batch, micros: int) -> None:
        """A step was done with this batch, and took so long."""
        self.batches.append(batch)
        self._since += micros

    @property
    def due(self) -> bool:
        """It is time for the next snapshot."""
        if self._every is not None:
            return len(self.batches) >= self._every
        return self._since >= SHARE * self._cost
