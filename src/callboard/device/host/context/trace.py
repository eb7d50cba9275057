"""``KernelTrace``: when each op was enqueued and done. Nothing of it runs while no trace is installed."""

import time
from collections.abc import Callable

__all__ = ["KernelTrace"]

Record = tuple[int, str, int, float, float, float, bool]


class KernelTrace:
    """Collects records in the host; they travel in batches, beside the completions.

    Args:
        every: Record one op in so many; 1: all of them, and all calls of actors.
        clock: Monotonic seconds.

    Attributes:
        open: Ops that were recorded and have no completion yet.
    """

    def __init__(self, every: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.every = every
        self.clock = clock
        self.open: dict[int, tuple[str, int, float, float]] = {}
        self._left = 1
        self._records: list[Record] = []

    def skips(self) -> bool:
        """True if the next op is not recorded."""
        self._left -= 1
        if self._left:
            return True
        self._left = self.every
        return False

    def enqueued(self, op: int, tag: str, stream: int, began: float) -> None:
        """An op was launched; its admission began at ``began``."""
        self.open[op] = (tag, stream, began, self.clock())

    def called(self, op: int, tag: str, stream: int, began: float, ended: float) -> None:
        """Record that an actor's call ran from ``began`` to ``ended``; its enqueued work may not be complete."""
        self.open[op] = (tag, stream, began, ended)

    def completed(self, op: int, ok: bool) -> None:
        """Record that its completion is known (a rejected op has no record)."""
        started = self.open.pop(op, None)
        if started is not None:
            self._records.append((op, *started, self.clock(), ok))

    def take(self) -> list[Record]:
        """Records since the last call."""
        records, self._records = self._records, []
        return records
