"""Collectives on the CPU: ranks exchange through shared memory, and reduce in the order of the ranks."""

from callboard.backends.cpu.collective.library import CpuCollective

__all__ = ["CpuCollective"]
