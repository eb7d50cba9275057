"""``Snapshots``: what a trainer keeps in host memory for the case that every device is lost at once."""

from callboard.train.batches import Batch
from callboard.train.states import State

__all__ = ["Snapshots"]


class Snapshots:
    """The last snapshot, and the batches of the steps after it.

    Args:
        every: Steps between two snapshots.

    Attributes:
        state: The last one; None before the first.

    Raises:
        ValueError: ``every`` is less than 1.
    """

    def __init__(self, every: int) -> None:
        if every < 1:
            raise ValueError(f"snapshot_every is {every}; it is a number of steps, at least 1")
        self.state: State | None = None
        self._every = every
        self._batches: list[Batch] = []

    def take(self, state: State) -> None:
        """This is the state after the last step."""
        self.state = state
        self._batches.clear()

    def keep(self, batch: Batch) -> None:
        """A step was done with this batch."""
        self._batches.append(batch)

    @property
    def due(self) -> bool:
        """It is time for the next one."""
        return len(self._batches) >= self._every

    def since(self, step: int) -> list[Batch]:
        """The batches of the steps after ``step``."""
        return [] if self.state is None else self._batches[max(0, step - self.state.step) :]
