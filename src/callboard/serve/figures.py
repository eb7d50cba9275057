"""Counters of the HTTP edge, and its metrics, which the table of telemetry names."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from callboard.patterns.fairshare.stats import FairShareStats
from callboard.patterns.requests.stats import SECONDS, Histogram
from callboard.serve.models import Model
from callboard.serve.statistics import triton_metrics
from callboard.telemetry.export.prometheus import Text
from callboard.telemetry.families import Group
from callboard.telemetry.observed import all_groups, installed
from callboard.telemetry.table import family

if TYPE_CHECKING:
    from callboard.serve.app import App

__all__ = ["Figures", "all_metrics", "exposition"]

ENDS = ("completed", "failed", "cancelled", "expired", "rejected", "dropped", "stopped")

DISTRIBUTIONS = {
    "queue_time": "queue_seconds",
    "total_time": "total_seconds",
    "prompt_tokens": "prompt_tokens",
    "completion_tokens": "completion_tokens",
    "first_token_time": "time_to_first_token_seconds",
    "token_time": "time_between_tokens_seconds",
}
"""Histograms of a model by their names in it: the end of the metric's name."""


class Figures:
    """Counts of HTTP responses, and seconds that models took.

    Attributes:
        responses: Responses by route and status.
        seconds: Seconds from a request's head to its response, by route.
        open: Requests that have no response yet.
        stalls: Connections that were closed because the client took nothing for ``EdgeLimits.send_timeout``.
        shortages: Times that the server found no file descriptor left; it looks ten times per second.
    """

    def __init__(self) -> None:
        self.responses: dict[tuple[str, int], int] = {}
        self.seconds: dict[str, Histogram] = {}
        self.open = 0
        self.stalls = 0
        self.shortages = 0

    def responded(self, route: str, status: int, seconds: float) -> None:
        """Count a response.

        Args:
            route: The pattern that the URL matched.
            status: HTTP status; 499 if the client had left.
            seconds: Seconds from the head of the request to the response.
        """
        key = route, status
        self.responses[key] = self.responses.get(key, 0) + 1
        if route not in self.seconds:
            self.seconds[route] = Histogram(SECONDS)
        self.seconds[route].add(seconds)

    def stalled(self) -> None:
        """Count a connection that was closed because its client took nothing."""
        self.stalls += 1


def exposition(figures: Figures, models: Iterable[Model], ready: bool, more: Iterable[Group] = ()) -> str:
    """The figures in Prometheus' text format.

    Args:
        figures: Figures of the edge.
        models: The models.
        ready: Whether requests are accepted.
        more: Further metrics.
    """
    models = list(models)
    return Text().render([*_edge(figures, ready), *_models(models), *triton_metrics(models), *more])


async def all_metrics(app: "App") -> str:
    """The figures of an app, and what telemetry shows of its process if that is on."""
    more = await all_groups() if installed() else []
    return exposition(app.figures, app.served, app.why_not_ready() is None, more)


def _edge(figures: Figures, ready: bool) -> Iterator[Group]:
    yield family("callboard_ready"), [((), int(ready))]
    yield family("callboard_http_requests_open"), [((), figures.open)]
    responses = [((route, str(status)), count) for (route, status), count in sorted(figures.responses.items())]
    yield family("callboard_http_responses_total"), responses
    yield family("callboard_http_connections_stalled_total"), [((), figures.stalls)]
    yield family("callboard_http_descriptor_shortages_total"), [((), figures.shortages)]
    seconds = [((route,), found.snapshot()) for route, found in sorted(figures.seconds.items())]
    yield family("callboard_http_request_seconds"), seconds


def _models(models: list[Model]) -> Iterator[Group]:
    labels = [(model.name, model.version) for model in models]
    stats = [(label, model.stats()) for label, model in zip(labels, models, strict=True)]
    named = list(zip(labels, models, strict=True))
    yield family("callboard_model_ready"), [(label, int(model.why_not_ready() is None)) for label, model in named]
    unfit = {label: model.unfit for label, model in named}
    # A count that fell would be a restart, for Prometheus: completed stays as it is.
    ends = [
        ((*label, end), getattr(found, end) + (unfit[label] if end == "failed" else 0))
        for label, found in stats
        for end in ENDS
    ]
    yield family("callboard_model_requests_total"), ends
    for name in ("queued", "running"):
        yield family(f"callboard_model_{name}"), [(label, getattr(found, name)) for label, found in stats]
    for name, metric in DISTRIBUTIONS.items():
        each = [(label, getattr(model, name, None)) for label, model in named]
        yield family(f"callboard_model_{metric}"), [(label, found) for label, found in each if found]
    sizes = [(label, getattr(model.run_stats(), "batch_size", None)) for label, model in named]
    yield family("callboard_model_batch_size"), [(label, found) for label, found in sizes if found]
    held = [(label, model.quarantined()) for label, model in named]
    yield family("callboard_model_quarantined_keys"), [(label, keys) for label, (keys, _) in held]
    yield family("callboard_model_quarantined_total"), [(label, refused) for label, (_, refused) in held]
    yield from _tenants([(label, found) for label, found in stats if isinstance(found, FairShareStats)])
    losses = [((*label, device), count) for label, model in named for device, count in _losses(model).items()]
    yield family("callboard_device_generation"), [(label, count + 1) for label, count in losses]
    yield family("callboard_device_restarts_total"), losses


def _losses(model: Model) -> dict[str, int]:
    """Lost contexts of a model's devices, and of the own processes of its actors, by their names.

    Devices of one name, such as those of two replicas on one GPU, are numbered.
    """
    found: dict[str, int] = {}
    for port in model.contexts():
        number, name = 1, port.name
        while name in found:
            number += 1
            name = f"{port.name} #{number}"
        found[name] = port.losses
    return found


def _tenants(shared: list[tuple[tuple[str, str], FairShareStats]]) -> Iterator[Group]:
    """Models with fair sharing. Tenants without settings of their own are dropped when they are idle."""
    for name, metric in (("served", "served_total"), ("queued", "queued"), ("running", "running")):
        series = [
            ((*label, "/".join(map(str, tenant)) if isinstance(tenant, tuple) else str(tenant)), getattr(found, name))
            for label, stats in shared
            for tenant, found in stats.tenants.items()
        ]
        yield family(f"callboard_model_tenant_{metric}"), series
