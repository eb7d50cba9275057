"""``OtlpTraces``: one span for each sampled request, made from events after the request has ended."""

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from callboard.events.kinds import BATCH, OP, REQUEST, TRACED
from callboard.events.ring import Event
from callboard.telemetry.export.otel.collector import TIMEOUT, endpoint, require_sdk, resource_of

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["OtlpTraces"]

MOST = 100
"""Most spans a second; further sampled requests are counted in ``skipped``."""
EVENTS_OF_SPAN = 64
"""Most events of ops in one span, the newest ones."""
KEPT = 8192
"""Ops and batches that are remembered for requests that have not ended."""
END = 2.0
"""Seconds that the last export gets."""

log = logging.getLogger("callboard.telemetry")


class OtlpTraces:
    """A subscriber that turns requests into spans. Which ones is decided before the SDK is called.

    A request with a ``traceparent`` is sampled as its flag says; others at the rate ``OTEL_TRACES_SAMPLER_ARG``.

    Args:
        telemetry: What is observed.
        where: See :func:`callboard.telemetry.export.otel.collector.endpoint`.
        rate: Share of the requests without a ``traceparent`` that are sampled; None: as the environment says, or all.

    Attributes:
        spans: Number of spans made.
        skipped: Number of sampled requests beyond :data:`MOST` spans a second.

    Raises:
        BackendUnavailable: OpenTelemetry's SDK is not installed.
        ValueError: That is no address, or no rate.
    """

    def __init__(self, telemetry: "Telemetry", where: int | str, rate: float | None = None) -> None:
        require_sdk()
        self._url = endpoint(where, "traces")
        self._resource = resource_of(telemetry)
        self._rate = _rate_of_environment() if rate is None else rate
        self.spans = self.skipped = 0
        self._second = self._in_second = 0
        self._offset = 0
        self._ops: deque[tuple[int, str, int, str, str]] = deque(maxlen=KEPT)
        self._batches: deque[tuple[int, str, int, float, bool]] = deque(maxlen=KEPT)
        self._seconds: dict[tuple[str, int], float] = {}
        self._provider: Any = None
        self._tracer: Any = None
        self._open()

    def _open(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=self._resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=self._url, timeout=TIMEOUT)))
        self._tracer = self._provider.get_tracer("callboard")

    def take(self, events: Sequence[Event]) -> None:
        """Make spans of the requests that have ended."""
        self._offset = time.time_ns() - time.monotonic_ns()
        for each in events:
            kind = each[2]
            if kind == REQUEST:
                if self._sampled(each):
                    self._request(each)
            elif kind == OP:
                _, ns, _, device, op, tag, actor = each
                self._ops.append((ns, device, op, tag, str(actor)))
            elif kind == TRACED:
                for record in each[4]:
                    self._traced(each[3], record)
            elif kind == BATCH:
                _, ended, _, server, size, seconds, ok = each
                self._batches.append((ended - int(seconds * 1e9), server, size, seconds, ok))

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

    def _sampled(self, each: Event) -> bool:
        parent = each[8]
        if parent is not None:
            if not int(parent[-2:], 16) & 1:
                return False
        elif self._rate < 1 and random.random() >= self._rate:
            return False
        second = each[1] // 1_000_000_000
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second <= MOST:
            return True
        self.skipped += 1
        return False

    def _traced(self, device: str, record: Sequence[Any]) -> None:
        op, _, _, _, enqueued, completed, _, started, seconds = record
        self._seconds[device, op] = seconds if started else completed - enqueued
        if len(self._seconds) > KEPT:
            del self._seconds[next(iter(self._seconds))]

    def _request(self, each: Event) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        _, ended, _, server, number, arrived, began, end, parent = each
        if self._provider is None:  # another system of this process began
            self._open()
        first, begun = int(arrived * 1e9), int(began * 1e9)
        headers = {} if parent is None else {"traceparent": parent}
        span = self._tracer.start_span(
            server,
            context=TraceContextTextMapPropagator().extract(headers, Context()),
            kind=SpanKind.SERVER,
            start_time=first + self._offset,
            attributes={
                "callboard.server": server,
                "callboard.request": number,
                "callboard.end": end,
                "callboard.queued_seconds": began - arrived,
            },
        )
        for ns, name, attributes in sorted(self._within(server, begun, ended), key=lambda found: found[0]):
            span.add_event(name, attributes, timestamp=ns + self._offset)
        if end != "completed":
            span.set_status(StatusCode.ERROR, end)
        span.end(end_time=max(ended, first) + self._offset)
        self.spans += 1

    def _within(self, server: str, began: int, ended: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """The server's batches and the ops that were called while a request ran."""
        for ns, name, size, seconds, ok in reversed(self._batches):
            if name == server and began <= ns + int(seconds * 1e9) and ns <= ended:
                yield max(ns, began), "batch", {"size": size, "seconds": seconds, "ok": ok}
            if ns + 60_000_000_000 < began:
                break
        left = EVENTS_OF_SPAN
        for ns, device, op, tag, actor in reversed(self._ops):
            if ns < began or not left:
                break
            if ns <= ended:
                left -= 1
                attributes: dict[str, Any] = {"device": device}
                if actor:
                    attributes["actor"] = actor
                measured = self._seconds.get((device, op))
                if measured is not None:
                    attributes["seconds"] = measured
                yield ns, tag, attributes


def _rate_of_environment() -> float:
    text = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1"
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG is {text!r}; use a number from 0 to 1")
    return rate
