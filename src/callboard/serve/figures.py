"""Counters of the HTTP edge, and their text form for Prometheus."""

from collections.abc import Iterable, Iterator, Mapping

from callboard.patterns.fairshare.stats import FairShareStats
from callboard.patterns.requests.stats import SECONDS, Buckets, Distribution, Histogram
from callboard.serve.models import Model

__all__ = ["Figures", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ENDS = ("completed", "failed", "cancelled", "expired", "rejected", "dropped", "stopped")

DISTRIBUTIONS = {
    "queue_time": ("queue_seconds", "Seconds from a request's submission until the model's function was called."),
    "total_time": ("total_seconds", "Seconds from a request's submission to its value."),
    "prompt_tokens": ("prompt_tokens", "Tokens of a prompt, or of an input."),
    "completion_tokens": ("completion_tokens", "New tokens of a text."),
    "first_token_time": ("time_to_first_token_seconds", "Seconds from a request's submission to its first token."),
    "token_time": ("time_between_tokens_seconds", "Seconds from one token of a text to the next."),
}
"""Histograms of a model by their names in it: the end of the metric's name, and what it counts."""


class Figures:
    """Counts of HTTP responses, and seconds that models took.

    Attributes:
        responses: Responses by route and status.
        seconds: Seconds from a request's head to its response, by route.
        open: Requests that have no response yet.
        stalls: Connections that were closed because the client took nothing for ``EdgeLimits.send_timeout``.
    """

    def __init__(self) -> None:
        self.responses: dict[tuple[str, int], int] = {}
        self.seconds: dict[str, Histogram] = {}
        self.open = 0
        self.stalls = 0

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


def exposition(figures: Figures, models: Iterable[Model], ready: bool) -> str:
    """The figures in Prometheus' text format 0.0.4."""
    return "\n".join([*_edge(figures, ready), *_models(list(models))]) + "\n"


def _edge(figures: Figures, ready: bool) -> Iterator[str]:
    yield from _head("callboard_ready", "gauge", "Whether requests are accepted.")
    yield f"callboard_ready {int(ready)}"
    yield from _head("callboard_http_requests_open", "gauge", "Requests that have no response yet.")
    yield f"callboard_http_requests_open {figures.open}"
    yield from _head(
        "callboard_http_responses_total", "counter", "Responses by route and status; 499: the client left."
    )
    for (route, status), count in sorted(figures.responses.items()):
        yield f'callboard_http_responses_total{{route="{_quoted(route)}",status="{status}"}} {count}'
    yield from _head(
        "callboard_http_connections_stalled_total", "counter", "Connections closed: the client took nothing."
    )
    yield f"callboard_http_connections_stalled_total {figures.stalls}"
    by_route = {f'route="{_quoted(route)}"': found.snapshot() for route, found in sorted(figures.seconds.items())}
    yield from _histogram("callboard_http_request_seconds", "Seconds from a request's head to its response.", by_route)


def _models(models: list[Model]) -> Iterator[str]:
    labels = {id(model): f'model="{_quoted(model.name)}",version="{_quoted(model.version)}"' for model in models}
    stats = {id(model): model.stats() for model in models}
    yield from _head("callboard_model_ready", "gauge", "Whether the model's device is ready.")
    for model in models:
        yield f"callboard_model_ready{{{labels[id(model)]}}} {int(model.why_not_ready() is None)}"
    yield from _head(
        "callboard_model_requests_total",
        "counter",
        "Requests to the model by how they ended; a value that it does not declare counts twice.",
    )
    unfit = {id(model): model.unfit for model in models}
    for key, found in stats.items():
        for end in ENDS:  # a count that fell would be a restart, for Prometheus: completed stays as it is
            count = getattr(found, end) + (unfit[key] if end == "failed" else 0)
            yield f'callboard_model_requests_total{{{labels[key]},end="{end}"}} {count}'
    for name, what in (("queued", "Requests that wait to run."), ("running", "Requests that run.")):
        yield from _head(f"callboard_model_{name}", "gauge", what)
        for key, found in stats.items():
            yield f"callboard_model_{name}{{{labels[key]}}} {getattr(found, name)}"
    for name, (metric, what) in DISTRIBUTIONS.items():
        histograms = {labels[id(model)]: getattr(model, name, None) for model in models}
        found_of = {label: each for label, each in histograms.items() if each}
        yield from _histogram(f"callboard_model_{metric}", what, found_of)
    sizes = {labels[id(model)]: getattr(model.run_stats(), "batch_size", None) for model in models}
    yield from _histogram(
        "callboard_model_batch_size",
        "Requests per batch, or per step.",
        {label: size for label, size in sizes.items() if size},
    )
    held = {labels[id(model)]: model.quarantined() for model in models}
    yield from _head(
        "callboard_model_quarantined_keys", "gauge", "Keys whose requests are refused: they lost contexts."
    )
    for label, (keys, _) in held.items():
        yield f"callboard_model_quarantined_keys{{{label}}} {keys}"
    yield from _head(
        "callboard_model_quarantined_total", "counter", "Requests that were refused, or ended, by a quarantine."
    )
    for label, (_, refused) in held.items():
        yield f"callboard_model_quarantined_total{{{label}}} {refused}"
    yield from _tenants({labels[key]: found for key, found in stats.items() if isinstance(found, FairShareStats)})
    losses = {f"{labels[id(model)]},{label}": count for model in models for label, count in _losses(model).items()}
    yield from _head("callboard_device_generation", "gauge", "Ordinal of the context that the device has.")
    for label, count in losses.items():
        yield f"callboard_device_generation{{{label}}} {count + 1}"
    yield from _head("callboard_device_restarts_total", "counter", "Contexts that the device has lost.")
    for label, count in losses.items():
        yield f"callboard_device_restarts_total{{{label}}} {count}"


def _losses(model: Model) -> dict[str, int]:
    """Lost contexts of a model's devices, and of the own processes of its actors, by their labels.

    Devices of one name, such as those of two replicas on one GPU, are numbered.
    """
    found: dict[str, int] = {}
    for port in model.contexts():
        number, name = 1, port.name
        while (label := f'device="{_quoted(name)}"') in found:
            number += 1
            name = f"{port.name} #{number}"
        found[label] = port.losses
    return found


def _tenants(shared: dict[str, FairShareStats]) -> Iterator[str]:
    """Lines of models with fair sharing. Tenants without settings of their own are dropped when they are idle."""
    for name, kind, what in (
        ("served", "counter", "Cost that the tenant was served."),
        ("queued", "gauge", "Requests of the tenant that wait to run."),
        ("running", "gauge", "Requests of the tenant that run."),
    ):
        metric = f"callboard_model_tenant_{name}" + ("_total" if kind == "counter" else "")
        yield from _head(metric, kind, what)
        for labels, stats in shared.items():
            for tenant, found in stats.tenants.items():
                shown = "/".join(map(str, tenant)) if isinstance(tenant, tuple) else str(tenant)
                yield f'{metric}{{{labels},tenant="{_quoted(shown)}"}} {getattr(found, name)}'


def _histogram(metric: str, what: str, found: Mapping[str, Distribution | Buckets]) -> Iterator[str]:
    """A histogram, by its labels; none of them is empty."""
    yield from _head(metric, "histogram", what)
    for label, each in found.items():
        for bound, count in each.buckets:
            yield f'{metric}_bucket{{{label},le="{bound!r}"}} {count}'
        yield f'{metric}_bucket{{{label},le="+Inf"}} {each.count}'
        yield f"{metric}_sum{{{label}}} {each.sum!r}"
        yield f"{metric}_count{{{label}}} {each.count}"


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"


def _quoted(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
