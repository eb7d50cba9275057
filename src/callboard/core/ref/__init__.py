"""Refs: handles of device arrays, with the operators and methods of an array."""

from callboard.core.ref.allocation import Allocation, Released
from callboard.core.ref.deferred import Deferral, Deferrals, DeferredRef, deferral_of
from callboard.core.ref.handle import AccelRef, GpuRef, stale
from callboard.core.ref.held import HeldRef, held_array, held_by
from callboard.core.ref.ports import RefPort, RefServices
from callboard.core.ref.tokens import GpuToken

__all__ = [
    "AccelRef",
    "Allocation",
    "Deferral",
    "Deferrals",
    "DeferredRef",
    "GpuRef",
    "GpuToken",
    "HeldRef",
    "RefPort",
    "RefServices",
    "Released",
    "deferral_of",
    "held_array",
    "held_by",
    "stale",
]
