"""The CPU backend: the reference for the results of every op, and the device of machines without a GPU."""

from callboard.backends.cpu.device import CpuBackend

__all__ = ["backend"]

backend = CpuBackend()
"""The object named by the entry point ``cpu``."""
