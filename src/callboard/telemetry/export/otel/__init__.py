"""OpenTelemetry: metrics and traces to a collector over OTLP (HTTP, protobuf); the extra ``otel``.

The SDK is imported when it is asked for, and works on threads of its own: nothing that is measured calls it.
"""

from callboard.telemetry.export.otel.metrics import OtlpMetrics
from callboard.telemetry.export.otel.traces import OtlpTraces

__all__ = ["OtlpMetrics", "OtlpTraces"]
