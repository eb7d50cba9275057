"""Base of handles for other processes: the exporting process, and a lease held by each importer."""

import contextlib
import errno
import os

from callboard.core.errors import GpuRefStale, OutOfMemory, UnsupportedOp

__all__ = ["ExportLease", "ImportLease", "check_alive", "has_ended", "no_descriptors", "process_started"]

DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""Errors of a process, or a system, that has no descriptor left. They tell nothing of the file."""


class ExportLease:
    """Tells whether another process still has something open: each holds a shared lock on a file without a name.

    The kernel drops the lock of a process that ends, however it ends.

    Attributes:
        path: Path under which other processes open the lease file.

    Raises:
        UnsupportedOp: Not on Linux.
        OutOfMemory: This process has no descriptor left.
    """

    def __init__(self) -> None:
        if not hasattr(os, "memfd_create"):
            raise UnsupportedOp("memory for other processes needs memfd, which is Linux only")
        try:
            self._descriptor = os.memfd_create("callboard-lease", os.MFD_CLOEXEC)
        except OSError as e:
            raise no_descriptors("memory cannot be shared", e) from e
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def returned(self) -> bool:
        """True if no other process holds it, which also closes it."""
        import fcntl  # not on Windows, where no memfd is either

        if self._descriptor >= 0:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self.close()
        return True

    def close(self) -> None:
        """The process that exports ends, or nothing was exported."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class ImportLease:
    """Held as long as this process has memory open that another process has exported.

    Args:
        path: ``path`` of the :class:`ExportLease`.

    Raises:
        GpuRefStale: The exporter has freed it, or has ended.
        OutOfMemory: This process has no descriptor left.
    """

    def __init__(self, path: str) -> None:
        import fcntl

        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as e:
            if e.errno in DESCRIPTORS:
                raise no_descriptors("shared memory cannot be opened", e) from e
            raise GpuRefStale(f"the exporter has freed the memory, or has ended ({e.strerror})", "freed") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise GpuRefStale("the exporter is freeing the memory", "freed") from None

    def close(self) -> None:
        """It is closed here; again is harmless."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


def check_alive(what: str, device: str, generation: int, pid: int, started: int) -> None:
    """See that the process of an exporting context is the one that a handle was made in.

    Raises:
        GpuRefStale: It has ended.
    """
    if has_ended(pid, started):
        raise GpuRefStale(
            f"the {what}'s handle names a lost context (device {device}, generation {generation}, process "
            f"{pid}); export it again",
            "context rebuilt",
        )


def process_started(pid: int) -> int:
    """The start time of a process in clock ticks since boot; -1 if it does not exist, 0 if unknown (not Linux).

    Raises:
        OutOfMemory: This process has no descriptor left, with which to read it.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return -1 if os.path.isdir("/proc/self") else 0
    except OSError as e:
        if e.errno in DESCRIPTORS:
            raise no_descriptors(f"the start of process {pid} cannot be read", e) from e
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def has_ended(pid: int, started: int) -> bool:
    """True if the process with this id and start time has ended.

    Without a descriptor to read the start time with, a process with this id counts as that one.
    """
    try:
        return process_started(pid) != started
    except OutOfMemory:
        return not os.path.isdir(f"/proc/{pid}")


def no_descriptors(what: str, error: OSError) -> OutOfMemory:
    """The error for a file that a limit of this process, or of the system, does not allow to be opened."""
    return OutOfMemory(f"{what}: {error.strerror}; close files, or raise the limit of the process (ulimit -n)")
