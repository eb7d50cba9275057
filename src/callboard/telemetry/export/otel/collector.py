"""The collector's address, and what tells it which application speaks."""

import importlib
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from callboard.core.errors import BackendUnavailable

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["TIMEOUT", "endpoint", "require_sdk", "resource_of"]

TIMEOUT = 5.0
"""Seconds that the collector gets for one export."""


def endpoint(where: int | str, signal: str) -> str:
    """The URL of ``"metrics"`` or ``"traces"``: of ``"http://collector:4318"``, or of a port of this machine.

    Raises:
        ValueError: It is neither.
    """
    text = str(where)
    url = urlsplit(f"http://127.0.0.1:{text}" if text.isdecimal() else text)
    try:
        fits = url.scheme in ("http", "https") and url.hostname and (url.port is None or url.port > 0)
    except ValueError:  # no such port
        fits = False
    if not fits:
        raise ValueError(f"otlp = {where!r} is no port and no URL, such as 4318 or 'http://127.0.0.1:4318'")
    return f"{url.geturl().rstrip('/')}/v1/{signal}"


def require_sdk() -> None:
    """Import the SDK.

    Raises:
        BackendUnavailable: It is not installed.
    """
    try:
        for name in ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"):
            importlib.import_module(name)
    except ImportError as e:
        raise BackendUnavailable(
            f"otlp: OpenTelemetry's SDK cannot be imported ({e}); pip install 'callboard[otel]'"
        ) from e


def resource_of(telemetry: "Telemetry") -> Any:
    """The SDK's resource: ``OTEL_SERVICE_NAME`` or the system's name, this process, and the application's name."""
    from opentelemetry.sdk.resources import Resource

    own = {"service.instance.id": telemetry.node, "process.pid": os.getpid()}
    if "OTEL_SERVICE_NAME" not in os.environ:
        own["service.name"] = telemetry.system.name
    return Resource.create(own)
