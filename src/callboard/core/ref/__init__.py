"""Refs: handles of arrays on a device, which are arrays to compute with."""

from callboard.core.ref.deferred import Deferral, Deferrals, DeferredRef
from callboard.core.ref.handle import AccelRef, Allocation, GpuRef, GpuToken, RefPort, RefServices, Released, stale

__all__ = [
    "AccelRef",
    "Allocation",
    "Deferral",
    "Deferrals",
    "DeferredRef",
    "GpuRef",
    "GpuToken",
    "RefPort",
    "RefServices",
    "Released",
    "stale",
]
