"""``observability.install(system, "node-1")``: see :func:`callboard.observe`."""

from callboard.telemetry.install import install, observe

__all__ = ["install", "observe"]
