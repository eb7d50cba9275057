"""``OtlpTraces``: one span for each sampled request and batch, made from events after it has ended."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.events.kinds import BATCH, HTTP, LOST, OP, REQUEST, TRACED
from callboard.events.ring import Event
from callboard.events.tracing import Sampler, is_sampled
from callboard.telemetry.export.otel.collector import TIMEOUT, endpoint, require_sdk, resource_of
from callboard.telemetry.export.otel.ids import Ids
from callboard.telemetry.export.texts import utf8

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["OtlpTraces"]

MOST = 100
"""Most requests a second that get a span; further ones are counted in ``skipped``. Of batches likewise."""
EVENTS_OF_SPAN = 64
"""Most events of one span, the newest ones."""
KEPT = 8192
"""Contexts, and measured ops, that are remembered for requests that have not ended."""
END = 2.0
"""Seconds that the last export gets."""

log = logging.getLogger("callboard.telemetry")

Noted = tuple[int, str, dict[str, Any]]
"""An event of a span: when, its name, and its attributes."""


class OtlpTraces:
    """A subscriber that turns requests into spans. Which ones is decided when they arrive, without the SDK.

    A request with a ``traceparent`` is sampled as its flag says; others at the rate ``OTEL_TRACES_SAMPLER_ARG``.

    Args:
        telemetry: What is observed.
        where: See :func:`callboard.telemetry.export.otel.collector.endpoint`.
        rate: Share of the requests without a ``traceparent`` that are sampled; None: as the environment says, or all.

    Attributes:
        sampler: Begins the contexts of requests.
        spans: Number of spans made.

    Raises:
        BackendUnavailable: OpenTelemetry's SDK is not installed.
        ValueError: That is no address, or no rate.
    """

    def __init__(self, telemetry: "Telemetry", where: int | str, rate: float | None = None) -> None:
        require_sdk()
        self._url = endpoint(where, "traces")
        self._resource = resource_of(telemetry)
        self.sampler = Sampler(_rate_of_environment() if rate is None else rate, MOST)
        self._batches = Sampler(1.0, MOST)
        self.spans = 0
        self._offset = 0
        self._noted: dict[str, deque[Noted]] = {}  # by context
        self._within: dict[str, deque[str]] = {}  # the batches, by their own contexts, of a request
        self._seconds: dict[tuple[str, int], float] = {}
        self._provider: Any = None
        self._tracer: Any = None
        self._ids = Ids()
        self._open()

    def _open(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=self._resource, shutdown_on_exit=False, id_generator=self._ids.generator()
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=self._url, timeout=TIMEOUT)))
        self._tracer = self._provider.get_tracer("callboard")

    @property
    def skipped(self) -> int:
        """Number of sampled requests beyond :data:`MOST` a second."""
        return self.sampler.skipped

    def take(self, events: Sequence[Event]) -> None:
        """Make spans of the requests that have ended."""
        self._offset = time.time_ns() - time.monotonic_ns()
        for each in events:
            kind = each[2]
            if kind == REQUEST:
                self._request(each)
            elif kind == OP:
                self._op(each)
            elif kind == TRACED:
                for record in each[4]:
                    self._traced(each[3], record)
            elif kind == BATCH:
                self._batch(each)
            elif kind == HTTP:
                self._http(each)
            elif kind == LOST:
                self._lost(each)

    def close(self) -> None:
        """Export what is there, and end; waits 2 s at most."""
        provider, self._provider = self._provider, None
        if provider is None:
            return
        ending = threading.Thread(target=provider.shutdown, name="callboard-otlp-end", daemon=True)
        ending.start()
        ending.join(END)
        if ending.is_alive():
            log.warning("the collector of OpenTelemetry does not answer; the last spans may be lost")
        if self.skipped:
            log.warning("%d sampled requests got no span: there were more than %d a second", self.skipped, MOST)

    # -- events of spans -----------------------------------------------------------------------------------------------

    def _note(self, context: str, noted: Noted) -> None:
        found = self._noted.get(context)
        if found is None:
            found = self._noted[context] = deque(maxlen=EVENTS_OF_SPAN)
            _bound(self._noted)
        found.append(noted)

    def _op(self, each: Event) -> None:
        _, ns, _, device, op, tag, actor, context = each
        if is_sampled(context):
            attributes: dict[str, Any] = {"device": device, "op": op}
            if actor:
                attributes["actor"] = actor
            self._note(context, (ns, tag, attributes))

    def _traced(self, device: str, record: Sequence[Any]) -> None:
        op, _, _, _, enqueued, completed, _, started, seconds = record
        self._seconds[device, op] = seconds if started else completed - enqueued
        _bound(self._seconds)

    def _lost(self, each: Event) -> None:
        """Of each request that has called ops of this device and has not ended."""
        _, ns, _, device, generation, error, *_ = each
        attributes = {"device": device, "generation": generation, "error": error}
        for noted in self._noted.values():
            if any(about.get("device") == device for _, _, about in noted):
                noted.append((ns, "context lost", attributes))

    def _batch(self, each: Event) -> None:
        _, ended, _, server, size, seconds, ok, context, requests = each
        if not requests:
            return
        began = ended - int(seconds * 1e9)
        for request in requests:
            self._note(request, (began, "batch", {"size": size, "seconds": seconds, "ok": ok}))
            if context != request:
                self._within.setdefault(request, deque(maxlen=EVENTS_OF_SPAN)).append(context)
                _bound(self._within)
        if context not in requests and is_sampled(self._batches.begin(context)):
            attributes = {"callboard.server": server, "callboard.batch": size}
            noted = self._noted.get(context, ())
            times = began, ended
            self._span(f"{server} batch", context, requests[0], times, attributes, noted, ok or "failed", requests)

    # -- spans ---------------------------------------------------------------------------------------------------------

    def _request(self, each: Event) -> None:
        _, ended, _, server, number, arrived, began, end, context, parent = each
        if context is None:  # it came before this exporter
            context = self.sampler.begin(None)
        if not is_sampled(context) or context == parent:
            return
        noted = [*self._noted.pop(context, ())]
        for batch in dict.fromkeys(self._within.pop(context, ())):
            noted += self._noted.get(batch, ())
        attributes = {
            "callboard.server": server,
            "callboard.request": number,
            "callboard.end": end,
            "callboard.queued_seconds": began - arrived,
        }
        times = int(arrived * 1e9), ended
        self._span(server, context, parent, times, attributes, noted, end == "completed" or end, serves=parent is None)

    def _http(self, each: Event) -> None:
        """The span of a request over HTTP, with OpenTelemetry's names; those of its model are below it."""
        _, ended, _, route, method, status, request_id, model, arrived, context, parent = each
        if not is_sampled(context):
            return
        attributes: dict[str, Any] = {
            "http.request.method": method,
            "http.response.status_code": status,
            "callboard.request_id": request_id,
        }
        if route:
            attributes["http.route"] = route
        if model:
            attributes["callboard.model"] = model
        noted, end = self._noted.pop(context, ()), status < 500 or str(status)
        self._span(f"{method} {route}".rstrip(), context, parent, (arrived, ended), attributes, noted, end, serves=True)

    def _span(
        self,
        name: str,
        context: str,
        parent: str | None,
        times: tuple[int, int],
        attributes: dict[str, Any],
        noted: Iterable[Noted],
        end: bool | str,
        links: Sequence[str] = (),
        *,
        serves: bool = False,
    ) -> None:
        """Make a span; ``end`` is True, or what is wrong with its end; ``serves``: what asked is another program."""
        from opentelemetry.trace import Link, SpanKind, StatusCode

        if self._provider is None:  # another system of this process began
            self._open()
        self._ids.next = context
        span = self._tracer.start_span(
            utf8(name),
            context=self._ids.parent(parent),
            kind=SpanKind.SERVER if serves else SpanKind.INTERNAL,
            start_time=times[0] + self._offset,
            attributes=_shown(attributes),
            links=[Link(self._ids.context(each)) for each in links],
        )
        for ns, what, about in sorted(noted, key=lambda found: found[0])[-EVENTS_OF_SPAN:]:
            span.add_event(utf8(what), _shown(self._measured(about)), timestamp=max(ns, times[0]) + self._offset)
        if end is not True:
            span.set_status(StatusCode.ERROR, end)
        span.end(end_time=max(times[1], times[0]) + self._offset)
        self.spans += 1

    def _measured(self, about: dict[str, Any]) -> dict[str, Any]:
        seconds = self._seconds.get((about.get("device", ""), about.get("op", 0)))
        return about if seconds is None else {**about, "seconds": seconds}


def _shown(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: utf8(value) if isinstance(value, str) else value for name, value in attributes.items()}


def _bound(kept: dict[Any, Any]) -> None:
    if len(kept) > KEPT:
        del kept[next(iter(kept))]


def _rate_of_environment() -> float:
    text = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1"
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG is {text!r}; use a number from 0 to 1")
    return rate
