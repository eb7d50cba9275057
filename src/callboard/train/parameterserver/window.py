"""``Window``: the pushes that wait for their update."""

from collections.abc import Mapping
from typing import Any

from callboard.train.parameterserver.clocks import Clocks

__all__ = ["Push", "Window"]


class Push:
    """A push on its way into the weights.

    Args:
        gradients: Checked, and its own.
        version: Of the weights that they are for.

    Attributes:
        staleness: Updates between these weights and the one that it is part of.
        made: The version that it is part of; None as long as it waits.
        error: Why its update failed.
    """

    def __init__(self, gradients: Mapping[str, Any], version: int) -> None:
        self.gradients = gradients
        self.version = version
        self.staleness = 0
        self.made: int | None = None
        self.error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Its update was made, or failed."""
        return self.made is not None or self.error is not None


class Window:
    """Pushes in order.

    Args:
        size: Number that makes one update; None: one of each live worker.

    Attributes:
        pushes: Those that wait.
    """

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.pushes: list[Push] = []

    def add(self, push: Push) -> None:
        """One more waits."""
        self.pushes.append(push)

    def is_due(self, clocks: Clocks) -> bool:
        """The next update can be made."""
        return clocks.level if self.size is None else len(self.pushes) >= self.size

    def take(self) -> list[Push]:
        """Those of the next update; they do not wait any more."""
        taken, self.pushes = self.pushes[: self.size], self.pushes[self.size or len(self.pushes) :]
        return taken
