"""Collectives on the CPU: ranks exchange data through shared memory, and reduce in rank order."""

from callboard.backends.cpu.collective.library import CpuCollective

__all__ = ["CpuCollective"]
