"""``Snapshots``: what a trainer keeps in host memory for the case that every device is lost at once."""

from callboard.train.batches import Batch
from callboard.train.replicas.rates import Rates
from callboard.train.states import Kept

__all__ = ["Snapshots"]


SHARE = 32
"""Time of the steps between two early snapshots, in times of what one costs: they take 3 %."""

COST, SPEED = 5e-3, 1e9
"""What a snapshot costs: seconds, and bytes in a second."""


class Snapshots:
    """The last snapshot, and what the steps after it were given.

    Args:
        every: Steps between two snapshots at most.

    Attributes:
        state: The last one; None before the first.

    Raises:
        ValueError: ``every`` is less than 1.
    """

    def __init__(self, every: int) -> None:
        if every < 1:
            raise ValueError(f"snapshot_every is {every}; it is a number of steps, at least 1")
        self.state: Kept | None = None
        self._every = every
        self._given: list[tuple[Batch, Rates]] = []
        self._seconds = 0.0

    def take(self, state: Kept) -> None:
        """This is the state after the last step."""
        self.state = state
        self._given.clear()
        self._seconds = 0.0

    def keep(self, batch: Batch, rates: Rates, seconds: float) -> None:
        """A step was done with this batch and these step sizes, in so many seconds."""
        self._given.append((batch, rates))
        self._seconds += seconds

    def due(self, *, early: bool) -> bool:
        """It is time for the next one.

        Args:
            early: Also as soon as the steps have taken much longer than a snapshot.
        """
        if not early:
            return len(self._given) >= self._every
        nbytes = 0 if self.state is None else self.state.nbytes
        return len(self._given) >= self._every or self._seconds >= SHARE * (COST + nbytes / SPEED)

    def since(self, step: int) -> list[tuple[Batch, Rates]]:
        """Batches and step sizes of the steps after ``step``."""
        return [] if self.state is None else self._given[max(0, step - self.state.step) :]
