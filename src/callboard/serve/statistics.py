"""A model's figures as the statistics extension of the Open Inference Protocol names them.

It asks for the time of copies before and after a model runs, too. These are not measured apart from the run, and are
left out.
"""

from typing import Any

from callboard.patterns.batching.figures import BatchingStats
from callboard.patterns.batching.sequences.server import SequenceStats
from callboard.patterns.requests.stats import Buckets, Distribution
from callboard.serve.calls import CallStats
from callboard.serve.models import Model

__all__ = ["statistics_of"]

NANOSECONDS = 1e9
MILLISECONDS = 1e3


def statistics_of(model: Model) -> dict[str, Any]:
    """The entry of a model in ``model_stats``."""
    stats, run = model.stats(), model.run_stats()
    run_time = run.run_time if isinstance(run, BatchingStats | CallStats | SequenceStats) else None
    inference: dict[str, Any] = {
        "success": _summed(model.total_time),
        "fail": {"count": model.failures, "ns": round(model.failed_seconds * NANOSECONDS)},
        "queue": _summed(model.queue_time),
    }
    if run_time is not None:
        inference["compute_infer"] = _summed(run_time)
    by_size = run.run_time_by_size if isinstance(run, BatchingStats) else {}
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": round(model.last * MILLISECONDS),
        "inference_count": stats.completed,
        "execution_count": stats.completed if run_time is None else run_time.count,
        "inference_stats": inference,
        "batch_stats": [
            {"batch_size": size, "compute_infer": {"count": count, "ns": round(seconds * NANOSECONDS)}}
            for size, (count, seconds) in sorted(by_size.items())
        ],
    }


def _summed(distribution: Distribution | Buckets) -> dict[str, int]:
    return {"count": distribution.count, "ns": round(distribution.sum * NANOSECONDS)}
