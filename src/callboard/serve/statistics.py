"""A model's figures as the statistics extension of the Open Inference Protocol names them, and as Triton's metrics do.

They ask for the time of copies before and after a model runs, too. These are not measured apart from the run, and are
left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from callboard.patterns.batching.figures import BatchingStats
from callboard.patterns.batching.sequences.server import SequenceStats
from callboard.patterns.requests.stats import Buckets, Distribution
from callboard.serve.calls import CallStats
from callboard.serve.models import Model
from callboard.telemetry.families import Family, Group

__all__ = ["TRITON", "statistics_of", "triton_metrics"]

NANOSECONDS = 1e9
MILLISECONDS = 1e3


_MODEL = ("model", "version")

TRITON = {
    name: Family(f"nv_inference_{name}", kind, "", labels, text)
    for name, kind, labels, text in (
        ("request_success", "counter", _MODEL, "Number of successful inference requests."),
        ("request_failure", "counter", (*_MODEL, "reason"), "Number of failed inference requests."),
        ("count", "counter", _MODEL, "Number of inferences performed."),
        ("exec_count", "counter", _MODEL, "Number of model executions performed."),
        ("request_duration_us", "counter", _MODEL, "Cumulative inference request duration in microseconds."),
        ("queue_duration_us", "counter", _MODEL, "Cumulative inference queuing duration in microseconds."),
        ("compute_infer_duration_us", "counter", _MODEL, "Cumulative compute inference duration in microseconds."),
        ("pending_request_count", "gauge", _MODEL, "Number of pending requests awaiting execution."),
    )
}
"""Triton's metrics that mean the same here, by their names without ``nv_inference_``."""

REASONS = {"BACKEND": ("failed",), "CANCELED": ("cancelled",), "REJECTED": ("rejected", "dropped", "expired")}
"""Triton's reasons of failures, and our ends; those of a server that stops are ``OTHER``."""


def triton_metrics(models: Iterable[Model]) -> Iterator[Group]:
    """The figures of models under Triton's names, so that dashboards and alerts for Triton show them."""
    found: dict[str, list[tuple[tuple[str, ...], int]]] = {name: [] for name in TRITON}
    for model in models:
        label, stats = (model.name, model.version), model.stats()
        entry = statistics_of(model)
        of = entry["inference_stats"]
        for reason, ends in (*REASONS.items(), ("OTHER", ("stopped",))):
            unfit = model.unfit if reason == "BACKEND" else 0  # its value was not as declared
            found["request_failure"].append(((*label, reason), sum(getattr(stats, end) for end in ends) + unfit))
        values = {
            "request_success": of["success"]["count"],
            "count": entry["inference_count"],
            "exec_count": entry["execution_count"],
            "pending_request_count": stats.queued,
            **{
                f"{ours}_duration_us": of[theirs]["ns"] // 1000
                for ours, theirs in (("request", "success"), ("queue", "queue"), ("compute_infer", "compute_infer"))
                if theirs in of
            },
        }
        for name, value in values.items():
            found[name].append((label, value))
    for name, series in found.items():
        yield TRITON[name], series


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
