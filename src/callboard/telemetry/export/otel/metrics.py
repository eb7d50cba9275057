"""``OtlpMetrics``: all metrics to a collector, every 10 s and at the end."""

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from callboard.events.forking import after_fork
from callboard.telemetry.export.otel.collector import TIMEOUT, endpoint, require_sdk, resource_of
from callboard.telemetry.export.texts import utf8
from callboard.telemetry.export.users import Users
from callboard.telemetry.families import Family, Group
from callboard.telemetry.observed import all_groups

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["OtlpMetrics", "metrics_of"]

INTERVAL = 10.0
"""Seconds between two exports."""
END = 2.0
"""Seconds that the last export gets."""

UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}

log = logging.getLogger("callboard.telemetry")


class OtlpMetrics:
    """Exports the metrics of all observed systems on a thread; while one export lasts, further ones are left out.

    Args:
        telemetry: That of the first system.
        where: See :func:`callboard.telemetry.export.otel.collector.endpoint`.

    Raises:
        BackendUnavailable: OpenTelemetry's SDK is not installed.
        ValueError: That is no address.
    """

    def __init__(self, telemetry: "Telemetry", where: int | str) -> None:
        require_sdk()
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._exporter: Any = OTLPMetricExporter(endpoint=endpoint(where, "metrics"), timeout=TIMEOUT)
        self._resource = resource_of(telemetry)
        self._began = time.time_ns()
        self._waiting: queue.Queue[list[Group] | None] = queue.Queue(1)
        self._thread = threading.Thread(target=self._run, name="callboard-otlp", daemon=True)
        self._thread.start()
        self.users = Users(lambda each: each.run(self._report(each)), lambda: None, self.close)
        self.add(telemetry)

    @classmethod
    def shared(cls, telemetry: "Telemetry", where: int | str) -> None:
        """Export to a collector as long as one of the systems lives that have asked for it."""
        address = endpoint(where, "metrics")
        found = _shared.get(address)
        if found is None or found.users.ended:
            _shared[address] = cls(telemetry, where)
        else:
            found.add(telemetry)

    def add(self, telemetry: "Telemetry") -> None:
        """One more system."""
        self.users.add(telemetry)

        async def last() -> None:
            if not telemetry.closed:
                await self.export()

        # Before the actors and devices end, which show no figures then.
        telemetry.system.shutdown.add_task("cluster-leave", "export the last metrics", last)

    async def _report(self, telemetry: "Telemetry") -> None:
        while not telemetry.closed:
            await asyncio.sleep(INTERVAL)
            if not telemetry.closed:
                await self.export()

    async def export(self) -> None:
        """Have the metrics of now exported, unless an export is under way."""
        self._put(await all_groups())

    def close(self) -> None:
        """End; waits 2 s at most for the last export."""
        end = time.monotonic() + END
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=END)
        self._thread.join(max(0, end - time.monotonic()))
        if self._thread.is_alive():
            log.warning("the collector of OpenTelemetry does not answer; the last metrics may be lost")

    def _put(self, groups: list[Group]) -> None:
        try:
            self._waiting.put_nowait(groups)
        except queue.Full:
            log.debug("the collector of OpenTelemetry is slow; an export of metrics is left out")

    def _run(self) -> None:
        while (groups := self._waiting.get()) is not None:
            try:
                self._exporter.export(metrics_of(groups, self._resource, self._began, time.time_ns()))
            except Exception:  # of the SDK: the next export may succeed
                log.exception("metrics could not be exported to the collector of OpenTelemetry")
        self._exporter.shutdown()


_shared: dict[str, OtlpMetrics] = {}
after_fork(_shared.clear)


def metrics_of(groups: Iterable[Group], resource: Any, began: int, now: int) -> Any:
    """The SDK's ``MetricsData`` of these groups; a counter's name loses ``_total``, which collectors add."""
    from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    points: dict[Family, list[Any]] = {}
    for family, series in groups:
        points.setdefault(family, []).extend(
            _point(family, dict(zip(family.labels, map(utf8, labels), strict=True)), value, began, now)
            for labels, value in series
        )
    metrics = [
        Metric(
            family.name.removesuffix("_total"), family.help, UNITS.get(family.unit, family.unit), _data(family, each)
        )
        for family, each in points.items()
        if each
    ]
    scope = ScopeMetrics(InstrumentationScope("callboard"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _point(family: Family, attributes: dict[str, Any], value: Any, began: int, now: int) -> Any:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

    if family.kind != "histogram":
        return NumberDataPoint(attributes, began if family.kind == "counter" else 0, now, value)
    bounds: list[float] = []
    counts: list[int] = []
    before = 0
    for bound, up_to in value.buckets:
        if math.isfinite(bound):
            bounds.append(bound)
            counts.append(up_to - before)
            before = up_to
    counts.append(value.count - before)
    unknown: Any = None
    return HistogramDataPoint(attributes, began, now, value.count, value.sum, counts, bounds, unknown, unknown)


def _data(family: Family, points: list[Any]) -> Any:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Sum

    cumulative = AggregationTemporality.CUMULATIVE
    if family.kind == "counter":
        return Sum(points, cumulative, is_monotonic=True)
    return Gauge(points) if family.kind == "gauge" else Histogram(points, cumulative)
