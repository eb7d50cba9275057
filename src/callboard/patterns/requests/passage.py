"""``Passage``: one request on its way through servers that stand behind one another."""

from contextvars import ContextVar

__all__ = ["PASSAGE", "Passage"]


class Passage:
    """One request, from the first server that it enters to the one that runs it.

    Servers in front of others (fair sharing, versions of a model) set :data:`PASSAGE` where they pass a request on.

    Args:
        waited: Seconds that it waited before.

    Attributes:
        arrived: When the first server got it, in seconds of the server's clock; None before.
        started: When the innermost server took it out of its queue to run; None before the run has ended.
        satisfied: Its reader has all that it wants: servers count it as completed when it is cancelled.
    """

    __slots__ = ("arrived", "satisfied", "started", "waited")

    def __init__(self, waited: float = 0.0) -> None:
        self.waited = waited
        self.arrived: float | None = None
        self.started: float | None = None
        self.satisfied = False

    @property
    def queued(self) -> float | None:
        """Seconds until the function was called with it; None if it did not run."""
        if self.arrived is None or self.started is None:
            return None
        return self.waited + max(0.0, self.started - self.arrived)


PASSAGE: ContextVar[Passage | None] = ContextVar("callboard.passage", default=None)
"""The request that is about to enter a server; None where its passage interests nothing."""
