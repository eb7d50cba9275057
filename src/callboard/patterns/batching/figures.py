"""``BatchingStats``: figures of a batching server."""

from dataclasses import dataclass

from callboard.patterns.requests.stats import Distribution, ServerStats

__all__ = ["BatchingStats"]


@dataclass(frozen=True)
class BatchingStats(ServerStats):
    """Figures of a batching server.

    Attributes:
        batches: Calls of the batch function that gave results.
        failed_batches: Calls that did not.
        repeated: Requests that were put back into the queue after a lost context.
        padding: Items that were added to batches to fill them up to a preferred size.
        batch_size: Requests per batch.
        run_time: Seconds per batch.
        run_time_by_size: Batches and their summed seconds, by the number of items that the function got.
        queue_time_by_size: Requests and their summed seconds in the queue, by the number of requests in their batch.
    """

    batches: int
    failed_batches: int
    repeated: int
    padding: int
    batch_size: Distribution
    run_time: Distribution
    run_time_by_size: dict[int, tuple[int, float]]
    queue_time_by_size: dict[int, tuple[int, float]]
