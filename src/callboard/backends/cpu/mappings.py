"""Memory of several processes on the CPU: mappings of a file without a name."""

import mmap
import os

import numpy as np

from callboard.core.errors import DriverError, OutOfMemory, UnsupportedOp
from callboard.kernel.ipc.sharing import no_descriptors

__all__ = ["Mapping", "new_mapping", "opened_mapping"]


class Mapping:
    """A mapping, unmapped when nothing refers to it any more.

    Args:
        memory: The mapping.
        descriptor: Descriptor of the file, owned from here on; -1 for a mapping of another process.

    Attributes:
        memory: Its bytes.
        address: The address in this process.
        path: Path under which another process opens the file.
    """

    def __init__(self, memory: mmap.mmap, descriptor: int = -1) -> None:
        self.memory = np.frombuffer(memory, np.uint8)
        self._descriptor = descriptor
        self.address: int = self.memory.ctypes.data
        self.path = f"/proc/{os.getpid()}/fd/{descriptor}"

    def close(self) -> None:
        """Release it; a second call is harmless. Processes that have it mapped keep it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def new_mapping(nbytes: int) -> Mapping:
    """Memory that other processes can map.

    Raises:
        OutOfMemory: There is no memory, or no descriptor.
        UnsupportedOp: The platform has no memfd.
    """
    if not hasattr(os, "memfd_create"):
        raise UnsupportedOp("memory for other processes needs memfd, which is Linux only")
    try:
        descriptor = os.memfd_create("callboard-shared", os.MFD_CLOEXEC)
    except OSError as e:
        raise no_descriptors(f"{nbytes:,} bytes for several processes", e) from e
    try:
        os.posix_fallocate(descriptor, 0, max(nbytes, 1))
        return Mapping(mmap.mmap(descriptor, max(nbytes, 1)), descriptor)
    except OSError as e:
        os.close(descriptor)
        raise OutOfMemory(f"{nbytes:,} bytes for several processes: {e.strerror}") from e


def opened_mapping(path: str, nbytes: int) -> Mapping:
    """Memory that another process has made.

    Raises:
        DriverError: It cannot be mapped.
    """
    try:
        with open(path, "r+b") as file:
            return Mapping(mmap.mmap(file.fileno(), max(nbytes, 1)))
    except (OSError, ValueError) as e:
        raise DriverError(f"memory of another process cannot be opened: {e}") from e
