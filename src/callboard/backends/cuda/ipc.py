"""``CudaIpc``: memory shared with other processes on a GPU."""

from callboard.kernel.ipc.library import IpcLibrary

__all__ = ["CudaIpc"]


class CudaIpc(IpcLibrary):
    """Serves :mod:`callboard.kernel.ipc`."""
