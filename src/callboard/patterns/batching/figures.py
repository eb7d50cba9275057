"""``BatchingStats``: figures of a batching server, and the counters that they are read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from callboard.patterns.requests.entries import Entry
from callboard.patterns.requests.stats import SIZES, Distribution, Histogram, ServerStats

__all__ = ["BatchCounters", "BatchingStats"]


@dataclass(frozen=True)
class BatchingStats(ServerStats):
    """Figures of a batching server.

    Attributes:
        batches: Calls of the batch function that returned results.
        failed_batches: Calls that failed.
        repeated: Requests that were put back into the queue after a lost context.
        delayed: Requests whose deadlines passed in the queue, and that went after all others.
        padding: Items that were added to batches to fill them up to a preferred size.
        batch_size: Requests per batch.
        run_time: Seconds per batch.
        run_time_by_size: Number of batches and their summed seconds, by batch size.
        queue_time_by_size: Requests and their summed seconds in the queue, by the number of requests in their batch.
    """

    batches: int
    failed_batches: int
    repeated: int
    delayed: int
    padding: int
    batch_size: Distribution
    run_time: Distribution
    run_time_by_size: dict[int, tuple[int, float]]
    queue_time_by_size: dict[int, tuple[int, float]]


class BatchCounters:
    """Counts batches and their requests.

    Args:
        queue_time: Gets the seconds of each request in the queue.

    Attributes:
        failed, repeated, delayed, padding: See :class:`BatchingStats`.
    """

    def __init__(self, queue_time: Histogram) -> None:
        self.failed = self.repeated = self.delayed = self.padding = 0
        self._queue_time, self._run_time, self._batch_size = queue_time, Histogram(), Histogram(SIZES)
        self._run_by_size: dict[int, tuple[int, float]] = {}
        self._queued_by_size: dict[int, tuple[int, float]] = {}

    def began(self, entries: Sequence[Entry]) -> None:
        """These were taken out of the queue together."""
        waited = 0.0
        for entry in entries:
            self._queue_time.add(entry.started - entry.arrived)
            waited += entry.started - entry.arrived
        count, seconds = self._queued_by_size.get(len(entries), (0, 0.0))
        self._queued_by_size[len(entries)] = count + len(entries), seconds + waited

    def ran(self, requests: int, size: int, seconds: float) -> None:
        """Count a batch with results for ``requests`` requests, filled up to ``size`` items."""
        self._run_time.add(seconds)
        self._batch_size.add(requests)
        self.padding += size - requests
        batches, summed = self._run_by_size.get(size, (0, 0.0))
        self._run_by_size[size] = batches + 1, summed + seconds

    def stats(self, **common: Any) -> BatchingStats:
        """The figures, in addition to those of all servers."""
        run_time = self._run_time.snapshot()
        return BatchingStats(
            **common,
            batches=run_time.count,
            failed_batches=self.failed,
            repeated=self.repeated,
            delayed=self.delayed,
            padding=self.padding,
            batch_size=self._batch_size.snapshot(),
            run_time=run_time,
            run_time_by_size=dict(self._run_by_size),
            queue_time_by_size=dict(self._queued_by_size),
        )
