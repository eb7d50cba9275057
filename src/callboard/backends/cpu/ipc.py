"""``CpuIpc``: memory shared with other processes on a CPU."""

from callboard.kernel.ipc.library import IpcLibrary

__all__ = ["CpuIpc"]


class CpuIpc(IpcLibrary):
    """Serves :mod:`callboard.kernel.ipc`."""
