"""The CPU backend: the reference that every op is compared with, and a device where there is no other."""

from callboard.backends.cpu.device import CpuBackend

__all__ = ["backend"]

backend = CpuBackend()
"""The object named by the entry point ``cpu``."""
