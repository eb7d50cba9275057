"""``Arena``: one piece of host memory that a context host can map."""

import errno
import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.errors import BackendUnavailable, OutOfMemory

__all__ = ["Arena", "private_arena", "shared_arena"]


class Arena:
    """A mapping, page-aligned. It is unmapped when nothing refers to its memory any more.

    Attributes:
        id: Unique in the process.
        nbytes: Size in bytes.
        descriptor: File descriptor of the memfd; -1 for memory of this process alone.
        address: The address in this process.
        memory: All of it, u8.
    """

    __slots__ = ("__weakref__", "_close", "address", "descriptor", "id", "memory", "nbytes")

    def __init__(self, id: int, nbytes: int, descriptor: int, mapping: mmap.mmap) -> None:
        self.id = id
        self.nbytes = nbytes
        self.descriptor = descriptor
        self.memory: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(mapping, np.uint8)
        self.address = self.memory.ctypes.data
        self._close: Callable[[], object] = lambda: None
        if descriptor >= 0:
            self._close = weakref.finalize(self, os.close, descriptor)

    def close_descriptor(self) -> None:
        """No further host will map it."""
        self._close()
        self.descriptor = -1


def shared_arena(id: int, nbytes: int) -> Arena:
    """Shared memory without a name: it needs no clean-up, and the size of ``/dev/shm`` does not matter.

    Its pages are reserved now, so that a shortage of memory raises an error here and not a bus error later. Its size is
    sealed, because a process that truncates the file would end every other process that accesses it with SIGBUS.

    Raises:
        BackendUnavailable: The platform has no memfd.
        OutOfMemory: No memory, or a limit of the process.
    """
    if not hasattr(os, "memfd_create"):
        raise BackendUnavailable(
            'isolation="process" shares memory by memfd, which is Linux only; use isolation="thread"'
        )
    try:
        descriptor = os.memfd_create(f"callboard-arena-{id}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, nbytes)
            _seal_size(descriptor)
            return Arena(id, nbytes, descriptor, mmap.mmap(descriptor, nbytes))
        except OSError:
            os.close(descriptor)
            raise
    except OSError as e:
        raise _short(nbytes, e) from e


def private_arena(id: int, nbytes: int) -> Arena:
    """Memory of this process, for a host that is one of its threads.

    Raises:
        OutOfMemory: No memory, or a limit of the process.
    """
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            return Arena(id, nbytes, -1, mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return Arena(id, nbytes, -1, mmap.mmap(-1, nbytes))
    except OSError as e:
        raise _short(nbytes, e) from e


def _seal_size(descriptor: int) -> None:
    import fcntl  # not on Windows, where no memfd is either

    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)


def _short(nbytes: int, error: OSError) -> OutOfMemory:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return OutOfMemory(
            f"no descriptor for an arena of {nbytes} bytes: {error.strerror}; close files, or raise the limit of the "
            "process (ulimit -n)"
        )
    return OutOfMemory(
        f"no host memory for an arena of {nbytes} bytes: {error.strerror}; free host arrays, or raise the limit of the "
        "process (ulimit -v, cgroup)"
    )
