"""What a collector of OpenTelemetry receives: read with the SDK's own protobufs where it is installed."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.telemetry.collecting import Collector, attributes, collecting

import callboard as cb
from callboard.events.concerns import TRACE
from callboard.serve import App
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
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    async with cb.System("app") as system:
        with pytest.raises(cb.BackendUnavailable, match=r"pip install 'callboard\[otel\]'"):
            cb.observe(system, otlp=4318)
    monkeypatch.setenv("CALLBOARD_TELEMETRY", "otlp:http://127.0.0.1:4318")
    with caplog.at_level(logging.ERROR, "callboard.telemetry"):
        async with cb.System("app"):
            pass
    assert "pip install 'callboard[otel]'" in caplog.text


# -- with the SDK ------------------------------------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=WITH_SDK)
    with collecting() as collector:
        yield collector


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


def incoming(n: int) -> str:
    return f"00-{n + 1:032x}-{n + 1:016x}-01"


async def requests(port: int, count: int, max_batch: int) -> None:
    """So many requests at once, whose work takes turns."""
    both = asyncio.Barrier(2)

    async def asked(server: Any, n: int) -> None:
        TRACE.set(incoming(n))
        await server.submit(n)

    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        cb.observe(system, "node-1", otlp=port)
        device = await system.device("cpu", isolation="thread")
        a = device.full((2, 2), 1.0, "f32")

        async def work(items: list[int]) -> list[int]:
            for _ in range(3):
                if max_batch == 1:
                    await both.wait()
                device.blas.gemm(a, a) if items[0] else device.full((2, 2), 2.0)
            return items

        batches = 2 if max_batch == 1 else 1
        options: dict[str, Any] = {"max_batch": max_batch, "max_concurrent_batches": batches, "max_wait": LIMIT}
        async with cb.DynamicBatchingServer(work, name="s", **options) as server:
            await asyncio.gather(*(asyncio.create_task(asked(server, n)) for n in range(count)))


async def test_interleaved_requests_get_exactly_their_own_ops(collector: Collector) -> None:
    await requests(collector.port, 2, 1)
    first, second = sorted(collector.spans(), key=lambda span: bytes(span.trace_id))
    assert [span.parent_span_id.hex() for span in (first, second)] == [incoming(n)[36:52] for n in range(2)]
    ops = [[event.name for event in span.events if event.name != "batch"] for span in (first, second)]
    assert ops == [["memory.empty", "memory.fill"] * 3, ["blas.gemm"] * 3]
    assert all(
        span.start_time_unix_nano <= e.time_unix_nano <= span.end_time_unix_nano
        for span in (first, second)
        for e in span.events
    )


async def test_a_batch_is_a_span_that_links_to_its_requests(collector: Collector) -> None:
    await requests(collector.port, 3, 3)
    (batch,) = [span for span in collector.spans() if span.name == "s batch"]
    spans = [span for span in collector.spans() if span.name == "s"]
    assert {span.parent_span_id.hex() for span in spans} == {incoming(n)[36:52] for n in range(3)}
    assert {(link.trace_id, link.span_id) for link in batch.links} == {(s.trace_id, s.span_id) for s in spans}
    assert (batch.trace_id, batch.parent_span_id) in {(s.trace_id, s.span_id) for s in spans}
    for span in (batch, *spans):  # each request caused what its batch did
        assert [event.name for event in span.events].count("memory.fill") == 3
    assert attributes(batch)["callboard.batch"] == 3


async def test_a_lost_context_is_in_the_spans_that_used_it(collector: Collector, tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        cb.observe(system, "node-1", otlp=collector.port)
        spec = f"faulty+cpu?poison_at=4&once={tmp_path / 'once'}"
        device = await system.device(spec, isolation="process", standby=None, max_restarts=None)

        async def work(items: list[int]) -> list[int]:
            a = device.full((2, 2), 1.0, "f32")
            for _ in range(3):
                await device.blas.gemm(a, a)
            return items

        async with cb.DynamicBatchingServer(work, max_batch=1, name="s") as server:
            for n in range(2):
                TRACE.set(incoming(n))
                await server.submit(n)
    first, second = sorted(collector.spans(), key=lambda span: bytes(span.trace_id))
    names = [event.name for event in first.events]
    assert names.count("context lost") == 1
    assert names.index("context lost") < len(names) - 1 - names[::-1].index("blas.gemm")  # it was repeated
    assert "context lost" not in [event.name for event in second.events]
    assert [event.name for event in second.events].count("blas.gemm") == 3


async def test_spans_are_sampled_and_bounded(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    from callboard.events import tracing
    from callboard.events.kinds import REQUEST
    from callboard.telemetry.export.otel import traces

    async with cb.System("app") as system:
        telemetry = cb.observe(system)
        none = traces.OtlpTraces(telemetry, collector.port, rate=0)
        every = traces.OtlpTraces(telemetry, collector.port, rate=1)
        monkeypatch.setattr(tracing, "now", lambda: 5_000_000_000)
        requests = [(n, 5_000_000_000, REQUEST, "s", n, 4.0, 4.5, "failed", None, None) for n in range(traces.MOST + 7)]
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


async def test_a_request_over_http_is_one_span_above_those_of_its_model(collector: Collector) -> None:
    app = App("lab")

    async def vectors(texts: list[str]) -> list[list[float]]:
        if "no" in texts:
            raise RuntimeError("no")
        return [[float(len(text))] for text in texts]

    app.add_embeddings("letters", cb.DynamicBatchingServer(vectors))
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        cb.observe(system, "node-1", otlp=collector.port)
        transport = httpx.ASGITransport(app)
        async with app.running(), httpx.AsyncClient(transport=transport, base_url="http://lab") as http:
            for texts, status in ((["one", "three"], 200), (["no"], 500)):
                headers = {"traceparent": f"00-{TRACED}-{SPAN}-01", "x-request-id": "mine"}
                body = {"model": "letters", "input": texts}
                assert (await http.post("/v1/embeddings", json=body, headers=headers)).status_code == status
            assert (await http.get("/v2/health/ready", headers=headers)).status_code == 200
    over_http = [span for span in collector.spans() if span.kind == span.SPAN_KIND_SERVER]
    inner = [span for span in collector.spans() if span.kind == span.SPAN_KIND_INTERNAL]
    assert [span.name for span in over_http] == ["POST /v1/embeddings"] * 2
    assert {span.parent_span_id.hex() for span in over_http} == {SPAN}
    assert {span.trace_id.hex() for span in (*over_http, *inner)} == {TRACED}
    for span, status in zip(over_http, (200, 500), strict=True):
        assert attributes(span) == {
            "http.request.method": "POST",
            "http.route": "/v1/embeddings",
            "http.response.status_code": status,
            "callboard.request_id": "mine",
            "callboard.model": "letters",
        }
    assert [span.status.code == span.status.STATUS_CODE_ERROR for span in over_http] == [False, True]
    below = [span.parent_span_id for span in inner if span.name == "letters"]
    assert below == [over_http[0].span_id] * 2 + [over_http[1].span_id]
