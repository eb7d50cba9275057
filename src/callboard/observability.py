"""``observability.install(system, "node-1")``: see :func:`callboard.observe`; trace contexts, dashboard, profilers."""

from callboard.events.tracing import traceparent
from callboard.telemetry.dashboard.app import process_dashboard as dashboard
from callboard.telemetry.install import install, observe
from callboard.telemetry.nvidia.cupti import CuptiSession
from callboard.telemetry.nvidia.nvml import GpuSnapshot, NvmlActor, SetInterval, Shutdown
from callboard.telemetry.nvidia.nvtx import NvtxKernelTrace

__all__ = [
    "CuptiSession",
    "GpuSnapshot",
    "NvmlActor",
    "NvtxKernelTrace",
    "SetInterval",
    "Shutdown",
    "dashboard",
    "install",
    "observe",
    "traceparent",
]
