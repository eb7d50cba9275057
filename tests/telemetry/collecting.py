"""A collector of OpenTelemetry for tests: takes exports, and decodes them with the SDK's protobufs."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Collector", "attributes", "collecting"]


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


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens."""
    collector = Collector()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        collector.server.server_close()


def attributes(each: Any) -> dict[str, Any]:
    """Attributes of a span, an event or a point."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in each.attributes}
