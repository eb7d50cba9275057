"""The limit of the process that an exception reports: memory, address space, threads, descriptors."""

import errno

from callboard.core.errors import OutOfMemory

__all__ = ["shortage"]

NO_THREAD = "can't start new thread"
"""Python's error text if no address space is left for a stack (or the thread limit is reached)."""


def shortage(error: BaseException, what: str) -> OutOfMemory | None:
    """The error of ``what`` if the host process has no memory, address space or descriptor for it, else None."""
    if isinstance(error, OutOfMemory):
        return error
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        short = OutOfMemory(
            f"{what}: the context host has no descriptor: {error}; close files there, or raise the limit of the "
            "process (ulimit -n)"
        )
        short.__cause__ = error
        return short
    if (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and NO_THREAD in str(error))
    ):
        thread = isinstance(error, RuntimeError)
        lacks = "can start no thread" if thread else "has no memory"
        cure = "of threads (ulimit -u, the cgroup's pids.max) or of address space (ulimit -v)"
        short = OutOfMemory(
            f"{what}: the context host {lacks}: {type(error).__name__}: {error}; raise the limit "
            + (f"{cure}, or stop other processes" if thread else "of the process (ulimit -v, cgroup), or free arrays")
        )
        short.__cause__ = error
        return short
    return None
