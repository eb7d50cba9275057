"""What a collector of OpenTelemetry receives: read with the SDK's own protobufs where it is installed."""

import asyncio
import builtins
import gzip
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import callboard as cb
from callboard.events.concerns import TRACE
from callboard.serve.http.noted import parent_of
from callboard.telemetry.export.otel.collector import endpoint

LIMIT = 60.0
TRACED, SPAN = "ab" * 16, "cd" * 8
WITH_SDK = "opentelemetry-sdk and its OTLP exporter are not installed: the extra `otel`"


@pytest.mark.parametrize(
    "where, url",
    [
        (4318, "http://127.0.0.1:4318/v1/traces"),
        ("4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://collector/otlp/", "https://collector/otlp/v1/traces"),
    ],
)
def test_addresses(where: int | str, url: str) -> None:
    assert endpoint(where, "traces") == url


@pytest.mark.parametrize("where", ["", "collector:4318", "grpc://collector:4317", "http://", "http://c:x", -1, 99999])
def test_what_is_no_address_is_named(where: int | str) -> None:
    with pytest.raises(ValueError, match=r"otlp = .* is no port and no URL"):
        endpoint(where, "traces")


@pytest.mark.parametrize(
    "value, valid",
    [
        (f"00-{TRACED}-{SPAN}-01", True),
        (f"00-{TRACED}-{SPAN}-00", True),
        (f"cc-{TRACED}-{SPAN}-01-what-comes", True),
        (f"00-{TRACED}-{SPAN}-01-more", False),
        (f"ff-{TRACED}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACED}-{'0' * 16}-01", False),
        (f"00-{TRACED.upper()}-{SPAN}-01", False),
        ("", False),
    ],
)
def test_trace_contexts_over_http(value: str, valid: bool) -> None:
    assert parent_of([(b"accept", b"*/*"), (b"traceparent", value.encode())]) == (value[:55] if valid else None)
    assert parent_of([]) is None


async def test_a_missing_sdk_is_said_and_the_environment_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(f"No module named {name!r}")
        return find(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    async with cb.System("app") as system:
        with pytest.raises(cb.BackendUnavailable, match=r"pip install 'callboard\[otel\]'"):
            cb.observe(system, otlp=4318)
    monkeypatch.setenv("CALLBOARD_TELEMETRY", "otlp:http://127.0.0.1:4318")
    with caplog.at_level(logging.ERROR, "callboard.telemetry"):
        async with cb.System("app"):
            pass
    assert "pip install 'callboard[otel]'" in caplog.text


# -- with the SDK ------------------------------------------------------------------------------------------------------


class Collector:
    """Takes exports, and decodes them."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.bodies.setdefault(self.path, []).append(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        requests = map(ExportTraceServiceRequest.FromString, self.bodies.get("/v1/traces", []))
        return [span for each in requests for r in each.resource_spans for s in r.scope_spans for span in s.spans]

    def metrics(self) -> dict[str, Any]:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        request = ExportMetricsServiceRequest.FromString(self.bodies["/v1/metrics"][-1])
        return {m.name: m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics}


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=WITH_SDK)
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def attributes(each: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in each.attributes}


async def application(port: int, parents: list[str | None]) -> None:
    """One request with each trace context, one after the other."""
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        cb.observe(system, "node-1", otlp=port)
        device = await system.device("cpu", isolation="thread")

        async def work(items: list[float]) -> list[float]:
            a = device.full((2, 2), items[0], "f32")
            found = await device.blas.gemm(a, a).get()
            return [float(found[0, 0])] * len(items)

        async with cb.DynamicBatchingServer(work, max_batch=4, name="square") as server:
            for parent in parents:
                token = TRACE.set(parent)
                assert await server.submit(2.0) == 8
                TRACE.reset(token)
        await device.drain()


async def test_a_request_is_a_span_with_its_parent_times_and_ops(collector: Collector) -> None:
    await application(collector.port, [f"00-{TRACED}-{SPAN}-01", f"00-{TRACED}-{SPAN}-00", None])
    first, second = collector.spans()  # the client did not sample the one between
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACED, SPAN)
    assert second.trace_id.hex() != TRACED
    assert not second.parent_span_id
    assert first.name == "square"
    assert first.start_time_unix_nano < first.end_time_unix_nano
    assert first.end_time_unix_nano < second.start_time_unix_nano
    assert attributes(first)["callboard.end"] == "completed"
    for span in (first, second):
        names = [event.name for event in span.events]
        assert (names.count("batch"), names.count("blas.gemm")) == (1, 1)
        assert all(span.start_time_unix_nano <= e.time_unix_nano <= span.end_time_unix_nano for e in span.events)
    assert attributes(next(e for e in first.events if e.name == "blas.gemm"))["device"] == "cpu:0"
    metrics = collector.metrics()
    (calls,) = [p for p in metrics["callboard_op_calls"].sum.data_points if attributes(p)["op"] == "blas.gemm"]
    assert calls.as_int + calls.as_double == 3
    assert metrics["callboard_op_calls"].sum.is_monotonic
    histograms = [m.histogram for m in metrics.values() if m.WhichOneof("data") == "histogram"]
    points = [point for histogram in histograms for point in histogram.data_points]
    assert points
    assert all(sum(p.bucket_counts) == p.count for p in points)
    assert all(len(p.bucket_counts) == len(p.explicit_bounds) + 1 for p in points)


async def test_spans_are_sampled_and_bounded(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    from callboard.events.kinds import REQUEST
    from callboard.telemetry.export.otel import traces

    async with cb.System("app") as system:
        telemetry = cb.observe(system)
        none = traces.OtlpTraces(telemetry, collector.port, rate=0)
        every = traces.OtlpTraces(telemetry, collector.port, rate=1)
        requests = [(n, 5_000_000_000, REQUEST, "s", n, 4.0, 4.5, "failed", None) for n in range(traces.MOST + 7)]
        for each in (none, every):
            each.take(requests)
            each.close()
    assert (none.spans, none.skipped) == (0, 0)
    assert (every.spans, every.skipped) == (traces.MOST, 7)
    spans = collector.spans()
    assert len(spans) == traces.MOST
    assert {(span.status.code, span.status.message) for span in spans} == {(2, "failed")}
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "most")
    with pytest.raises(ValueError, match="OTEL_TRACES_SAMPLER_ARG is 'most'; use a number from 0 to 1"):
        traces.OtlpTraces(telemetry, collector.port)
